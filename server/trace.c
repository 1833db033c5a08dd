/* trace.c: see trace.h. A token's trace is made when its first step is observed and filled as its steps come, in whatever order
 * rows run; one handed out is not made again when a paused generation is computed a second time.
 *
 * A layered model's token descends once in each sub-layer: descent i = layer * kinds + kind, of T(kind) steps or fewer.
 */
#include "trace.h"

#include "token_name.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_IN_FLIGHT = 128 }; /* the scheduler's usual chunk */

struct tracer {
    tracer_options options;
    size_t descents;    /* of a token: layers x kinds */
    size_t states;      /* of all its descents, T + 1 each */
    size_t *offset;     /* [descents] of a descent's first state */
    token_trace **open; /* [options.count], by position; NULL: not begun, or handed out */
    size_t given;       /* positions before first + given are handed out or were missed */
    bool ended, failed;
};

static uint32_t steps_of(const tracer_options *o, size_t descent)
{
    uint32_t steps = o->depth.steps[descent % o->info->kinds];
    return steps ? steps : 1; /* a sub-layer without T runs once */
}

static size_t states_of(const tracer_options *o)
{
    size_t states = 0;
    for (size_t i = 0; i < (size_t)o->info->layers * o->info->kinds; i++) states += steps_of(o, i) + 1;
    return states;
}

static bool reads(const tracer_options *o)
{
    return o->guesses > 0 || o->n_track > 0;
}

/* Of a token: states whose logits are read. */
static size_t readings_of(const tracer_options *o)
{
    return o->info->deepens ? states_of(o) : (size_t)o->info->layers * o->info->kinds;
}

size_t trace_first_state(const tracer_options *o, size_t descent)
{
    size_t first = 0;
    for (size_t i = 0; i < descent; i++) first += (size_t)steps_of(o, i) + 1;
    return first;
}

size_t trace_reading(const tracer_options *o, size_t descent, size_t k)
{
    return o->info->deepens ? k : descent;
}

uint64_t tracer_numbers(const tracer_options *o)
{
    uint64_t each = (uint64_t)states_of(o) * TRACE_NUMBERS + (uint64_t)readings_of(o) * 2 * (o->guesses + o->n_track);
    return o->count > UINT64_MAX / each ? UINT64_MAX : o->count * each;
}

uint64_t tracer_state_numbers(const tracer_options *o)
{
    if (!o->states) return 0;
    size_t rows = o->count < ROWS_IN_FLIGHT ? o->count : ROWS_IN_FLIGHT;
    return (uint64_t)rows * states_of(o) * o->info->width;
}

int tracer_flags(const tracer_options *o)
{
    return DESCENT_OBSERVE_ENERGY | DESCENT_OBSERVE_CONVERGENCE | DESCENT_OBSERVE_SLOPE | DESCENT_OBSERVE_FINAL |
           (o->states ? DESCENT_OBSERVE_STATE : 0) | (reads(o) ? DESCENT_OBSERVE_LOGITS : 0);
}

tracer *tracer_create(const tracer_options *options)
{
    tracer *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->options = *options;
    t->descents = (size_t)options->info->layers * options->info->kinds;
    t->states = states_of(options);
    t->offset = malloc(t->descents * sizeof *t->offset);
    t->open = calloc(options->count ? options->count : 1, sizeof(token_trace *));
    if (!t->offset || !t->open) {
        tracer_destroy(t);
        return NULL;
    }
    size_t offset = 0;
    for (size_t i = 0; i < t->descents; i++) {
        t->offset[i] = offset;
        offset += steps_of(options, i) + 1;
    }
    return t;
}

void token_trace_free(token_trace *list)
{
    while (list) {
        token_trace *next = list->next;
        free(list->used);
        free(list->numbers);
        free(list->states);
        free(list->guesses);
        free(list->tracked);
        free(list);
        list = next;
    }
}

void tracer_destroy(tracer *t)
{
    if (!t) return;
    for (size_t i = 0; t->open && i < t->options.count; i++) token_trace_free(t->open[i]);
    free(t->open);
    free(t->offset);
    free(t);
}

bool tracer_failed(const tracer *t)
{
    return t->failed;
}

static token_trace *make(const tracer *t, size_t position)
{
    const tracer_options *o = &t->options;
    token_trace *trace = calloc(1, sizeof *trace);
    if (!trace) return NULL;
    trace->position = position;
    trace->used = malloc(t->descents * sizeof *trace->used);
    trace->numbers = malloc(t->states * TRACE_NUMBERS * sizeof *trace->numbers);
    trace->states = o->states ? malloc(t->states * o->info->width * sizeof *trace->states) : NULL;
    trace->n_guesses = o->guesses < o->info->vocab ? o->guesses : o->info->vocab;
    trace->guesses = o->guesses ? calloc(readings_of(o) * o->guesses, sizeof *trace->guesses) : NULL;
    trace->tracked = o->n_track ? calloc(readings_of(o) * o->n_track, sizeof *trace->tracked) : NULL;
    bool missing = (o->states && !trace->states) || (o->guesses && !trace->guesses) || (o->n_track && !trace->tracked);
    if (!trace->used || !trace->numbers || missing) {
        token_trace_free(trace);
        return NULL;
    }
    for (size_t i = 0; i < t->descents; i++) trace->used[i] = steps_of(o, i);
    for (size_t i = 0; i < t->states * TRACE_NUMBERS; i++) trace->numbers[i] = NAN;
    return trace;
}

