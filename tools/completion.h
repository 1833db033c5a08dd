/* completion.h: one text continued on a terminal, into a pipe or into JSON: a generation with its stream of text, stop
 * strings, timings and trace. run calls it once, its interactive mode once a line. */
#ifndef DESCENT_TOOLS_COMPLETION_H
#define DESCENT_TOOLS_COMPLETION_H

#include "choose.h"
#include "input.h"
#include "session.h"
#include "trace.h"

typedef struct completion_options {
    descent_depth depth;
    descent_sampling sampling;
    int draft_steps;     /* as in descent_generation_options */
    uint32_t candidates; /* texts to generate, of which one is given; 0: no choosing */
    choose_rule choose_by;
    size_t most;   /* tokens to generate; 0: the rest of the context */
    cli_list stop; /* the text ends before the first of these */
    bool trace;
    bool as_ids; /* the stream is token ids with commas between, not text */
    bool echo;   /* the prompt comes first */
    bool stream; /* to stdout while it is made; otherwise only kept in the completion */
} completion_options;

typedef enum completion_end {
    COMPLETION_FAILED, /* a message is on stderr */
    COMPLETION_STOP,   /* EOS or a stop string */
    COMPLETION_LENGTH,
    COMPLETION_INTERRUPTED
} completion_end;

typedef struct completion {
    completion_end end;
    text_buffer text; /* what was or would have been streamed */
    uint32_t *tokens; /* generated, EOS not among them */
    size_t count;
    size_t prompt_count, reused;
    size_t drafted, accepted; /* as in descent_generation_report */
    uint64_t row_steps;
    double prompt_seconds, generation_seconds;
    trace steps;    /* empty unless asked for */
    size_t chosen;  /* of several candidates, which this is ... */
    double *scores; /* ... and what each was worth: choose_best; NULL: no choosing. row_steps are those of all */
} completion;

/* Continues `prompt`, which holds at least one token and at most the context. The caller releases *out, which is set in
 * every case. */
void complete(const session *with, const completion_options *options, const uint32_t *prompt, size_t count, completion *out);
void completion_release(completion *of);

/* EXIT_SUCCESS, or the exit code after a message: is there a prompt, and does it fit? */
int completion_check_prompt(const session *with, size_t count);

/* One line on stderr: how many tokens, how fast, at which T. */
void completion_print_summary(const session *with, const completion_options *options, const completion *of);

#endif
