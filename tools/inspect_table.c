/* inspect_table.c: a text's descents on a terminal: a map of the energy, a row a token and a cell a step, and a block a token
 * with a line a step. See inspect.h. */
#include "inspect.h"

#include "terminal.h"

#include <math.h>
#include <stdlib.h>

/* ---- The map ----------------------------------------------------------------------------------------------------- */

enum { SHADES = 5, COLOURS = 12, LABEL = 14 };

/* From low to high: dark blue, green, yellow. */
static void print_cell(double part, bool coloured, int width, FILE *to)
{
    static const int colours[COLOURS] = {17, 18, 19, 25, 31, 37, 36, 71, 107, 143, 185, 227};
    static const char *const shades[SHADES] = {" ", "░", "▒", "▓", "█"};
    if (!isfinite(part)) {
        fprintf(to, "%*s", width, "");
    } else if (coloured) {
        fprintf(to, "\033[48;5;%dm%*s\033[0m", colours[(int)(part * (COLOURS - 0.001))], width, "");
    } else {
        for (int i = 0; i < width; i++) fputs(shades[(int)(part * (SHADES - 0.001))], to);
    }
}

static void print_label(const inspection *seen, size_t position, FILE *to)
{
    char *text = NULL;
    size_t bytes = 0, shown = 0, at = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (memory) {
        inspect_print_token(seen->with, seen->tokens[position], true, memory);
        (void)fclose(memory);
    }
    fprintf(to, "%5zu ", position);
    for (; text && at < bytes && shown < LABEL - 6; shown++) {
        do fputc(text[at++], to);
        while (at < bytes && ((unsigned char)text[at] & 0xC0) == 0x80);
    }
    fprintf(to, "%*s ", (int)(LABEL - 6 - shown), "");
    free(text);
}

static void print_map_scale(const inspection *seen, FILE *to)
{
    double low, high;
    const descent_model_info *info = seen->options.info;
    bool one = inspection_descents(seen) == 1;
    fprintf(to, "energy of each token (down) at each step (across), dark is low");
    if (one && inspection_range(seen, 0, &low, &high)) fprintf(to, ": %.4f to %.4f", low, high);
    fprintf(to, "%s\n", one ? "" : "; each sub-layer from its own lowest to its highest");
    for (size_t d = 0; !one && d < inspection_descents(seen); d++)
        if (inspection_range(seen, d, &low, &high))
            fprintf(to, "  layer %zu %-10s %.4f to %.4f\n", d / info->kinds, info->kind_names[d % info->kinds], low, high);
}

