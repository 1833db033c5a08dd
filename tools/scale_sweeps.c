/* scale_sweeps.c: see scale_sweeps.h. `done` runs on the scheduler's thread; all else on the caller's. The lock is never held
 * while the scheduler is called to take on a sweep, only while it is told to cancel one, whose end then waits for the lock. */
#include "scale_sweeps.h"

#include <string.h>
#include <time.h>

void sweep_pool_open(sweep_pool *pool, descent_scheduler *scheduler)
{
    *pool = (sweep_pool){.scheduler = scheduler};
    pool->last_over = &pool->over;
    (void)pthread_mutex_init(&pool->lock, NULL);
    (void)pthread_cond_init(&pool->changed, NULL);
}

static void enlist(sweep_pool *pool, pooled_sweep *sweep)
{
    sweep->next = pool->in_flight;
    sweep->previous = NULL;
    if (sweep->next) sweep->next->previous = sweep;
    pool->in_flight = sweep;
    pool->n_in_flight++;
}

static void delist(sweep_pool *pool, pooled_sweep *sweep)
{
    if (sweep->previous) sweep->previous->next = sweep->next;
    if (sweep->next) sweep->next->previous = sweep->previous;
    if (pool->in_flight == sweep) pool->in_flight = sweep->next;
    sweep->next = sweep->previous = NULL;
    pool->n_in_flight--;
}

static void done(void *user, const descent_sweep_result *result)
{
    pooled_sweep *sweep = user;
    sweep_pool *pool = sweep->pool;
    (void)pthread_mutex_lock(&pool->lock);
    sweep->end = result->end;
    sweep->status = result->status;
    sweep->shared = result->shared;
    if (result->end == DESCENT_END_LENGTH)
        memcpy(sweep->measures, result->measures, result->n_depths * sizeof *sweep->measures);
    sweep->running = NULL;
    sweep->over = true;
    delist(pool, sweep);
    *pool->last_over = sweep;
    pool->last_over = &sweep->next;
    (void)pthread_cond_signal(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
}

descent_code sweep_pool_submit(sweep_pool *pool, pooled_sweep *sweep, descent_status *status)
{
    descent_generation *running;
    sweep->pool = pool;
    sweep->over = false;
    sweep->running = NULL;
    sweep->options.experiment = 1;
    sweep->options.done = done;
    sweep->options.user = sweep;
    (void)pthread_mutex_lock(&pool->lock);
    enlist(pool, sweep);
    (void)pthread_mutex_unlock(&pool->lock);
    descent_code code = descent_scheduler_sweep(pool->scheduler, &sweep->options, &running, status);
    (void)pthread_mutex_lock(&pool->lock);
    if (code != DESCENT_OK)
        delist(pool, sweep);
    else if (!sweep->over)
        sweep->running = running;
    (void)pthread_mutex_unlock(&pool->lock);
    return code;
}

/* With the lock held. */
static void wait_a_little(sweep_pool *pool)
{
    const long at_most = 50 * 1000 * 1000; /* nanoseconds */
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += at_most;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&pool->changed, &pool->lock, &until);
}

pooled_sweep *sweep_pool_next(sweep_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    if (!pool->over && pool->n_in_flight) wait_a_little(pool);
    pooled_sweep *sweep = pool->over;
    if (sweep) {
        pool->over = sweep->next;
        if (!pool->over) pool->last_over = &pool->over;
        sweep->next = NULL;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return sweep;
}

void sweep_pool_cancel(sweep_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    for (pooled_sweep *sweep = pool->in_flight; sweep; sweep = sweep->next)
        if (sweep->running) descent_generation_cancel(sweep->running);
    (void)pthread_mutex_unlock(&pool->lock);
}

void sweep_pool_close(sweep_pool *pool)
{
    (void)pthread_cond_destroy(&pool->changed);
    (void)pthread_mutex_destroy(&pool->lock);
}
