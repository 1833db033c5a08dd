/* inspect_svg.c: a text's descents as files: a line a step (CSV), and the map of the energy as a drawing that reads well alone:
 * tokens down, steps across, a bar that says what the colours are, and each cell's numbers where a browser's pointer rests on
 * it. See inspect.h. */
#include "inspect.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- CSV --------------------------------------------------------------------------------------------------------- */

static void print_csv_number(double value, FILE *to)
{
    if (isfinite(value))
        fprintf(to, ",%.9g", value);
    else
        fputc(',', to);
}

/* A token's text between quotes, those in it doubled. */
static void print_csv_token(const session *with, uint32_t token, FILE *to)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (memory) {
        inspect_print_token(with, token, false, memory);
        (void)fclose(memory);
    }
    fputs(",\"", to);
    for (size_t i = 0; text && i < bytes; i++) fprintf(to, text[i] == '"' ? "\"\"" : "%c", text[i]);
    fputc('"', to);
    free(text);
}

/* Term names over all kinds, each once. Returns how many. */
static size_t all_terms(const descent_model_info *info, const char *names[DESCENT_MAX_KINDS * DESCENT_MAX_TERMS])
{
    size_t n = 0;
    for (uint32_t kind = 0; kind < info->kinds; kind++)
        for (uint32_t k = 0; k < info->terms[kind]; k++) {
            size_t i = 0;
            while (i < n && strcmp(names[i], info->term_names[kind][k]) != 0) i++;
            if (i == n) names[n++] = info->term_names[kind][k];
        }
    return n;
}

static void print_csv_heading(const inspection *seen, const char *const *terms, size_t n_terms, FILE *to)
{
    fputs("position,token,text,layer,kind,t,energy", to);
    for (size_t i = 0; i < n_terms; i++) fprintf(to, ",energy_%s", terms[i]);
    fputs(",own_change,history_change,slope,r,update_norm,cosine", to);
    for (size_t i = 1; i <= seen->options.guesses; i++) fprintf(to, ",guess_%zu,guess_text_%zu,guess_logprob_%zu", i, i, i);
    for (size_t i = 0; i < seen->options.n_track; i++)
        fprintf(to, ",rank_%u,logprob_%u", seen->options.track[i], seen->options.track[i]);
    fputc('\n', to);
}

static void print_csv_reading(const inspection *seen, size_t position, size_t d, size_t t, FILE *to)
{
    const token_trace *trace = seen->traces[position];
    const tracer_options *o = &seen->options;
    size_t reading;
    bool is_read = inspection_reading(seen, position, d, t, &reading);
    for (size_t i = 0; i < o->guesses; i++) {
        if (!is_read || i >= trace->n_guesses) {
            fputs(",,,", to);
            continue;
        }
        const token_logprob *guess = &trace->guesses[reading * trace->n_guesses + i];
        fprintf(to, ",%u", guess->token);
        print_csv_token(seen->with, guess->token, to);
        print_csv_number((double)guess->logprob, to);
    }
    for (size_t i = 0; i < o->n_track; i++) {
        const trace_tracked *tracked = is_read ? &trace->tracked[reading * o->n_track + i] : NULL;
        if (tracked)
            fprintf(to, ",%zu", tracked->rank);
        else
            fputc(',', to);
        print_csv_number(tracked ? (double)tracked->logprob : NAN, to);
    }
}

static void print_csv_line(const inspection *seen, size_t position, size_t d, size_t t, const char *const *terms,
                           size_t n_terms, FILE *to)
{
    static const enum trace_number behind[] = {TRACE_SLOPE, TRACE_RELATIVE_CHANGE, TRACE_UPDATE_NORM, TRACE_COSINE};
    const descent_model_info *info = seen->options.info;
    uint32_t kind = (uint32_t)(d % info->kinds);
    const float *now = inspection_at(seen, position, d, t), *next = inspection_at(seen, position, d, t + 1);
    fprintf(to, "%zu,%u", position, seen->tokens[position]);
    print_csv_token(seen->with, seen->tokens[position], to);
    fprintf(to, ",%zu,%s,%zu", d / info->kinds, info->kind_names[kind], t);
    print_csv_number(inspection_energy(seen, position, d, t), to);
    for (size_t i = 0; i < n_terms; i++) {
        double value = NAN;
        for (uint32_t k = 0; k < info->terms[kind]; k++)
            if (!strcmp(terms[i], info->term_names[kind][k])) value = (double)now[TRACE_ENERGY + k];
        print_csv_number(value, to);
    }
    print_csv_number((double)now[TRACE_OWN_CHANGE], to);
    print_csv_number(next ? (double)next[TRACE_HISTORY_CHANGE] : NAN, to);
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) print_csv_number((double)now[behind[i]], to);
    print_csv_reading(seen, position, d, t, to);
    fputc('\n', to);
}

