/* trace.h: the descents of a text's tokens, as they are observed: energies, changes, update norms, and what was read from their
 * final states. A tracer belongs to the thread that steps the batch; what it hands out belongs to whoever took it.
 */
#ifndef DESCENT_SERVER_TRACE_H
#define DESCENT_SERVER_TRACE_H

#include "json_text.h"
#include "logprobs.h"
#include "models.h"

/* What is known of a state x(t), t = 0..T; NaN where it was not observed or does not exist. The changes are those of the step
 * from t to t + 1, but history_change, which is of the step before: see descent_observation. */
enum trace_number {
    TRACE_ENERGY, /* DESCENT_MAX_TERMS of them */
    TRACE_OWN_CHANGE = TRACE_ENERGY + DESCENT_MAX_TERMS,
    TRACE_HISTORY_CHANGE,
    TRACE_RELATIVE_CHANGE,
    TRACE_UPDATE_NORM,
    TRACE_COSINE, /* of x(t) and x(T) */
    TRACE_NUMBERS
};

typedef struct trace_tracked { /* a token somebody follows, in the distribution read from a final state */
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
    bool read;              /* guesses and tracked are there */
    token_logprob *guesses; /* [n_guesses] likeliest next tokens */
    size_t n_guesses;
    trace_tracked *tracked; /* [tracer_options.n_track] */
    struct token_trace *next;
} token_trace;

typedef struct tracer_options {
    const descent_model_info *info;
    descent_depth depth;
    size_t first, count; /* the positions that are traced */
    bool states;         /* cosines too */
    size_t guesses;      /* how many likeliest tokens of each position, and ... */
    const uint32_t
        *track; /* ... tokens to follow, [n_track]; kept by reference. Both 0: tokens are not waiting for a reading */
    size_t n_track;
} tracer_options;

typedef struct tracer tracer;

/* Numbers a trace of these options keeps, at most; saturates. */
uint64_t tracer_numbers(const tracer_options *options);
/* Numbers of states kept at once, at most, while a prompt is computed in chunks. */
uint64_t tracer_state_numbers(const tracer_options *options);
/* DESCENT_OBSERVE_... that it needs. */
int tracer_flags(const tracer_options *options);
tracer *tracer_create(const tracer_options *options); /* NULL without memory */
void tracer_destroy(tracer *t);
void tracer_observe(tracer *t, const descent_observation *seen);
void tracer_read(tracer *t, size_t position, const float *logits);
/* The next token in order whose descent is over and, where that is asked for, read; NULL: not yet, or none. */
token_trace *tracer_next(tracer *t);
void tracer_end(tracer *t);          /* nothing more is observed: what is begun is over */
bool tracer_failed(const tracer *t); /* memory ran out: positions are missing */

void token_trace_free(token_trace *list);
/* {"position", "steps", "descents": [...]} without its closing brace. */
void token_trace_render(json_text *out, const token_trace *trace, const tracer_options *options);
void token_trace_render_reading(json_text *out, const token_trace *trace, const tracer_options *options,
                                const descent_tokenizer *tokenizer);

#endif