void inspect_print_map(const inspection *seen, FILE *to)
{
    size_t descents = inspection_descents(seen), states = 0;
    double low, high;
    bool coloured = *terminal_style_on(to, STYLE_BOLD) != '\0', any = false;
    for (size_t d = 0; d < descents; d++) {
        states += inspection_steps(seen, d) + 1;
        any = any || inspection_range(seen, d, &low, &high);
    }
    if (!any) {
        fprintf(to, "%s does not descend an energy: there is no map of it\n", seen->options.info->name);
        return;
    }
    print_map_scale(seen, to);
    size_t room = (size_t)terminal_width(to) > LABEL + 10 ? (size_t)terminal_width(to) - LABEL - 2 : 10;
    size_t gaps = descents - 1, wide = room > gaps ? (room - gaps) / states : 0;
    int width = wide > 3 ? 3 : wide > 0 ? (int)wide : 1;
    size_t every = wide > 0 ? 1 : (states + room - 1) / room; /* steps of which one is shown */
    for (size_t i = 0; i < seen->count; i++) {
        print_label(seen, i, to);
        for (size_t d = 0; d < descents; d++) {
            bool has = inspection_range(seen, d, &low, &high);
            for (size_t t = 0; t <= inspection_steps(seen, d); t += every) {
                double energy = inspection_energy(seen, i, d, t);
                print_cell(!has ? NAN : high > low ? (energy - low) / (high - low) : 0, coloured, width, to);
            }
            if (d + 1 < descents && wide > 0) fputc(' ', to);
        }
        fputc('\n', to);
    }
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static void print_number(double value, int width, FILE *to)
{
    if (isfinite(value))
        fprintf(to, " %*.4f", width, value);
    else
        fprintf(to, " %*s", width, "-");
}

static void print_readings(const inspection *seen, size_t position, size_t reading, FILE *to)
{
    const token_trace *trace = seen->traces[position];
    for (size_t i = 0; i < (seen->options.guesses ? trace->n_guesses : 0); i++) {
        const token_logprob *guess = &trace->guesses[reading * trace->n_guesses + i];
        fputs(i ? "  " : " ", to);
        inspect_print_token(seen->with, guess->token, true, to);
        fprintf(to, " %.3f", (double)guess->logprob);
    }
    for (size_t i = 0; i < seen->options.n_track; i++) {
        const trace_tracked *tracked = &trace->tracked[reading * seen->options.n_track + i];
        fputs("  [", to);
        inspect_print_token(seen->with, seen->options.track[i], true, to);
        fprintf(to, " #%zu %.3f]", tracked->rank, (double)tracked->logprob);
    }
}

static void print_step(const inspection *seen, size_t position, size_t d, size_t t, FILE *to)
{
    const descent_model_info *info = seen->options.info;
    const float *now = inspection_at(seen, position, d, t), *next = inspection_at(seen, position, d, t + 1);
    uint32_t terms = info->terms[d % info->kinds];
    size_t reading;
    fprintf(to, "  %5zu", t);
    if (terms > 0) print_number(inspection_energy(seen, position, d, t), 10, to);
    for (uint32_t k = 0; terms > 1 && k < terms; k++) print_number((double)now[TRACE_ENERGY + k], 12, to);
    if (terms > 0) {
        print_number((double)now[TRACE_OWN_CHANGE], 10, to);
        print_number(next ? (double)next[TRACE_HISTORY_CHANGE] : NAN, 10, to);
        print_number((double)now[TRACE_SLOPE], 10, to);
    }
    print_number((double)now[TRACE_RELATIVE_CHANGE], 10, to);
    print_number((double)now[TRACE_UPDATE_NORM], 10, to);
    print_number((double)now[TRACE_COSINE], 10, to);
    if (inspection_reading(seen, position, d, t, &reading)) print_readings(seen, position, reading, to);
    fputc('\n', to);
}

static void print_heading(const inspection *seen, size_t d, FILE *to)
{
    const descent_model_info *info = seen->options.info;
    uint32_t kind = (uint32_t)(d % info->kinds), terms = info->terms[kind];
    if (inspection_descents(seen) > 1) fprintf(to, "  layer %zu %s\n", d / info->kinds, info->kind_names[kind]);
    fprintf(to, "  %5s", "t");
    if (terms > 0) fprintf(to, " %10s", "E");
    for (uint32_t k = 0; terms > 1 && k < terms; k++) fprintf(to, " %12s", info->term_names[kind][k]);
    if (terms > 0) fprintf(to, " %10s %10s %10s", "dE_own", "dE_history", "slope");
    fprintf(to, " %10s %10s %10s%s\n", "r_t", "|dx|", "cosine", seen->options.guesses ? "  likeliest next" : "");
}

void inspect_print_table(const inspection *seen, FILE *to)
{
    for (size_t i = 0; i < seen->count; i++) {
        fprintf(to, "\n%s%zu ", terminal_style_on(to, STYLE_BOLD), i);
        inspect_print_token(seen->with, seen->tokens[i], true, to);
        fputs(terminal_style_on(to, STYLE_PLAIN), to);
        if (isfinite(seen->logprobs[i])) fprintf(to, "  logprob %.4f", (double)seen->logprobs[i]);
        fputc('\n', to);
        for (size_t d = 0; d < inspection_descents(seen); d++) {
            print_heading(seen, d, to);
            for (size_t t = 0; t <= seen->traces[i]->used[d]; t++) print_step(seen, i, d, t, to);
        }
    }
}
