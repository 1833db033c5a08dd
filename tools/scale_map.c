/* scale_map.c: a picture of a grid of depths: attention across, MLP upwards, a cell each with its number, coloured from the
 * best to the worst, the trained one framed. Cells that were not measured stay empty. */
#include "scale_svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = 76, TOP = 76, BOTTOM = 64, SIDE = 24, LEAST_WIDTH = 560 };

bool scale_is_map(const scale_experiment *e)
{
    for (size_t i = 0; i < e->n_depths; i++) {
        const uint16_t *steps = e->depths[i].depth.steps;
        if (steps[0] && steps[1] && steps[0] != steps[1]) return true;
    }
    return false;
}

/* The different numbers of one kind, rising: their places on an axis. */
typedef struct places {
    uint16_t steps[DESCENT_SWEEP_DEPTHS];
    size_t count;
} places;

static int compare_steps(const void *a, const void *b)
{
    return (int)*(const uint16_t *)a - (int)*(const uint16_t *)b;
}

static void find_places(const scale_experiment *e, size_t kind, places *found)
{
    size_t kept = 0;
    for (size_t i = 0; i < e->n_depths; i++) found->steps[i] = e->depths[i].depth.steps[kind];
    qsort(found->steps, e->n_depths, sizeof *found->steps, compare_steps);
    for (size_t i = 0; i < e->n_depths; i++)
        if (!kept || found->steps[kept - 1] != found->steps[i]) found->steps[kept++] = found->steps[i];
    found->count = kept;
}

static size_t place_of(const places *among, uint16_t steps)
{
    size_t i = 0;
    while (among->steps[i] != steps) i++;
    return i;
}

typedef struct map {
    const scale_result *result;
    places across, upwards;
    double cell;
    double best, worst; /* of the metric */
} map;

/* Colours from the worst, pale, to the best, deep; the text's that can be read on it. */
static void paint(FILE *to, double part)
{
    const double pale[] = {233, 240, 250}, deep[] = {8, 69, 148};
    double t = isfinite(part) ? part : 0;
    fprintf(to, "fill=\"rgb(%.0f,%.0f,%.0f)\"", pale[0] + t * (deep[0] - pale[0]), pale[1] + t * (deep[1] - pale[1]),
            pale[2] + t * (deep[2] - pale[2]));
}

static void cell(FILE *to, const map *m, size_t i)
{
    const scale_experiment *e = m->result->of;
    descent_metric main = scale_main_metric(e);
    const descent_estimate *value = &m->result->rows[i].metrics[main], *difference = &m->result->rows[i].difference[main];
    double part = m->best != m->worst ? (value->value - m->worst) / (m->best - m->worst) : 1;
    double x = LEFT + m->cell * (double)place_of(&m->across, e->depths[i].depth.steps[0]);
    double y = TOP + m->cell * (double)(m->upwards.count - 1 - place_of(&m->upwards, e->depths[i].depth.steps[1]));
    bool is_trained = (int)i == e->trained;
    const char *ink = isfinite(part) && part > 0.5 ? "#fff" : "#1b1f24";
    fprintf(to, "<g><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\" ", x + 1, y + 1, m->cell - 2,
            m->cell - 2);
    paint(to, part);
    fprintf(to, "/><title>attention x MLP = %s: %s %.17g", e->depths[i].text, descent_metric_name(main), value->value);
    if (isfinite(value->low)) fprintf(to, ", 95%% %.17g to %.17g", value->low, value->high);
    fputs("</title>", to);
    if (m->cell >= 44) {
        fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"13\" style=\"fill:%s\">%.*f</text>",
                x + m->cell / 2, y + m->cell / 2 - 1, ink, main == DESCENT_METRIC_LOSS ? 4 : 3, value->value);
        if (isfinite(difference->value) && !is_trained)
            fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"10\" style=\"fill:%s\">%+.*f%s</text>",
                    x + m->cell / 2, y + m->cell / 2 + 14, ink, main == DESCENT_METRIC_LOSS ? 4 : 3, difference->value,
                    difference->low > 0 || difference->high < 0 ? " *" : "");
        else if (is_trained)
            fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"10\" style=\"fill:%s\">trained</text>",
                    x + m->cell / 2, y + m->cell / 2 + 14, ink);
    }
    fputs("</g>\n", to);
}

