/* scale_svg.c: pictures of an experiment that read well alone: what it is of, axes with units, intervals, the trained T and the
 * range it was trained over. Over T as a curve on a log2 axis, with energy and r_t below; over a grid of attention x MLP as a
 * map (scale_map.c). Light or dark as whoever looks at it prefers. Lengths are in the picture's own units. */
#include "scale_svg.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 760, LEFT = 78, RIGHT = 78, TOP = 76, PANEL = 250, GAP = 34, SECOND = 130, BOTTOM = 56 };

/* ---- What both pictures share ------------------------------------------------------------------------------------- */

void svg_text(FILE *to, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", to);
            break;
        case '<':
            fputs("&lt;", to);
            break;
        case '>':
            fputs("&gt;", to);
            break;
        case '"':
            fputs("&quot;", to);
            break;
        default:
            fputc(*text, to);
        }
    }
}

void svg_begin(FILE *to, const scale_result *result, const scale_picture *picture, int width, int height)
{
    char model[96], data[96];
    scale_text(result->of, "model", model, sizeof model);
    scale_text(result->of, "name", data, sizeof data);
    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "
            "font-family=\"system-ui, 'DejaVu Sans', Arial, sans-serif\" font-size=\"12\">\n",
            width, height, width, height);
    fputs("<style>\n.page{fill:#fff}.ink{fill:#1b1f24}.soft{fill:#57606a}.grid{stroke:#d8dee4}.axis{stroke:#8c959f}\n"
          ".one{stroke:#0a5fb4}.one-fill{fill:#0a5fb4}.two{stroke:#1a7f37}.two-fill{fill:#1a7f37}.three{stroke:#8250df}"
          ".three-fill{fill:#8250df}\n.mark{stroke:#bc4c00}.mark-fill{fill:#bc4c00}.line{fill:none;stroke-width:2}\n"
          "@media (prefers-color-scheme: dark){.page{fill:#0d1117}.ink{fill:#e6edf3}.soft{fill:#9198a1}.grid{stroke:#262c34}"
          ".axis{stroke:#656c76}\n.one{stroke:#58a6ff}.one-fill{fill:#58a6ff}.two{stroke:#3fb950}.two-fill{fill:#3fb950}"
          ".three{stroke:#bc8cff}.three-fill{fill:#bc8cff}\n.mark{stroke:#f0883e}.mark-fill{fill:#f0883e}}\n</style>\n",
          to);
    fprintf(to, "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n<title>", width, height);
    svg_title(to, picture, model, data);
    fprintf(to, "</title>\n<text class=\"ink\" x=\"%d\" y=\"28\" font-size=\"17\" font-weight=\"600\">", 24);
    svg_title(to, picture, model, data);
    fputs("</text>\n<text class=\"soft\" x=\"24\" y=\"48\">", to);
    if (picture->title) {
        svg_text(to, model);
        fputs(" on ", to);
        svg_text(to, data);
        fputs(": ", to);
    }
    fprintf(to, "%zu %s", result->of->n_done, result->of->kind == SCALE_TEXTS ? "windows" : "questions");
    if (result->of->n_done < result->of->n_inputs) fprintf(to, " of %zu", result->of->n_inputs);
    if (result->n_units > 1) fprintf(to, "; 95%% intervals by resampling %zu %s", result->n_units, result->units);
    fputs("</text>\n", to);
}

void svg_title(FILE *to, const scale_picture *picture, const char *model, const char *data)
{
    if (picture->title) {
        char title[200];
        scale_printable(picture->title, title, sizeof title);
        svg_text(to, title);
    } else {
        fputs("What T buys: ", to);
        svg_text(to, model);
        fputs(" on ", to);
        svg_text(to, data);
    }
}

const char *svg_metric_name(const scale_result *result)
{
    switch (result->of->kind) {
    case SCALE_TEXTS:
        return "loss (nats per token)";
    case SCALE_ANSWERS:
        return "exact match (share of answers)";
    case SCALE_CHOICES:
        break;
    }
    return "accuracy (share of choices)";
}

