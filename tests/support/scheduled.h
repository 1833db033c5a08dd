/* scheduled.h: generations through a scheduler, everything that came out of each kept, and the same texts made one alone by
 * sequences and batches, which is what they must be, bit for bit. */
#ifndef TEST_SCHEDULED_H
#define TEST_SCHEDULED_H

#include "descent.h"

#include <pthread.h>

/* What the generations of one test share: the other side of the scheduler's thread. */
typedef struct gathering {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t ended;      /* generations */
    size_t calls;      /* `chosen` and `ended` of all, in the order they came: the next one's number */
    size_t gates_shut; /* generations with a gate that came to it */
    size_t gates_open; /* of those, that may go on */
} gathering;

/* One generation: what it is asked, and what came of it. */
typedef struct scheduled {
    gathering *with;
    descent_generation_options options; /* `user` and `calls` are filled in by scheduled_submit */
    size_t stop_after;                  /* `chosen` returns false for that token (1 the first); 0: never */
    size_t cancel_after;                /* `chosen` cancels with that token */
    size_t cancel_at_read;              /* and with that prompt position read (1 the first) */
    void (*each)(descent_generation *generation, size_t generated); /* called on the scheduler's thread with each `chosen` */
    bool gate;                          /* its first `chosen` waits until gathering_open; then false */
    bool end_gate;                      /* so does its `ended` */
    descent_generation *generation;     /* until it has ended */
    descent_generation *generation_was; /* the same, for ever: nothing but another's `like` */

    uint32_t *tokens; /* [generated] */
    float *logits;    /* [generated][V] */
    uint32_t *steps;  /* [prompt_read + generated] of the tokens that logits were read from, in the order they came */
    size_t generated, vocab;
    float *prompt_logits; /* [prompt_read][V] */
    size_t prompt_read;
    size_t ends;                  /* calls of `ended` */
    size_t first_call, last_call; /* numbers of the first `chosen` and of `ended` among all calls */
    descent_generation_report report;
} scheduled;

void gathering_begin(gathering *with);
void gathering_finish(gathering *with);
/* Waits until `count` generations have ended. */
void gathering_wait(gathering *with, size_t count);
/* Waits until a generation with a gate stands in its callback: the scheduler's thread does nothing until gathering_open. */
void gathering_wait_for_gate(gathering *with);
void gathering_open(gathering *with);

descent_scheduler *scheduled_start(const descent_model *model, const descent_scheduler_options *options);
/* Destroys one that has nothing to do and in which nobody holds memory. Returns what it said of itself. */
descent_scheduler_state scheduled_stop(descent_scheduler *scheduler);
/* Submits it, which must succeed. */
void scheduled_submit(descent_scheduler *scheduler, const descent_model *model, gathering *with, scheduled *s);
/* Cancels it from this thread, unless it has ended. */
void scheduled_cancel(scheduled *s);
void scheduled_free(scheduled *s);

/* The text that the options ask for, made by one sequence in a cache of its own, a token at a time. */
scheduled scheduled_alone(const descent_model *model, descent_page_type page_type, const descent_generation_options *options);
/* The same tokens from the same logits, each once, and a report that fits. */
void compare_scheduled(const scheduled *got, const scheduled *expected);

#endif