/* The trace of a token, made where it has none; NULL where it is not wanted, any more or at all, or memory ran out. */
static token_trace *trace_at(tracer *t, size_t position)
{
    if (position < t->options.first + t->given || position - t->options.first >= t->options.count || t->failed) return NULL;
    token_trace **place = &t->open[position - t->options.first];
    if (!*place) *place = make(t, position);
    if (!*place) t->failed = true;
    return *place;
}

static float cosine(const float *a, const float *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return (float)(ab / sqrt(aa * bb));
}

static void fill_cosines(const tracer *t, token_trace *trace, size_t first, uint32_t steps)
{
    size_t width = t->options.info->width;
    const float *last = trace->states + (first + steps) * width;
    for (uint32_t k = 0; k <= steps; k++)
        trace->numbers[(first + k) * TRACE_NUMBERS + TRACE_COSINE] = cosine(trace->states + (first + k) * width, last, width);
}

static size_t rank_of(const float *logits, uint32_t vocab, uint32_t token)
{
    size_t rank = 1;
    for (uint32_t i = 0; i < vocab; i++) rank += logits[i] > logits[token] || (logits[i] == logits[token] && i < token);
    return rank;
}

static void read_state(const tracer_options *o, token_trace *trace, size_t reading, const float *logits)
{
    uint32_t vocab = o->info->vocab;
    float logprobs[TRACE_MOST_TRACKED];
    if (o->guesses) (void)logprobs_top(logits, vocab, o->guesses, trace->guesses + reading * trace->n_guesses);
    if (o->n_track) logprobs_of(logits, vocab, o->track, o->n_track, logprobs);
    for (size_t i = 0; i < o->n_track; i++)
        trace->tracked[reading * o->n_track + i] =
            (trace_tracked){.rank = rank_of(logits, vocab, o->track[i]), .logprob = logprobs[i]};
}

void tracer_observe(tracer *t, const descent_observation *seen)
{
    const tracer_options *o = &t->options;
    size_t descent = (size_t)seen->site.layer * o->info->kinds + seen->site.kind;
    token_trace *trace = trace_at(t, seen->site.position);
    if (!trace || trace->complete || seen->site.step > steps_of(o, descent)) return;

    size_t state = t->offset[descent] + seen->site.step;
    float *numbers = trace->numbers + state * TRACE_NUMBERS;
    memcpy(numbers + TRACE_ENERGY, seen->energy, sizeof seen->energy);
    numbers[TRACE_OWN_CHANGE] = seen->own_change;
    numbers[TRACE_HISTORY_CHANGE] = seen->history_change;
    numbers[TRACE_RELATIVE_CHANGE] = seen->relative_change;
    numbers[TRACE_UPDATE_NORM] = seen->update_norm;
    numbers[TRACE_SLOPE] = seen->slope;
    if (seen->logits) read_state(o, trace, trace_reading(o, descent, state), seen->logits);
    if (trace->states && seen->x) memcpy(trace->states + state * o->info->width, seen->x, o->info->width * sizeof *seen->x);
    if (!seen->final) {
        trace->steps++;
        return;
    }
    trace->used[descent] = seen->site.step;
    if (trace->states) fill_cosines(t, trace, t->offset[descent], seen->site.step);
    if (descent + 1 < t->descents) return;
    trace->complete = true;
    free(trace->states);
    trace->states = NULL;
}

token_trace *tracer_next(tracer *t)
{
    while (t->given < t->options.count) {
        token_trace **place = &t->open[t->given], *trace = *place;
        if (!(trace && trace->complete) && !t->ended) return NULL;
        t->given++;
        *place = NULL;
        if (trace) return trace;
    }
    return NULL;
}

void tracer_end(tracer *t)
{
    t->ended = true;
}

/* ---- As JSON ----------------------------------------------------------------------------------------------------- */

static void render_series(json_text *out, const char *name, const float *numbers, size_t which, size_t count)
{
    json_text_put(out, "\"");
    json_text_put(out, name);
    json_text_put(out, "\":[");
    for (size_t k = 0; k < count; k++) {
        if (k > 0) json_text_put(out, ",");
        json_text_real(out, (double)numbers[k * TRACE_NUMBERS + which]);
    }
    json_text_put(out, "]");
}

static void render_guesses(json_text *out, const token_trace *trace, size_t reading, const descent_tokenizer *tokenizer)
{
    json_text_put(out, "[");
    for (size_t i = 0; i < trace->n_guesses; i++) {
        const token_logprob *guess = &trace->guesses[reading * trace->n_guesses + i];
        json_text_put(out, i > 0 ? ",{\"token\":" : "{\"token\":");
        json_text_unsigned(out, guess->token);
        json_text_put(out, ",\"text\":");
        token_name(out, tokenizer, guess->token);
        json_text_put(out, ",\"logprob\":");
        token_logprob_value(out, guess->logprob);
        json_text_put(out, "}");
    }
    json_text_put(out, "]");
}

