/* parallel.c: a team of threads in one OpenMP region, and what its master shares with it. Owns the region, how threads wait
 * and who does which part. Called by products.c, whose callers' arrays the parts work on; batch.c owns the team.
 *
 * A share is a *phase*: its number is odd while there are parts to take and even in between. A worker that sees an odd number
 * counts itself in, looks again, takes parts and counts itself out. The master takes parts as well until none is left, makes
 * the number even and waits until nobody is counted in: then every part is done, and a worker that had only just seen the odd
 * number finds it gone. */
#include "parallel.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { LINE = 64 };                     /* bytes that caches pass between cores */
enum { SPINS = 200, SPINS_A_LOOK = 8 }; /* some microseconds; between looks, so that the line stays the writer's */
enum { NANOSECONDS_AWAKE = 200000 };    /* of giving way, before a worker sleeps */

/* A thread's parts: it takes them from the front, and so does who has none left. */
typedef struct range {
    _Alignas(LINE) atomic_size_t next;
    size_t end;
} range;

struct team {
    unsigned threads;
    unsigned workers;    /* of them, once started */
    bool tried, started; /* the region */
    pthread_t opener;    /* the thread that opened it, and is its first */
    team_part part;      /* the phase's, written before it begins */
    const void *arg;
    range *ranges;              /* [threads] */
    void (*errand)(void *user); /* NULL: none */
    void *errand_user;
    _Alignas(LINE) atomic_uint phase;
    atomic_bool leaving, errand_waits;
    atomic_uint asleep, awake;
    _Alignas(LINE) atomic_uint inside; /* workers that may be taking parts */
    pthread_mutex_t lock;              /* for sleeping only */
    pthread_cond_t called;
};

/* ---- Making and unmaking --------------------------------------------------------------------------------------- */

static void *lines_alloc(size_t bytes)
{
    return aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
}

team *team_create(unsigned threads)
{
    team *t = lines_alloc(sizeof *t);
    range *ranges = t ? lines_alloc(threads * sizeof *ranges) : NULL;
    if (!ranges) {
        free(t);
        return NULL;
    }
    t->threads = threads;
    t->workers = 0;
    t->tried = t->started = false;
    t->part = NULL;
    t->arg = t->errand_user = NULL;
    t->errand = NULL;
    t->ranges = ranges;
    for (unsigned i = 0; i < threads; i++) {
        atomic_init(&ranges[i].next, 0);
        ranges[i].end = 0;
    }
    atomic_init(&t->phase, 0);
    atomic_init(&t->leaving, false);
    atomic_init(&t->errand_waits, false);
    atomic_init(&t->asleep, 0);
    atomic_init(&t->awake, 0);
    atomic_init(&t->inside, 0);
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->called, NULL);
    return t;
}

unsigned team_threads(const team *t)
{
    return t->threads;
}

/* ---- Waiting --------------------------------------------------------------------------------------------------- */

