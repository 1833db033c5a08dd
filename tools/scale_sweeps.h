/* scale_sweeps.h: many sweeps in flight on a scheduler, taken out by one thread as they finish. */
#ifndef DESCENT_TOOLS_SCALE_SWEEPS_H
#define DESCENT_TOOLS_SCALE_SWEEPS_H

#include "session.h"

#include <pthread.h>

typedef struct sweep_pool sweep_pool;

/* One sweep. The caller sets what it is of, and finds measures and end when sweep_pool_next gives it back. */
typedef struct pooled_sweep {
    descent_sweep_options options; /* but for experiment, done and user, which are the pool's */
    descent_measure *measures;     /* [options.n_depths] */
    descent_generation_end end;
    descent_status status;
    bool shared;
    void *owner; /* the caller's */

    sweep_pool *pool;
    descent_generation *running; /* under the lock: may be cancelled */
    bool over;
    struct pooled_sweep *next, *previous; /* of those in flight, or (next) of those over */
} pooled_sweep;

struct sweep_pool {
    descent_scheduler *scheduler;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pooled_sweep *in_flight, *over, **last_over;
    size_t n_in_flight;
};

void sweep_pool_open(sweep_pool *pool, descent_scheduler *scheduler);
/* Once everything has been given back. */
void sweep_pool_close(sweep_pool *pool);
/* The sweep lives until it is given back. */
descent_code sweep_pool_submit(sweep_pool *pool, pooled_sweep *sweep, descent_status *status);
/* Waits for the next one that is over, at most some 50 ms. NULL where none came. */
pooled_sweep *sweep_pool_next(sweep_pool *pool);
/* What is in flight ends soon, and is given back as any other. */
void sweep_pool_cancel(sweep_pool *pool);

#endif