void inspect_print_csv(const inspection *seen, FILE *to)
{
    const char *terms[DESCENT_MAX_KINDS * DESCENT_MAX_TERMS];
    size_t n_terms = all_terms(seen->options.info, terms);
    print_csv_heading(seen, terms, n_terms, to);
    for (size_t i = 0; i < seen->count; i++)
        for (size_t d = 0; d < inspection_descents(seen); d++)
            for (size_t t = 0; t <= seen->traces[i]->used[d]; t++) print_csv_line(seen, i, d, t, terms, n_terms, to);
}

/* ---- The drawing ------------------------------------------------------------------------------------------------- */

enum { LEFT = 128, TOP = 66, BAR_HEIGHT = 12, GAP = 6 };

/* Where columns lie: descents beside each other, a gap between them. */
typedef struct layout {
    double cell, row;
    double width, height; /* of the map */
} layout;

static layout lay_out(const inspection *seen)
{
    size_t states = 0, descents = inspection_descents(seen);
    for (size_t d = 0; d < descents; d++) states += inspection_steps(seen, d) + 1;
    layout l = {.cell = fmin(40, fmax(6, 640 / (double)states)), .row = seen->count > 60 ? 9 : seen->count > 30 ? 13 : 18};
    l.width = fmax(320, l.cell * (double)states + GAP * (double)(descents - 1));
    l.height = l.row * (double)seen->count;
    return l;
}

static void print_escaped(const char *text, size_t bytes, FILE *to)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '&')
            fputs("&amp;", to);
        else if (c == '<')
            fputs("&lt;", to);
        else if (c == '>')
            fputs("&gt;", to);
        else
            fputc(c >= 0x20 ? c : '?', to);
    }
}

/* A token's piece as XML may hold it: bytes that are no whole characters as question marks. */
static void print_svg_token(const session *with, uint32_t token, FILE *to)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (memory) {
        inspect_print_token(with, token, true, memory);
        (void)fclose(memory);
    }
    json_t *whole = text ? json_stringn(text, bytes) : NULL; /* NULL where it is no UTF-8 */
    for (size_t i = 0; text && !whole && i < bytes; i++)
        if ((unsigned char)text[i] >= 0x80) text[i] = '?';
    if (text) print_escaped(text, bytes, to);
    json_decref(whole);
    free(text);
}

/* From low (dark blue) over green to high (yellow), even in lightness. */
static void print_colour(double part, FILE *to)
{
    static const double stops[5][3] = {{58, 22, 84}, {56, 88, 140}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}};
    double at = fmin(fmax(part, 0), 1) * 4;
    size_t k = at >= 4 ? 3 : (size_t)at;
    fputc('#', to);
    for (size_t c = 0; c < 3; c++)
        fprintf(to, "%02x", (unsigned)(stops[k][c] + (at - (double)k) * (stops[k + 1][c] - stops[k][c]) + 0.5));
}

static void print_cell(const inspection *seen, size_t i, size_t d, size_t t, double x, double y, const layout *l, FILE *to)
{
    double low, high, energy = inspection_energy(seen, i, d, t);
    size_t reading;
    if (!isfinite(energy) || !inspection_range(seen, d, &low, &high)) return;
    fprintf(to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%.2f\" fill=\"", x, y, l->cell + 0.2, l->row + 0.2);
    print_colour(high > low ? (energy - low) / (high - low) : 0, to);
    fprintf(to, "\"><title>token %zu ", i);
    print_svg_token(seen->with, seen->tokens[i], to);
    fprintf(to, ", t = %zu: E = %.4f", t, energy);
    if (seen->options.guesses > 0 && inspection_reading(seen, i, d, t, &reading)) {
        fputs(", likeliest next ", to);
        print_svg_token(seen->with, seen->traces[i]->guesses[reading * seen->traces[i]->n_guesses].token, to);
    }
    fputs("</title></rect>\n", to);
}