static void render_tracked(json_text *out, const token_trace *trace, size_t reading, const tracer_options *o)
{
    json_text_put(out, "[");
    for (size_t i = 0; i < o->n_track; i++) {
        const trace_tracked *tracked = &trace->tracked[reading * o->n_track + i];
        json_text_put(out, i > 0 ? ",{\"token\":" : "{\"token\":");
        json_text_unsigned(out, o->track[i]);
        json_text_put(out, ",\"rank\":");
        json_text_unsigned(out, tracked->rank);
        json_text_put(out, ",\"logprob\":");
        token_logprob_value(out, tracked->logprob);
        json_text_put(out, "}");
    }
    json_text_put(out, "]");
}

/* What was read of a descent's states: at t = 0..T, or at its end alone. `first` is its first state of all descents'. */
static void render_readings(json_text *out, const token_trace *trace, const tracer_options *o, size_t descent, size_t first,
                            const descent_tokenizer *tokenizer)
{
    size_t last = trace_reading(o, descent, first + trace->used[descent]), begin = o->info->deepens ? first : last;
    for (size_t i = begin; i <= last && o->guesses; i++) {
        json_text_put(out, i > begin ? "," : ",\"guesses\":[");
        render_guesses(out, trace, i, tokenizer);
        if (i == last) json_text_put(out, "]");
    }
    for (size_t i = begin; i <= last && o->n_track; i++) {
        json_text_put(out, i > begin ? "," : ",\"track\":[");
        render_tracked(out, trace, i, o);
        if (i == last) json_text_put(out, "]");
    }
}

static void render_descent(json_text *out, const tracer_options *o, size_t descent, size_t steps, const float *numbers)
{
    size_t kind = descent % o->info->kinds;
    json_text_put(out, "{\"layer\":");
    json_text_unsigned(out, descent / o->info->kinds);
    json_text_put(out, ",\"kind\":\"");
    json_text_put(out, o->info->kind_names[kind]);
    json_text_put(out, "\",\"steps\":");
    json_text_unsigned(out, steps);
    json_text_put(out, ",\"energy\":{");
    for (uint32_t k = 0; k < o->info->terms[kind]; k++) {
        if (k > 0) json_text_put(out, ",");
        render_series(out, o->info->term_names[kind][k], numbers, TRACE_ENERGY + k, steps + 1);
    }
    json_text_put(out, "},");
    render_series(out, "own_change", numbers, TRACE_OWN_CHANGE, steps);
    json_text_put(out, ",");
    /* Of the step from t to t + 1, known at t + 1. */
    render_series(out, "history_change", numbers + TRACE_NUMBERS, TRACE_HISTORY_CHANGE, steps);
    json_text_put(out, ",");
    render_series(out, "r", numbers, TRACE_RELATIVE_CHANGE, steps);
    json_text_put(out, ",");
    render_series(out, "update_norm", numbers, TRACE_UPDATE_NORM, steps);
    json_text_put(out, ",");
    render_series(out, "slope", numbers, TRACE_SLOPE, steps);
    if (o->states) {
        json_text_put(out, ",");
        render_series(out, "cosine", numbers, TRACE_COSINE, steps + 1);
    }
}

void token_trace_render(json_text *out, const token_trace *trace, const tracer_options *o, const descent_tokenizer *tokenizer)
{
    json_text_put(out, "{\"position\":");
    json_text_unsigned(out, trace->position);
    json_text_put(out, ",\"steps\":");
    json_text_unsigned(out, trace->steps);
    json_text_put(out, ",\"descents\":[");
    size_t first = 0;
    for (size_t i = 0; i < (size_t)o->info->layers * o->info->kinds; i++) {
        if (i > 0) json_text_put(out, ",");
        render_descent(out, o, i, trace->used[i], trace->numbers + first * TRACE_NUMBERS);
        if (trace->complete) render_readings(out, trace, o, i, first, tokenizer);
        json_text_put(out, "}");
        first += (size_t)steps_of(o, i) + 1;
    }
    json_text_put(out, "]");
}

void token_trace_render_reading(json_text *out, const token_trace *trace, const tracer_options *o,
                                const descent_tokenizer *tokenizer)
{
    size_t last = (size_t)o->info->layers * o->info->kinds - 1;
    size_t reading = trace_reading(o, last, trace_first_state(o, last) + trace->used[last]);
    json_text_put(out, ",\"guesses\":");
    if (trace->complete && o->guesses)
        render_guesses(out, trace, reading, tokenizer);
    else
        json_text_put(out, "[]");
    json_text_put(out, ",\"track\":");
    if (trace->complete && o->n_track)
        render_tracked(out, trace, reading, o);
    else
        json_text_put(out, "[]");
}
