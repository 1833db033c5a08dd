/* scaling_rows.h: a row of a scaling experiment, one depth's, as JSON: the same words from the command line and in answers. */
#ifndef DESCENT_SERVER_SCALING_ROWS_H
#define DESCENT_SERVER_SCALING_ROWS_H

#include "descent.h"

#include <jansson.h>

typedef struct scaling_row {
    const descent_scaling_row *row;
    const descent_scaling_row *by_bytes; /* the same with answers chosen by the likelihood per byte; NULL: no choices */
    double seconds;                      /* NaN where other work shared the machine */
    double joules;                       /* NaN where nobody counts them */
} scaling_row;

/* Tokens run per second; NaN where there are no seconds. */
double scaling_tokens_per_second(const scaling_row *of);
uint64_t scaling_multiply_adds(const descent_multiply_adds *of);

/* `steps` is what the row calls its depth; the reference is taken. What does not exist is null: a metric, a side of its
 * interval, a difference. NULL when memory ran out. */
json_t *scaling_row_json(const scaling_row *of, json_t *steps);

#endif
