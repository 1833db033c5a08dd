/* trace.c: see trace.h. Steps are kept in the order in which they ran; those of one token lie together because a
 * generated token's descent runs alone in its sequence. */
#include "trace.h"

#include "input.h"
#include "json_output.h"
#include "terminal.h"

#include <math.h>
#include <stdlib.h>

/* ---- Collecting ------------------------------------------------------------------------------------------------- */

void trace_add(trace *to, const descent_observation *observation)
{
    if (observation->site.position < to->first || to->incomplete) return;
    if (to->count == to->room) {
        size_t room = to->room ? to->room * 2 : 256;
        descent_observation *grown = realloc(to->steps, room * sizeof *grown);
        to->incomplete = !grown;
        if (!grown) return;
        to->steps = grown;
        to->room = room;
    }
    descent_observation *step = &to->steps[to->count++];
    *step = *observation;
    step->x = step->g = NULL;
}

void trace_release(trace *of)
{
    free(of->steps);
    *of = (trace){.first = 0};
}

/* The steps of the token at `position`, which begin at or after *begin: sets *begin to the first, returns their number. */
static size_t steps_of(const trace *of, size_t position, size_t *begin)
{
    size_t end;
    while (*begin < of->count && of->steps[*begin].site.position < position) (*begin)++;
    for (end = *begin; end < of->count && of->steps[end].site.position == position; end++) continue;
    return end - *begin;
}

static double total_energy(const session *with, const descent_observation *seen)
{
    double sum = 0;
    for (uint32_t i = 0; i < with->info->terms[seen->site.kind]; i++) sum += (double)seen->energy[i];
    return sum;
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

/* The course of the energy over one sub-layer's descent as a row of bars, the lowest energy the lowest bar. */
static void print_sparkline(const session *with, const descent_observation *steps, size_t count, FILE *to)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        double energy = total_energy(with, &steps[i]);
        low = fmin(low, energy);
        high = fmax(high, energy);
    }
    for (size_t i = 0; i < count; i++) {
        double part = high > low ? (total_energy(with, &steps[i]) - low) / (high - low) : 0;
        fputs(isfinite(part) ? bars[(int)(part * 7.999)] : "?", to);
    }
}

static void print_number(double value, int width, FILE *to)
{
    if (isfinite(value))
        fprintf(to, " %*.4f", width, value);
    else
        fprintf(to, " %*s", width, "-");
}

static void print_piece(const session *with, uint32_t token, FILE *to)
{
    size_t bytes = 0;
    const char *piece = with->tokenizer ? descent_tokenizer_piece(with->tokenizer, token, &bytes) : NULL;
    if (!piece) {
        fprintf(to, "%u", token);
        return;
    }
    fputc('"', to);
    terminal_put_text(piece, bytes, to);
    fputc('"', to);
}

static bool same_descent(const descent_site *a, const descent_site *b)
{
    return a->layer == b->layer && a->kind == b->kind;
}

/* The columns of a step's energy: its sum, its terms where there is more than one, how it changed. None without energy. */
static void print_energy_heading(const descent_model_info *info, uint32_t kind, FILE *to)
{
    if (info->terms[kind] == 0) return;
    fprintf(to, " %12s", "E");
    for (uint32_t i = 0; i < info->terms[kind] && info->terms[kind] > 1; i++) fprintf(to, " %12s", info->term_names[kind][i]);
    fprintf(to, " %12s %12s", "dE_own", "dE_history");
}

static void print_energies(const session *with, const descent_observation *seen, FILE *to)
{
    uint32_t terms = with->info->terms[seen->site.kind];
    if (terms == 0) return;
    print_number(total_energy(with, seen), 12, to);
    for (uint32_t k = 0; k < terms && terms > 1; k++) print_number((double)seen->energy[k], 12, to);
    print_number((double)seen->own_change, 12, to);
    print_number((double)seen->history_change, 12, to);
}

