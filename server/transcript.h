/* transcript.h: the record of one text as it is generated: a scheduler's thread writes it, token by token; the loop thread
 * takes what may be sent. Between the two stands one mutex, held for the moving of pointers and of a token's few bytes.
 *
 *     chosen -> logprobs -> text_stream -> held until its text is certain -> record | taken whole by the loop thread
 */
#ifndef DESCENT_SERVER_TRANSCRIPT_H
#define DESCENT_SERVER_TRANSCRIPT_H

#include "logprobs.h"
#include "request.h"
#include "text_stream.h"
#include "trace.h"

#include <pthread.h>

/* A token of a text, generated or of an echoed prompt. */
typedef struct token_entry {
    uint32_t token;
    uint32_t steps; /* row steps of the state it was predicted from; 0: none, it is the first */
    float logprob;  /* NaN: none */
    uint32_t n_top; /* likeliest tokens at its place: record.top from first_top on */
    size_t first_top;
    size_t text_offset; /* code points of the text before it */
} token_entry;

/* What goes out together: text up to `bytes`, tokens up to `tokens`. */
typedef struct text_piece {
    size_t bytes, tokens;
} text_piece;

typedef struct record {
    token_entry *tokens; /* none where neither logprobs nor their mean are asked for */
    size_t n_tokens, tokens_room;
    token_logprob *top;
    size_t n_top, top_room;
    char *text; /* valid UTF-8 */
    size_t bytes, text_room;
    text_piece *pieces; /* an echoed prompt is the first one of a text */
    size_t n_pieces, pieces_room;
    uint64_t *times; /* uv_hrtime of every token chosen */
    size_t n_times, times_room;
    token_trace *traces, **last_trace; /* a list */
} record;

/* The likeliest tokens in place of an entry, entry->n_top of them; NULL where there are none. */
const token_logprob *record_top(const record *r, const token_entry *entry);
void record_release(record *r);
/* Room for the text of so many tokens more, so that who adds it need not ask for memory. False without memory. */
bool record_reserve(record *r, size_t tokens);
void record_clear(record *r); /* nothing in it; its memory stays */

typedef struct transcript_options {
    const generation_request *request;
    size_t prompt;               /* which of its prompts */
    bool live;                   /* what comes is taken as it comes; otherwise once, at the end */
    size_t at_once;              /* of a live one: tokens that there is room for from the start */
    bool score;                  /* logprobs of tokens are needed though none are asked for */
    const tracer_options *trace; /* copied; NULL: none */
    states_record *states;       /* of x and g that are gathered; NULL: none */
    candidate *candidate;        /* whose energies are gathered, on the scheduler's thread; NULL: none */
    /* There is something to take; `at_once`: the first of what was chosen, or the end. Called with the mutex held, so that the
     * transcript is still there. */
    void (*wake)(void *user, bool at_once);
    void *user;
} transcript_options;

typedef struct transcript {
    transcript_options options;
    tracer_options trace_options;
    /* The scheduler's. */
    text_stream *stream;      /* NULL: the model has no tokenizer, and texts are empty */
    descent_decoder *offsets; /* counts code points; NULL: no logprobs asked for */
    size_t code_points;
    tracer *tracer;
    char *echo; /* the prompt's text, until it goes out */
    size_t echo_bytes;
    record held; /* tokens and top only */
    bool begun;  /* the prompt went out, where it was asked for */
    bool said;   /* and something behind it */
    bool stopped;
    /* Under `lock`. */
    pthread_mutex_t lock;
    record ready;
    uint64_t first_time; /* of the first token chosen; 0: none yet */
    bool ended;
    descent_generation_report report; /* once ended */
    descent_status status;            /* what went wrong here, on the scheduler's thread; then the text was stopped */
} transcript;

/* NO_MEMORY, or what the tokenizer says. The request outlives the transcript. */
descent_code transcript_open(transcript *t, const transcript_options *options, descent_status *status);
void transcript_close(transcript *t);
bool transcript_reads_prompt(const transcript *t); /* descent_generation_options.read_prompt */

/* descent_generation_calls; `user` is the transcript. */
bool transcript_chosen(void *user, const descent_choice *choice);
void transcript_ended(void *user, const descent_generation_report *report);
void transcript_observe(void *user, const descent_observation *seen);

/* The loop thread's. Takes what is ready into *into, which is empty; of a transcript that is not live nothing before its end.
 * True when it has ended: `report` and `status` are final, and no scheduler touches it any more. */
bool transcript_take(transcript *t, record *into);
/* Cancels the generation where it has not ended yet. */
void transcript_cancel(transcript *t, descent_generation *generation);
uint64_t transcript_first_time(transcript *t);

#endif
