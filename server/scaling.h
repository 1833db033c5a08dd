/* scaling.h: a scaling experiment between its admission and its answer. Loop thread only, but for what schedulers' threads
 * write into a slot and its measures, and for the summing up, which is done on another thread.
 *
 *     endpoint -> request_read -> scaling: tasks, as many at once as it has slots, in the scheduler's background
 *              -> measures fill -> summed up to rows: now and then where they are streamed, and at the end -> answer
 *
 * A *task* is a sweep (a window of a text, a choice of a question) or the answering of one question at one depth. Beside
 * job.h's jobs this is the other kind of work an exchange may have; what holds of theirs (who leaves, limits of time, the end
 * of a drain) holds here.
 */
#ifndef DESCENT_SERVER_SCALING_H
#define DESCENT_SERVER_SCALING_H

#include "json_text.h"
#include "rapl.h"
#include "service.h"

#include <pthread.h>
#include <stdatomic.h>

enum { SCALING_ID_SIZE = 40 };

/* A task on its way. What a scheduler's thread writes is the loop's once `ended`. */
typedef struct scaling_slot {
    scaling *of;
    size_t task;
    bool taken; /* it runs; the loop's */
    descent_generation *generation;
    descent_measure *measures; /* of a sweep: where its measures go */
    /* Under the experiment's lock: */
    bool ended;
    descent_generation_report report; /* of a sweep: end, status, row_steps, exit_cost, pauses, times */
    bool shared;                      /* of a sweep: descent_sweep_result.shared */
    /* Of an answer: */
    uint32_t *tokens; /* [prompt_count + n_chosen] */
    size_t prompt_count, n_chosen;
    bool holds;               /* it is there, and to be swept; the loop's, as what follows */
    bool chose_end;           /* its last token is EOS */
    descent_code answer_code; /* DESCENT_DIVERGED, or OK */
} scaling_slot;

/* What is summed up, and what comes of it: the loop's, but while `working` another thread's. */
typedef struct scaling_summary {
    uv_work_t work;
    bool *done; /* [n_tasks] as they were */
    size_t n_done;
    bool shared;
    double elapsed, joules;
    json_text rows; /* "[...]": those there is something to say of */
    size_t n_rows;
    api_error error;      /* .status 0: none */
    double seconds;       /* that it took */
    atomic_bool unwanted; /* any thread: nobody is to be answered, so it stops, without rows and without an error */
} scaling_summary;

struct scaling {
    service *service;
    exchange *exchange;
    generation_request request;
    uint64_t number; /* random */
    char id[SCALING_ID_SIZE];
    time_t created;
    uint64_t arrived, began; /* uv_hrtime */

    size_t n_inputs;           /* rows of `measures`: the plan's inputs or, where they are answered, questions */
    descent_measure *measures; /* [n_inputs][n_depths] */
    size_t n_tasks, next;      /* those before `next` were begun */
    bool *done;                /* [n_tasks] */
    size_t n_done;
    uint64_t steps_done; /* of the plan's token_steps */
    scaling_slot *slots; /* [n_slots] */
    size_t n_slots, n_taken;
    bool shared; /* others' rows shared a step with it: its seconds say little */

    /* Questions that are answered: */
    uint32_t *tokens;                            /* the slots' */
    bool answering;                              /* the group's answers are on their way, which is timed; else they are swept */
    double *seconds, *joules;                    /* [n_depths] of answering; NaN: not known */
    uint64_t timed_from, timed_steps, own_steps; /* uv_hrtime; the scheduler's row steps then, and ours since */
    double timed_joules;

    rapl meter;
    scaling_summary summary;
    bool working, final; /* it is being summed up; for the last time */
    bool summed;
    uint64_t said; /* uv_hrtime of the last event */
    bool streaming, gone, answered, late;
    api_error error;             /* .status 0: none */
    log_request log;             /* sums of reports */
    descent_exit_cost exit_cost; /* likewise */
    json_text out;
    pthread_mutex_t lock;
    uv_async_t wake;
    uv_timer_t timer; /* the request's time */
    int handles;      /* open */
    scaling *next_scaling, *previous_scaling;
};

/* ---- scaling_tasks.c --------------------------------------------------------------------------------------------------- */

/* Task i is of input i, or answers question i % n of the depth i / n in the order that this gives: the reference first. */
size_t scaling_depth_at(const scaling_plan *plan, size_t place);
bool scaling_goes_on(const scaling *s); /* nothing has ended it yet */
void scaling_begin(scaling *s);         /* as much as there are slots for, where it goes on */
void scaling_take(scaling *s);          /* what has ended */
void scaling_cancel(scaling *s);        /* what runs */

/* ---- scaling_answer.c ------------------------------------------------------------------------------------------------ */

/* Sums up what s->summary says is done, into its rows. On any thread. */
void scaling_sum_up(scaling *s);
/* The whole answer, or a stream's next event or last one, into s->out; the rows are summary.rows ("[]" where there are none).
 */
void scaling_put_answer(scaling *s);
void scaling_put_event(scaling *s, bool with_rows, bool last);

#endif
