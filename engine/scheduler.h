/* scheduler.h: everybody's generations over one model, as the scheduler's own files see them: scheduler.c, the thread, what
 * comes to it and what is said of it; schedule.c, who holds cache and which rows enter the batch; reading.c, what leaves it. */
#ifndef DESCENT_SCHEDULER_H
#define DESCENT_SCHEDULER_H

#include "generation.h"

#include <pthread.h>

enum { DRAFT_DEPTHS = 4 };

/* Generations that hold no cache, in the order they will. */
typedef struct line {
    descent_generation *first, *last;
    size_t count;
} line;

struct descent_scheduler {
    const descent_model *model;
    descent_page_type page_type;
    uint64_t byte_limit;
    size_t chunk, max_running;
    bool heavy_head; /* reading logits takes as long as steps do */
    descent_model_cost cost;
    descent_status cost_status; /* says why where it could not be counted */

    /* The thread's own. */
    pthread_t thread;
    descent_cache *cache;
    descent_batch *batch;
    descent_generation **running; /* [n_running] in the order they began, those in the background behind the others */
    size_t n_running;
    line lines[2];                     /* the others; [1] in the background */
    const descent_generation *refused; /* there was no room for it, and none has come since; NULL: nobody */
    bool failed_waiting;               /* one in the lines has ended */
    uint64_t turns, sweeps_turn;
    draft_costs draft_costs;
    struct {
        uint32_t total;
        draft_record record;
    } drafted[DRAFT_DEPTHS];      /* what generations of a depth left behind, the newest first */
    bool drafting;                /* some generation's tokens are asked for guesses */
    uint64_t drafts_from;         /* the step from which there is memory for drafts again */
    descent_reading *readings;    /* [most_readings] */
    descent_generation **readers; /* [most_readings] whose they are */
    float *logits;                /* [most_readings][V] */
    size_t most_readings;
    descent_scheduler_state counted; /* steps and pauses: what `state` will say of them */
    double progress;                 /* when it made a step last, or went to work */

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t orders; /* something below has changed */
    line arrivals;
    descent_generation *live; /* every generation, the newest first */
    bool cancels;             /* some generation was cancelled */
    bool stopping;
    bool idle;            /* there is nothing to do: the thread sleeps, or is about to */
    double last_progress; /* as published */
    descent_scheduler_state state;
};

void line_append(line *l, descent_generation *g);
void line_prepend(line *l, descent_generation *g);
void line_remove(line *l, descent_generation *g);

/* Lets waiting generations begin and enrols rows for the next step, pausing whoever must make room. */
void schedule_rows(descent_scheduler *s);
/* Takes memory from the generation that began last: it waits from now on. */
void schedule_pause_last(descent_scheduler *s);
/* Its memory and its place, in the line or among the running, are given back. */
void schedule_remove(descent_scheduler *s, descent_generation *g);

/* Reads the logits that are due and chooses tokens. */
void read_logits(descent_scheduler *s);

#endif