static void print_rows(const inspection *seen, const layout *l, FILE *to)
{
    double size = fmin(11, l->row - 1);
    for (size_t i = 0; i < seen->count; i++) {
        double x = LEFT, y = TOP + l->row * (double)i;
        fprintf(to, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" font-size=\"%.1f\" class=\"mono\">%zu ", LEFT - 6,
                y + l->row / 2 + size / 3, size, i);
        print_svg_token(seen->with, seen->tokens[i], to);
        fputs("</text>\n", to);
        for (size_t d = 0; d < inspection_descents(seen); d++, x += GAP)
            for (size_t t = 0; t <= inspection_steps(seen, d); t++, x += l->cell) print_cell(seen, i, d, t, x, y, l, to);
    }
}

/* Steps below the map, as many as have room; above it which sub-layer it is. */
static void print_columns(const inspection *seen, const layout *l, FILE *to)
{
    const descent_model_info *info = seen->options.info;
    double x = LEFT, below = TOP + l->height;
    for (size_t d = 0; d < inspection_descents(seen); d++, x += GAP) {
        size_t steps = inspection_steps(seen, d), every = 1;
        double begin = x;
        while ((double)every * l->cell < 22) every++;
        for (size_t t = 0; t <= steps; t++, x += l->cell)
            if (t % every == 0)
                fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"10\">%zu</text>\n", x + l->cell / 2,
                        below + 13, t);
        if (inspection_descents(seen) > 1) /* as much of the name as stands above its columns */
            fprintf(to, "<text x=\"%.1f\" y=\"%d\" font-size=\"9\">%zu %.*s</text>\n", begin, TOP - 4, d / info->kinds,
                    (int)((x - begin) / 5 - 3), info->kind_names[d % info->kinds]);
    }
    fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"12\">step t of the descent</text>\n",
            LEFT + l->width / 2, below + 32);
    fprintf(to,
            "<text transform=\"translate(14 %.1f) rotate(-90)\" text-anchor=\"middle\" font-size=\"12\">token, by "
            "position</text>\n",
            TOP + l->height / 2);
}

static void print_bar(const inspection *seen, const layout *l, FILE *to)
{
    enum { PARTS = 60 };
    double low = 0, high = 0, y = TOP + l->height + 46;
    bool one = inspection_descents(seen) == 1 && inspection_range(seen, 0, &low, &high);
    for (int i = 0; i < PARTS; i++) {
        fprintf(to, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"", LEFT + 4.0 * i, y, 4.2, BAR_HEIGHT);
        print_colour((double)i / (PARTS - 1), to);
        fputs("\"/>\n", to);
    }
    fprintf(to, "<text x=\"%d\" y=\"%.1f\" font-size=\"10\">", LEFT, y + BAR_HEIGHT + 13);
    if (one)
        fprintf(to, "%.4g", low);
    else
        fputs("lowest of its sub-layer", to);
    fprintf(to, "</text>\n<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" font-size=\"10\">", LEFT + 4 * PARTS,
            y + BAR_HEIGHT + 13);
    if (one)
        fprintf(to, "%.4g", high);
    else
        fputs("highest", to);
    fprintf(to, "</text>\n<text x=\"%d\" y=\"%.1f\" font-size=\"11\">energy E, model units</text>\n", LEFT + 4 * PARTS + 10,
            y + BAR_HEIGHT - 2);
}

void inspect_print_svg(const inspection *seen, FILE *to)
{
    layout l = lay_out(seen);
    char depth[16];
    double width = LEFT + l.width + 24, height = TOP + l.height + 84;
    fprintf(
        to,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\" "
        "font-family=\"sans-serif\" fill=\"#222\">\n<style>.mono{font-family:monospace;white-space:pre}</style>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<title>The energy of each token along its descent</title>\n",
        width, height, width, height);
    fputs("<text x=\"16\" y=\"22\" font-size=\"14\" font-weight=\"bold\">The energy of each token along its descent</text>\n",
          to);
    fputs("<text x=\"16\" y=\"40\" font-size=\"11\">", to);
    print_escaped(seen->options.info->name, strlen(seen->options.info->name), to);
    fprintf(to, ", T = %s, %zu tokens; lower is better; %" PRIu64 " token-steps</text>\n",
            descent_depth_format(seen->with->model, seen->depth, depth), seen->count, seen->row_steps);
    print_rows(seen, &l, to);
    print_columns(seen, &l, to);
    print_bar(seen, &l, to);
    fputs("</svg>\n", to);
}