static inline void spin(void)
{
    for (int i = 0; i < SPINS_A_LOOK; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
}

static uint64_t nanoseconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Whoever comes first runs it. */
static void take_errand(team *t)
{
    if (atomic_load(&t->errand_waits) && atomic_exchange(&t->errand_waits, false)) t->errand(t->errand_user);
}

/* There is a phase other than `done`, or the team parts. */
static bool called(team *t, unsigned done)
{
    unsigned phase = atomic_load(&t->phase);
    return (phase % 2 == 1 && phase != done) || atomic_load(&t->leaving);
}

/* Is awake no more before it looks for an errand a last time, as the master sends one before it looks who is awake. */
static void sleep_until_called(team *t, unsigned done)
{
    (void)atomic_fetch_sub(&t->awake, 1);
    take_errand(t);
    (void)pthread_mutex_lock(&t->lock);
    (void)atomic_fetch_add(&t->asleep, 1);
    while (!called(t, done)) (void)pthread_cond_wait(&t->called, &t->lock);
    (void)atomic_fetch_sub(&t->asleep, 1);
    (void)pthread_mutex_unlock(&t->lock);
    (void)atomic_fetch_add(&t->awake, 1);
}

static void wait_until_called(team *t, unsigned done)
{
    for (int i = 0; i < SPINS / SPINS_A_LOOK; i++, spin()) {
        if (called(t, done)) return;
        take_errand(t);
    }
    for (uint64_t since = nanoseconds(); nanoseconds() - since < NANOSECONDS_AWAKE; (void)sched_yield())
        for (int i = 0; i < SPINS / SPINS_A_LOOK; i++, spin()) {
            if (called(t, done)) return;
            take_errand(t);
        }
    sleep_until_called(t, done);
}

/* After the phase or `leaving` has changed: who counted itself asleep before has not seen it, who does after will. */
static void wake(team *t)
{
    if (atomic_load(&t->asleep) == 0) return;
    (void)pthread_mutex_lock(&t->lock);
    (void)pthread_cond_broadcast(&t->called);
    (void)pthread_mutex_unlock(&t->lock);
}

/* ---- Parts ----------------------------------------------------------------------------------------------------- */

/* Its own range first, then what others have left of theirs. */
static void take_parts(team *t, unsigned thread)
{
    for (unsigned i = 0, k = thread; i < t->threads; i++, k = k + 1 < t->threads ? k + 1 : 0) {
        range *r = &t->ranges[k];
        while (atomic_load_explicit(&r->next, memory_order_relaxed) < r->end) {
            size_t part = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
            if (part < r->end) t->part(t->arg, part, thread);
        }
    }
}

static void stand_by(team *t, unsigned thread)
{
    unsigned done = 0;
    (void)atomic_fetch_add(&t->awake, 1); /* OpenMP may have made fewer threads than it was asked for */
    while (true) {
        wait_until_called(t, done);
        unsigned phase = atomic_load(&t->phase);
        if (phase % 2 == 1 && phase != done) {
            (void)atomic_fetch_add(&t->inside, 1);
            if (atomic_load(&t->phase) == phase) take_parts(t, thread);
            (void)atomic_fetch_sub(&t->inside, 1);
            done = phase;
        } else if (atomic_load(&t->leaving)) {
            return;
        }
    }
}

/* ---- The region ------------------------------------------------------------------------------------------------- */

static void *open_region(void *arg)
{
    team *t = arg;
#pragma omp parallel num_threads(t->workers)
    stand_by(t, (unsigned)omp_get_thread_num() + 1);
    return NULL;
}

/* The process's signals are for its other threads. OMP_THREAD_LIMIT counts the master. */
static void start(team *t)
{
    unsigned limit = (unsigned)omp_get_thread_limit();
    sigset_t all, before;
    t->tried = true;
    t->workers = (t->threads < limit ? t->threads : limit) - 1;
    if (t->workers == 0) return;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    t->started = pthread_create(&t->opener, NULL, open_region, t) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void team_destroy(team *t)
{
    if (!t) return;
    if (t->started) {
        atomic_store(&t->leaving, true);
        wake(t);
        (void)pthread_join(t->opener, NULL);
    }
    take_errand(t);
    (void)pthread_cond_destroy(&t->called);
    (void)pthread_mutex_destroy(&t->lock);
    free(t->ranges);
    free(t);
}

/* ---- A phase ---------------------------------------------------------------------------------------------------- */

static void share(team *t, size_t parts, team_part part, const void *arg)
{
    t->part = part;
    t->arg = arg;
    for (unsigned i = 0; i < t->threads; i++) {
        atomic_store_explicit(&t->ranges[i].next, parts * i / t->threads, memory_order_relaxed);
        t->ranges[i].end = parts * (i + 1) / t->threads;
    }
    (void)atomic_fetch_add(&t->phase, 1);
    wake(t);
    take_parts(t, 0);
    (void)atomic_fetch_add(&t->phase, 1);
    for (int i = 0; atomic_load(&t->inside) > 0; i++, spin())
        if (i >= SPINS) (void)sched_yield(); /* one in the middle of a part may have lost its core */
}

void team_share(team *t, size_t parts, team_part part, const void *arg)
{
    if (parts > 1 && t->threads > 1 && !t->tried) start(t);
    if (parts > 1 && t->started)
        share(t, parts, part, arg);
    else
        for (size_t p = 0; p < parts; p++) part(arg, p, 0);
}

/* ---- Errands ---------------------------------------------------------------------------------------------------- */

void team_set_errand(team *t, void (*run)(void *user), void *user)
{
    t->errand = run;
    t->errand_user = user;
}

void team_send_errand(team *t)
{
    if (!t->errand) return;
    atomic_store(&t->errand_waits, true);
    if (atomic_load(&t->awake) == 0) take_errand(t);
}