/* One sub-layer's descent of one token. */
static void print_descent(const session *with, const descent_observation *steps, size_t count, FILE *to)
{
    const descent_model_info *info = with->info;
    uint32_t kind = steps[0].site.kind;
    fputs("  ", to);
    if (info->layers > 1 || info->kinds > 1) fprintf(to, "layer %u %s ", steps[0].site.layer, info->kind_names[kind]);
    if (info->terms[kind] == 0) {
        fputs("no energy", to);
    } else {
        fprintf(to, "E %.4f -> %.4f ", total_energy(with, &steps[0]), total_energy(with, &steps[count - 1]));
        print_sparkline(with, steps, count, to);
    }
    fprintf(to, "\n    %5s", "t");
    print_energy_heading(info, kind, to);
    fprintf(to, " %12s %12s\n", "r_t", "|dx|");
    for (size_t i = 0; i < count; i++) {
        const descent_observation *seen = &steps[i];
        fprintf(to, "    %5u", seen->site.step);
        print_energies(with, seen, to);
        print_number((double)seen->relative_change, 12, to);
        print_number((double)seen->update_norm, 12, to);
        fputc('\n', to);
    }
}

void trace_print(const trace *of, const session *with, const uint32_t *tokens, size_t count, FILE *to)
{
    for (size_t i = 0, first = 0; i < count; i++) {
        size_t n = steps_of(of, of->first + i, &first);
        const descent_observation *steps = of->steps + first;
        fprintf(to, "%s", terminal_style_on(to, STYLE_BOLD));
        print_piece(with, tokens[i], to);
        fprintf(to, "%s from position %zu\n", terminal_style_on(to, STYLE_PLAIN), of->first + i);
        for (size_t begin = 0, end; begin < n; begin = end) {
            for (end = begin + 1; end < n && same_descent(&steps[begin].site, &steps[end].site); end++) continue;
            print_descent(with, steps + begin, end - begin, to);
        }
    }
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

json_t *token_json(const session *with, uint32_t token)
{
    size_t bytes;
    if (!with->tokenizer) return json_null();
    const char *piece = descent_tokenizer_piece(with->tokenizer, token, &bytes);
    json_t *text = piece ? json_stringn(piece, bytes) : json_null();
    if (text) return text;
    text_buffer spelled = {.bytes = NULL};
    bool whole = text_append(&spelled, "bytes:", 6);
    for (size_t i = 0; i < bytes && whole; i++) {
        char escaped[8];
        whole = text_append(&spelled, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\x%02x", (unsigned char)piece[i]));
    }
    if (whole) text = json_stringn(spelled.bytes, spelled.length);
    text_buffer_release(&spelled);
    return text;
}

static json_t *step_json(const session *with, const descent_observation *seen)
{
    uint32_t kind = seen->site.kind;
    json_t *energy = json_object();
    for (uint32_t i = 0; i < with->info->terms[kind]; i++)
        json_object_set_new(energy, with->info->term_names[kind][i], json_number((double)seen->energy[i]));
    return json_pack("{si ss si sb so so so so so}", "layer", (int)seen->site.layer, "kind", with->info->kind_names[kind], "t",
                     (int)seen->site.step, "final", seen->final, "energy", energy, "own_change",
                     json_number((double)seen->own_change), "history_change", json_number((double)seen->history_change),
                     "relative_change", json_number((double)seen->relative_change), "update_norm",
                     json_number((double)seen->update_norm));
}

json_t *trace_json(const trace *of, const session *with, const uint32_t *tokens, size_t count)
{
    json_t *all = json_array();
    for (size_t i = 0, first = 0; i < count; i++) {
        size_t n = steps_of(of, of->first + i, &first);
        const descent_observation *steps = of->steps + first;
        json_t *list = json_array();
        for (size_t k = 0; k < n; k++) json_array_append_new(list, step_json(with, &steps[k]));
        json_t *one = json_pack("{sI so sI so}", "token", (json_int_t)tokens[i], "text", token_json(with, tokens[i]),
                                "position", (json_int_t)(of->first + i), "steps", list);
        if (!one || json_array_append_new(all, one) != 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}
