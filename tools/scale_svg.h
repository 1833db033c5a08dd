/* scale_svg.h: between the two kinds of picture, scale_svg.c's curve and scale_map.c's map. Both write to `to`; whether that
 * went well is asked at the end, by scale_write_svg. */
#ifndef DESCENT_TOOLS_SCALE_SVG_H
#define DESCENT_TOOLS_SCALE_SVG_H

#include "scale.h"

#include <stdio.h>

/* Escaped. */
void svg_text(FILE *to, const char *text);
/* Opens the picture: its colours, its title and what it is of, down to y = 60. */
void svg_begin(FILE *to, const scale_result *result, const scale_picture *picture, int width, int height);
void svg_title(FILE *to, const scale_picture *picture, const char *model, const char *data);
/* What is drawn, with its unit. */
const char *svg_metric_name(const scale_result *result);

void svg_curve(FILE *to, const scale_result *result, const scale_picture *picture);

/* Whether some depth gives attention and MLP different numbers: then there is no one T to draw over. */
bool scale_is_map(const scale_experiment *experiment);
void svg_map(FILE *to, const scale_result *result, const scale_picture *picture);

#endif
