/* trace.h: the descents of a text's tokens, as they are observed: energies, changes, slopes, update norms, and what was read
 * from their states on the way: of a model that deepens (one block, applied T times) at every t = 0..T, elsewhere where a
 * sub-layer ends. A tracer belongs to the thread that steps the batch; what it hands out belongs to whoever took it.
 */
#ifndef DESCENT_SERVER_TRACE_H
#define DESCENT_SERVER_TRACE_H

#include "json_text.h"
#include "logprobs.h"
#include "models.h"

enum { TRACE_MOST_TRACKED = 64 };

/* What is known of a state x(t), t = 0..T; NaN where it was not observed or does not exist. The changes are those of the step
 * from t to t + 1, but history_change, which is of the step before: see descent_observation. */
enum trace_number {
    TRACE_ENERGY, /* DESCENT_MAX_TERMS of them */
    TRACE_OWN_CHANGE = TRACE_ENERGY + DESCENT_MAX_TERMS,
    TRACE_HISTORY_CHANGE,
    TRACE_RELATIVE_CHANGE,
    TRACE_UPDATE_NORM,
    TRACE_SLOPE,
    TRACE_COSINE, /* of x(t) and x(T) */
    TRACE_NUMBERS
};

typedef struct trace_tracked { /* a token somebody follows, in the distribution read from a state */
    size_t rank;               /* 1: the likeliest; equals rank by their ids */
    float logprob;
} trace_tracked;

typedef struct token_trace {
    size_t position;
    uint32_t steps;         /* row steps observed */
    uint32_t *used;         /* [descents] steps that each took: its T, fewer where it stopped early */
    float *numbers;         /* the descents one behind the other, room for [T + 1][TRACE_NUMBERS] of each */
    float *states;          /* x(t) of all descents, for the cosines, until the last is there; NULL: not asked for */
    bool complete;          /* its last state was observed */
    token_logprob *guesses; /* [readings][n_guesses] likeliest next tokens */
    size_t n_guesses;
    trace_tracked *tracked; /* [readings][tracer_options.n_track] */
    struct token_trace *next;
} token_trace;

typedef struct tracer_options {
    const descent_model_info *info;
    descent_depth depth;
    size_t first, count;   /* the positions that are traced */
    bool states;           /* cosines too */
    size_t guesses;        /* how many likeliest tokens of each state that is read, and ... */
    const uint32_t *track; /* ... tokens to follow, [n_track]; kept by reference. Both 0: nothing is read */
    size_t n_track;
} tracer_options;

typedef struct tracer tracer;

/* Numbers a trace of these options keeps, at most; saturates. */
uint64_t tracer_numbers(const tracer_options *options);
/* Numbers of states kept at once, at most, while a prompt is computed in chunks. */
uint64_t tracer_state_numbers(const tracer_options *options);
/* Where, among all states of a token, those of a descent begin; and which of its readings state k is, the last of its descent
 * where the model does not deepen. */
size_t trace_first_state(const tracer_options *options, size_t descent);
size_t trace_reading(const tracer_options *options, size_t descent, size_t k);
/* DESCENT_OBSERVE_... that it needs. */
int tracer_flags(const tracer_options *options);
tracer *tracer_create(const tracer_options *options); /* NULL without memory */
void tracer_destroy(tracer *t);
void tracer_observe(tracer *t, const descent_observation *seen);
/* The next token in order whose descent is over; NULL: not yet, or none. */
token_trace *tracer_next(tracer *t);
void tracer_end(tracer *t);          /* nothing more is observed: what is begun is over */
bool tracer_failed(const tracer *t); /* memory ran out: positions are missing */

void token_trace_free(token_trace *list);
/* {"position", "steps", "descents": [...]} without its closing brace; what was read is named by `tokenizer` (may be NULL). */
void token_trace_render(json_text *out, const token_trace *trace, const tracer_options *options,
                        const descent_tokenizer *tokenizer);
/* ,"guesses":[...],"track":[...]: of its last state. */
void token_trace_render_reading(json_text *out, const token_trace *trace, const tracer_options *options,
                                const descent_tokenizer *tokenizer);

#endif