int scale_write_svg(const scale_result *result, const scale_picture *picture, const char *path)
{
    errno = 0;
    FILE *to = fopen(path, "w");
    if (to) (scale_is_map(result->of) ? svg_map : svg_curve)(to, result, picture);
    bool failed = !to || ferror(to);
    if ((to && fclose(to) != 0) || failed) {
        cli_error("cannot write %s: %s", path, strerror(errno));
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

/* ---- Axes ---------------------------------------------------------------------------------------------------------- */

/* From a quantity to the picture, upwards; ticks at multiples of `step`. */
typedef struct axis {
    double low, high, step;
    double top, height;
} axis;

/* Round numbers around what is to be shown, about so many. */
static axis make_axis(double low, double high, double top, double height, int about)
{
    if (!(low <= high)) low = 0, high = 1;
    if (high - low < 1e-9 * fmax(fabs(low), 1)) low -= 0.5 * fmax(fabs(low), 1e-3), high += 0.5 * fmax(fabs(high), 1e-3);
    double rough = (high - low) / about, step = pow(10, floor(log10(rough)));
    static const double rounds[] = {1, 2, 2.5, 5, 10};
    for (size_t i = 0; i < 5; i++)
        if (rounds[i] * step >= rough) {
            step *= rounds[i];
            break;
        }
    return (axis){floor(low / step) * step, ceil(high / step) * step, step, top, height};
}

static double at(const axis *a, double value)
{
    return a->top + a->height * (1 - (value - a->low) / (a->high - a->low));
}

/* Depth as a number: of two kinds with one T, that. */
static double depth_number(const scale_experiment *e, size_t i)
{
    uint16_t first = e->depths[i].depth.steps[0], second = e->depths[i].depth.steps[1];
    return first ? first : second ? second : 1;
}

typedef struct curve {
    const scale_result *result;
    double low, span; /* of log2 T */
} curve;

static double x_of(const curve *c, double depth)
{
    double inner = WIDTH - LEFT - RIGHT - 48;
    return LEFT + 24 + (c->span > 0 ? (log2(depth) - c->low) / c->span : 0.5) * inner;
}

static void tick_labels(FILE *to, const axis *a, bool right, const char *class)
{
    int decimals = (int)fmax(0, -floor(log10(a->step) + 1e-9));
    if (fabs(a->step * pow(10, decimals) - round(a->step * pow(10, decimals))) > 1e-6) decimals++; /* 0.25 */
    for (double v = a->low; v <= a->high + a->step / 2; v += a->step)
        fprintf(to, "<text class=\"%s\" x=\"%d\" y=\"%.1f\" text-anchor=\"%s\">%.*f</text>\n", class,
                right ? WIDTH - RIGHT + 8 : LEFT - 8, at(a, v) + 4, right ? "start" : "end", decimals,
                fabs(v) < a->step / 1e6 ? 0.0 : v);
}

static void grid_lines(FILE *to, const axis *a)
{
    for (double v = a->low; v <= a->high + a->step / 2; v += a->step)
        fprintf(to, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", LEFT, at(a, v), WIDTH - RIGHT);
}

static void side_name(FILE *to, const axis *a, bool right, const char *class, const char *name)
{
    fprintf(to, "<text class=\"%s\" transform=\"translate(%d %.1f) rotate(-90)\" text-anchor=\"middle\">", class,
            right ? WIDTH - 18 : 20, a->top + a->height / 2);
    svg_text(to, name);
    fputs("</text>\n", to);
}

/* Where T are marked: each that is measured, where there is room. */
static void depth_labels(FILE *to, const curve *c, double y)
{
    const scale_experiment *e = c->result->of;
    double last = -1000;
    for (size_t i = 0; i < e->n_depths; i++) {
        double x = x_of(c, depth_number(e, i)), room = 10 + 7 * (double)strlen(e->depths[i].text);
        bool trained = (int)i == e->trained;
        if (x - last < room) continue;
        last = x;
        fprintf(to,
                "<path class=\"axis\" d=\"M%.1f %.1fv5\"/><text class=\"%s\" x=\"%.1f\" y=\"%.1f\" "
                "text-anchor=\"middle\"%s>%s</text>\n",
                x, y, trained ? "mark-fill" : "soft", x, y + 19, trained ? " font-weight=\"600\"" : "", e->depths[i].text);
    }
    fprintf(to, "<text class=\"ink\" x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">recursion depth T (steps, log scale)</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, y + 42);
}

/* ---- Lines --------------------------------------------------------------------------------------------------------- */

static const descent_estimate *estimate_of(const descent_scaling_row *rows, size_t i, descent_metric metric)
{
    return &rows[i].metrics[metric];
}

/* Widens low..high to what a metric and its intervals need. */
static void widen(const curve *c, const descent_scaling_row *rows, descent_metric metric, double *low, double *high)
{
    for (size_t i = 0; i < c->result->of->n_depths; i++) {
        const descent_estimate *e = estimate_of(rows, i, metric);
        *low = fmin(*low, fmin(e->value, e->low)); /* fmin and fmax pass NaN over */
        *high = fmax(*high, fmax(e->value, e->high));
    }
}

/* The interval, as long as rows have one. */
static void band(FILE *to, const curve *c, const descent_scaling_row *rows, descent_metric metric, const axis *a,
                 const char *class)
{
    const scale_experiment *e = c->result->of;
    for (size_t begin = 0, end; begin < e->n_depths; begin = end) {
        end = begin + 1;
        if (!isfinite(estimate_of(rows, begin, metric)->low)) continue;
        while (end < e->n_depths && isfinite(estimate_of(rows, end, metric)->low)) end++;
        fprintf(to, "<path class=\"%s\" fill-opacity=\".18\" d=\"", class);
        for (size_t i = begin; i < end; i++)
            fprintf(to, "%c%.2f %.2f", i == begin ? 'M' : 'L', x_of(c, depth_number(e, i)),
                    at(a, estimate_of(rows, i, metric)->high));
        for (size_t i = end; i-- > begin;)
            fprintf(to, "L%.2f %.2f", x_of(c, depth_number(e, i)), at(a, estimate_of(rows, i, metric)->low));
        fputs("Z\"/>\n", to);
    }
}

static void point(FILE *to, const curve *c, const descent_scaling_row *rows, size_t i, descent_metric metric, const axis *a,
                  const char *class, const char *name)
{
    const descent_estimate *e = estimate_of(rows, i, metric);
    fprintf(to, "<circle class=\"%s\" cx=\"%.2f\" cy=\"%.2f\" r=\"3\"><title>T = %s: %s %.17g", class,
            x_of(c, depth_number(c->result->of, i)), at(a, e->value), c->result->of->depths[i].text, name, e->value);
    if (isfinite(e->low)) fprintf(to, ", 95%% %.17g to %.17g", e->low, e->high);
    fputs("</title></circle>\n", to);
}

static void line(FILE *to, const curve *c, const descent_scaling_row *rows, descent_metric metric, const axis *a,
                 const char *stroke, const char *fill, const char *name, bool dashed)
{
    const scale_experiment *e = c->result->of;
    bool goes_on = false;
    fprintf(to, "<path class=\"line %s\"%s d=\"", stroke, dashed ? " stroke-dasharray=\"5 4\"" : "");
    for (size_t i = 0; i < e->n_depths; i++) {
        double value = estimate_of(rows, i, metric)->value;
        if (isfinite(value)) fprintf(to, "%c%.2f %.2f", goes_on ? 'L' : 'M', x_of(c, depth_number(e, i)), at(a, value));
        goes_on = isfinite(value);
    }
    fputs("\"/>\n", to);
    for (size_t i = 0; i < e->n_depths; i++)
        if (isfinite(estimate_of(rows, i, metric)->value)) point(to, c, rows, i, metric, a, fill, name);
}

/* ---- The curve ----------------------------------------------------------------------------------------------------- */

/* The range trained over, shaded, and the trained T, through a panel. */
static void trained(FILE *to, const curve *c, const scale_picture *picture, const axis *a, bool named)
{
    const scale_experiment *e = c->result->of;
    double depth = 0, left = LEFT, right = WIDTH - RIGHT;
    char text[24];
    if (sscanf(scale_text(e, "trained", text, sizeof text), "%lf", &depth) != 1 || depth < 1) return;
    double low = picture->low ? (double)picture->low : 1, high = picture->low ? (double)picture->high : depth;
    double from = fmin(fmax(x_of(c, low), left), right), until = fmin(fmax(x_of(c, high), left), right);
    if (low <= exp2(c->low)) from = left;
    if (until > from)
        fprintf(to, "<rect class=\"mark-fill\" fill-opacity=\".08\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                from, a->top, until - from, a->height);
    double x = x_of(c, depth);
    if (x < left || x > right) return;
    fprintf(to, "<path class=\"mark\" stroke-dasharray=\"4 4\" d=\"M%.1f %.1fv%.1f\"/>\n", x, a->top, a->height);
    if (!named) return;
    bool before = x > right - 150;
    fprintf(to, "<text class=\"mark-fill\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">trained T = %s</text>\n",
            x + (before ? -6 : 6), a->top + 14, before ? "end" : "start", text);
    if (picture->low)
        fprintf(to,
                "<text class=\"mark-fill\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">trained over %" PRId64 " to %" PRId64
                "</text>\n",
                x + (before ? -6 : 6), a->top + 29, before ? "end" : "start", picture->low, picture->high);
}

static void first_panel(FILE *to, const curve *c, const scale_picture *picture)
{
    const scale_result *result = c->result;
    descent_metric main = scale_main_metric(result->of);
    double low = INFINITY, high = -INFINITY;
    widen(c, result->rows, main, &low, &high);
    if (result->by_bytes) widen(c, result->by_bytes, main, &low, &high);
    axis a = make_axis(low, high, TOP, PANEL, 5);
    trained(to, c, picture, &a, true);
    grid_lines(to, &a);
    tick_labels(to, &a, false, "soft");
    side_name(to, &a, false, "ink", svg_metric_name(result));
    if (result->by_bytes) line(to, c, result->by_bytes, main, &a, "three", "three-fill", "accuracy by bytes", true);
    band(to, c, result->rows, main, &a, "one-fill");
    line(to, c, result->rows, main, &a, "one", "one-fill", descent_metric_name(main), false);
    if (result->by_bytes)
        fprintf(to,
                "<text class=\"one-fill\" x=\"%d\" y=\"66\" text-anchor=\"end\">by likelihood</text>"
                "<text class=\"three-fill\" x=\"%d\" y=\"66\" text-anchor=\"end\">by likelihood per byte</text>\n",
                WIDTH - RIGHT - 150, WIDTH - RIGHT);
}

static bool has(const scale_result *result, descent_metric metric)
{
    for (size_t i = 0; i < result->of->n_depths; i++)
        if (isfinite(result->rows[i].metrics[metric].value)) return true;
    return false;
}

/* Energy by the left axis and r_t by the right one, whichever there are. */
static void second_panel(FILE *to, const curve *c, const scale_picture *picture, double top)
{
    bool left_taken = false;
    const struct {
        descent_metric metric;
        const char *stroke, *fill, *name;
    } shown[] = {{DESCENT_METRIC_ENERGY, "two", "two-fill", "energy per token"},
                 {DESCENT_METRIC_CHANGE, "three", "three-fill", "r_t of the last step"}};
    for (size_t k = 0; k < 2; k++) {
        if (!has(c->result, shown[k].metric)) continue;
        double low = INFINITY, high = -INFINITY;
        widen(c, c->result->rows, shown[k].metric, &low, &high);
        if (shown[k].metric == DESCENT_METRIC_CHANGE) low = 0;
        axis a = make_axis(low, high, top, SECOND, 4);
        if (!left_taken) {
            trained(to, c, picture, &a, false);
            grid_lines(to, &a);
        }
        tick_labels(to, &a, left_taken, shown[k].fill);
        side_name(to, &a, left_taken, shown[k].fill, shown[k].name);
        band(to, c, c->result->rows, shown[k].metric, &a, shown[k].fill);
        line(to, c, c->result->rows, shown[k].metric, &a, shown[k].stroke, shown[k].fill, descent_metric_name(shown[k].metric),
             left_taken);
        left_taken = true;
    }
}

void svg_curve(FILE *to, const scale_result *result, const scale_picture *picture)
{
    const scale_experiment *e = result->of;
    bool two = has(result, DESCENT_METRIC_ENERGY) || has(result, DESCENT_METRIC_CHANGE);
    double low = log2(depth_number(e, 0)), high = log2(depth_number(e, e->n_depths - 1));
    curve c = {result, low, high - low};
    double bottom = TOP + PANEL + (two ? GAP + SECOND : 0);
    svg_begin(to, result, picture, WIDTH, (int)bottom + BOTTOM);
    first_panel(to, &c, picture);
    if (two) second_panel(to, &c, picture, TOP + PANEL + GAP);
    depth_labels(to, &c, bottom);
    fputs("</svg>\n", to);
}