static void frame_trained(FILE *to, const map *m)
{
    const scale_experiment *e = m->result->of;
    if (e->trained < 0) return;
    const uint16_t *steps = e->depths[e->trained].depth.steps;
    fprintf(to,
            "<rect class=\"mark\" fill=\"none\" stroke-width=\"3\" rx=\"3\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
            "height=\"%.1f\"/>\n",
            LEFT + m->cell * (double)place_of(&m->across, steps[0]) + 1,
            TOP + m->cell * (double)(m->upwards.count - 1 - place_of(&m->upwards, steps[1])) + 1, m->cell - 2, m->cell - 2);
}

static void axes(FILE *to, const map *m)
{
    double bottom = TOP + m->cell * (double)m->upwards.count, width = m->cell * (double)m->across.count;
    for (size_t i = 0; i < m->across.count; i++)
        fprintf(to, "<text class=\"soft\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%u</text>\n",
                LEFT + m->cell * ((double)i + 0.5), bottom + 18, m->across.steps[i]);
    for (size_t i = 0; i < m->upwards.count; i++)
        fprintf(to, "<text class=\"soft\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%u</text>\n", LEFT - 8,
                bottom - m->cell * ((double)i + 0.5) + 4, m->upwards.steps[i]);
    fprintf(to, "<text class=\"ink\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">T of attention (steps)</text>\n",
            LEFT + width / 2, bottom + 40);
    fprintf(
        to,
        "<text class=\"ink\" transform=\"translate(28 %.1f) rotate(-90)\" text-anchor=\"middle\">T of the MLP (steps)</text>\n",
        (TOP + bottom) / 2);
}

/* What the numbers are, and what the colours. */
static void legend(FILE *to, const map *m, double x)
{
    descent_metric main = scale_main_metric(m->result->of);
    const int steps = 24, digits = main == DESCENT_METRIC_LOSS ? 4 : 3;
    const double height = 8;
    fprintf(to, "<text class=\"ink\" x=\"%.1f\" y=\"%d\" font-weight=\"600\">%s</text>\n", x, TOP + 14,
            svg_metric_name(m->result));
    fprintf(to,
            "<text class=\"soft\" x=\"%.1f\" y=\"%d\">below it: the difference to the</text>\n"
            "<text class=\"soft\" x=\"%.1f\" y=\"%d\">trained T; * where its 95%% interval</text>\n"
            "<text class=\"soft\" x=\"%.1f\" y=\"%d\">leaves out 0</text>\n",
            x, TOP + 34, x, TOP + 50, x, TOP + 66);
    for (int i = 0; i < steps; i++) {
        fprintf(to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"16\" height=\"%.1f\" ", x, TOP + 84 + height * (double)i,
                height + 0.5);
        paint(to, 1 - (double)i / (steps - 1));
        fputs("/>\n", to);
    }
    fprintf(
        to,
        "<text class=\"soft\" x=\"%.1f\" y=\"%d\">%.*f best</text>\n<text class=\"soft\" x=\"%.1f\" y=\"%.1f\">%.*f</text>\n",
        x + 24, TOP + 94, digits, m->best, x + 24, TOP + 84 + height * steps, digits, m->worst);
}

void svg_map(FILE *to, const scale_result *result, const scale_picture *picture)
{
    const scale_experiment *e = result->of;
    descent_metric main = scale_main_metric(e);
    map on_stack = {.result = result, .best = NAN, .worst = NAN}, *m = &on_stack;
    find_places(e, 0, &m->across);
    find_places(e, 1, &m->upwards);
    size_t longest = m->across.count > m->upwards.count ? m->across.count : m->upwards.count;
    m->cell = fmin(76, fmax(16, 560.0 / (double)longest));
    for (size_t i = 0; i < e->n_depths; i++) {
        double value = result->rows[i].metrics[main].value;
        m->best = main == DESCENT_METRIC_LOSS ? fmin(m->best, value) : fmax(m->best, value);
        m->worst = main == DESCENT_METRIC_LOSS ? fmax(m->worst, value) : fmin(m->worst, value);
    }
    double right = LEFT + m->cell * (double)m->across.count + SIDE;
    double width = fmax(right + 230, LEAST_WIDTH), height = fmax(m->cell * (double)m->upwards.count, 290);
    svg_begin(to, result, picture, (int)width, (int)(TOP + height + BOTTOM));
    for (size_t i = 0; i < e->n_depths; i++) cell(to, m, i);
    frame_trained(to, m);
    axes(to, m);
    legend(to, m, right);
    fputs("</svg>\n", to);
}
