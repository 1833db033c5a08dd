/* scheduler.c: the thread that runs everybody's generations, and the boundary to the other threads. Owns the lock, the
 * arrivals, the list of all generations and the picture that others may ask for.
 *
 * The thread goes round: take what arrived or was cancelled; enrol rows (schedule.c); one step; read logits and choose tokens
 * (reading.c); bury who has ended. The lock is held only to take and to publish, never during a step or a callback, so nobody
 * who submits, cancels or asks waits for arithmetic. With nothing to do for a while it sleeps. */
#include "scheduler.h"

#include "batch.h"
#include "exit.h"
#include "history.h"
#include "motion.h"
#include "sequence.h"
#include "solver.h"
#include "status.h"
#include "sweep.h"

#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_CHUNK = 128, MOST_CHUNK = 16384, DEFAULT_RUNNING = 64, MOST_RUNNING = 4096 };
enum { MOST_READINGS = 128, MOST_LOGITS = 1 << 24 }; /* read at once; 64 MiB of logits */
static const double seconds_awake = 500e-6;          /* with nothing to do, before the thread sleeps */

/* ---- Every generation -------------------------------------------------------------------------------------------- */

static void live_add(descent_scheduler *s, descent_generation *g)
{
    g->live_after = NULL;
    g->live_before = s->live;
    if (s->live) s->live->live_after = g;
    s->live = g;
}

static void live_remove(descent_scheduler *s, descent_generation *g)
{
    *(g->live_after ? &g->live_after->live_before : &s->live) = g->live_before;
    if (g->live_before) g->live_before->live_after = g->live_after;
}

/* The generation that g is like, where it still lives and g would find its pages. `like` may be long gone, so that it is only
 * compared until it has been met among the living. */
static descent_generation *find_like(const descent_scheduler *s, const descent_generation *like, const descent_generation *g)
{
    descent_generation *l = s->live;
    while (l && l != like) l = l->live_before;
    if (!l || l->background > g->background || g->options.no_sharing || l->read_prompt || l->observe || l->sweep) return NULL;
    bool same = l->prompt_count == g->prompt_count && l->options.share_group == g->options.share_group &&
                !memcmp(&l->options.depth, &g->options.depth, sizeof g->options.depth) &&
                motions_equal(&l->options.motion, &g->options.motion) &&
                solvers_equal(&l->options.solver, &g->options.solver) && exits_equal(&l->options.exit, &g->options.exit) &&
                histories_equal(&l->options.history, &g->options.history) &&
                !memcmp(l->tokens, g->tokens, g->prompt_count * sizeof *g->tokens);
    return same ? l : NULL;
}

/* Nobody comes to wait for one in the background, which waits for everybody itself, but by another there. */
static void pass_on(line *l, const descent_generation *gone, descent_generation **heir)
{
    for (descent_generation *g = l->first; g; g = g->next) {
        if (g->like != gone) continue;
        g->like = *heir && (*heir)->background <= g->background ? *heir : NULL;
        if (g->like)
            g->like->followers++;
        else if (!gone->prompt_done)
            *heir = g;
    }
}

/* Those that waited for the prompt of one that is gone now wait for the first of them, if it had not computed it. */
static void leave_followers(descent_scheduler *s, const descent_generation *gone)
{
    descent_generation *heir = NULL;
    if (gone->followers == 0) return;
    pass_on(&s->lines[0], gone, &heir);
    pass_on(&s->lines[1], gone, &heir);
    pass_on(&s->arrivals, gone, &heir);
}

/* ---- The round --------------------------------------------------------------------------------------------------- */

/* Under the lock. */
static void publish(descent_scheduler *s)
{
    s->state = s->counted;
    s->last_progress = s->progress;
    s->state.running = s->n_running;
    s->state.waiting = s->lines[0].count + s->lines[1].count + s->arrivals.count;
    s->state.rows = descent_batch_rows(s->batch);
    s->state.cache = descent_cache_describe(s->cache);
    s->idle = s->state.running + s->state.waiting == 0;
}

static void accept_arrivals(descent_scheduler *s)
{
    descent_generation *g;
    while ((g = s->arrivals.first) != NULL) {
        line_remove(&s->arrivals, g);
        line_append(&s->lines[g->background], g);
    }
}

/* Under the lock, which others may take meanwhile. Who asks again as soon as it is answered finds the thread awake, since to be
 * woken takes tens of microseconds; a core that somebody else wants is theirs. */
static void await_orders(descent_scheduler *s)
{
    double since = monotonic_seconds();
    while (s->idle && !s->stopping && monotonic_seconds() - since < seconds_awake) {
        (void)pthread_mutex_unlock(&s->lock);
        (void)sched_yield();
        (void)pthread_mutex_lock(&s->lock);
    }
    while (s->idle && !s->stopping) (void)pthread_cond_wait(&s->orders, &s->lock);
}

/* Waits until there is something to do and takes it. *cancels: some generation was cancelled. False: it is all over. */
static bool take_orders(descent_scheduler *s, bool *cancels)
{
    (void)pthread_mutex_lock(&s->lock);
    publish(s);
    bool nobody = s->n_running + s->lines[0].count + s->lines[1].count == 0;
    await_orders(s);
    accept_arrivals(s);
    if (nobody) s->progress = s->last_progress = monotonic_seconds();
    *cancels = s->cancels || s->stopping;
    s->cancels = false;
    bool stopping = s->stopping, goes_on = !stopping || s->lines[0].count + s->lines[1].count + s->n_running > 0;
    (void)pthread_mutex_unlock(&s->lock);
    for (descent_generation *g = s->lines[0].first; stopping && g; g = g->next) atomic_store(&g->cancelled, true);
    for (descent_generation *g = s->lines[1].first; stopping && g; g = g->next) atomic_store(&g->cancelled, true);
    for (size_t i = 0; stopping && i < s->n_running; i++) atomic_store(&s->running[i]->cancelled, true);
    return goes_on;
}

static void bury(descent_scheduler *s, descent_generation *g)
{
    schedule_remove(s, g);
    generation_charge(g, NULL);
    (void)pthread_mutex_lock(&s->lock);
    live_remove(s, g);
    leave_followers(s, g);
    publish(s);
    (void)pthread_mutex_unlock(&s->lock);
    g->calls.ended(g->user, &g->report);
    generation_free(g);
}

static void bury_line(descent_scheduler *s, line *l, bool cancels)
{
    for (descent_generation *g = l->first, *next; g; g = next) {
        next = g->next;
        if (cancels && atomic_load(&g->cancelled)) generation_end(g, DESCENT_END_CANCELLED, NULL);
        if (g->over) bury(s, g);
    }
}

/* Everybody who has ended, those cancelled included. */
static void bury_ended(descent_scheduler *s, bool cancels)
{
    for (size_t i = s->n_running; i > 0; i--) {
        descent_generation *g = s->running[i - 1];
        if (cancels && atomic_load(&g->cancelled)) generation_end(g, DESCENT_END_CANCELLED, NULL);
        if (g->over) bury(s, g);
    }
    if (!cancels && !s->failed_waiting) return; /* the lines may be long */
    bury_line(s, &s->lines[0], cancels);
    bury_line(s, &s->lines[1], cancels);
    s->failed_waiting = false;
}

static void count_step(descent_scheduler *s, const descent_step_report *report)
{
    s->counted.steps++;
    s->counted.row_steps += report->rows;
    s->counted.steps_by_rows[bucket_of(report->rows)]++;
    for (size_t i = 0; i < DESCENT_ROW_BUCKETS; i++) s->counted.rows_by_step[i] += report->rows_by_step[i];
    s->counted.steps_sum += report->steps_sum;
    s->progress = monotonic_seconds();
}

static void end_diverged(descent_scheduler *s)
{
    descent_status status;
    for (size_t i = 0; i < s->n_running; i++) {
        descent_generation *g = s->running[i];
        if (generation_outlives(g)) continue;
        (void)descent_sequence_state_code(g->sequence, &status);
        generation_end(g, DESCENT_END_FAILED, &status);
    }
}

static void step(descent_scheduler *s)
{
    descent_step_report report;
    descent_status status;
    if (descent_batch_rows(s->batch) == 0) return;
    (void)pthread_mutex_lock(&s->lock);
    publish(s); /* what the step that may take long is made of */
    (void)pthread_mutex_unlock(&s->lock);
    double began = monotonic_seconds();
    if (descent_batch_step(s->batch, &report, &status) != DESCENT_OK) { /* no memory to attend: fewer may find some */
        if (s->n_running > 1)
            schedule_pause_last(s);
        else
            generation_end(s->running[0], DESCENT_END_FAILED, &status);
        return;
    }
    double seconds = monotonic_seconds() - began;
    draft_count_step(&s->draft_costs, report.rows, seconds);
    sweeps_charge_step(s->running, s->n_running, seconds, report.rows);
    count_step(s, &report);
    if (report.diverged > 0) end_diverged(s);
    if (report.finished > 0 || s->drafting) read_logits(s);
}

static void *run(void *scheduler)
{
    descent_scheduler *s = scheduler;
    bool cancels;
    while (take_orders(s, &cancels)) {
        if (cancels) bury_ended(s, true);
        schedule_rows(s);
        step(s);
        bury_ended(s, false);
    }
    return NULL;
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static void release(descent_scheduler *s)
{
    if (s->batch) descent_batch_destroy(s->batch);
    if (s->cache) descent_cache_destroy(s->cache);
    free(s->running);
    free(s->readings);
    free(s->readers);
    free(s->logits);
    free(s);
}

/* Tokens whose rows finish together have their logits read through one product, which is worth waiting for unless the head is
 * little beside the block. Rows that go through layers finish together anyway. */
static bool has_heavy_head(const descent_model *model)
{
    const size_t little = 8;
    size_t block = 0;
    for (size_t i = 0; i < model->n_matrices; i++)
        if (!strncmp(model->matrices[i].tensor->name, "blk.", 4)) block += matrix_bytes(model->matrices[i].w);
    return model->info.deepens && little * matrix_bytes(&model->head) > block;
}

static descent_code make_parts(descent_scheduler *s, const descent_scheduler_options *options, descent_status *status)
{
    size_t vocab = descent_model_describe(s->model)->vocab;
    descent_code code = descent_cache_create(s->model, &options->cache, &s->cache, status);
    if (code != DESCENT_OK) return code;
    s->page_type = options->cache.page_type;
    s->heavy_head = has_heavy_head(s->model);
    (void)descent_model_count(s->model, &s->cost, &s->cost_status); /* sweeps need it, others do not */
    s->state.cache = descent_cache_describe(s->cache);
    s->byte_limit = s->state.cache.byte_limit;
    descent_batch_options batch = {.max_rows = (uint32_t)(s->max_running + s->chunk + DRAFT_ROWS), .threads = options->threads};
    if ((code = descent_batch_create(s->cache, &batch, &s->batch, status)) != DESCENT_OK) return code;
    if (options->notify) team_set_errand(batch_team(s->batch), options->notify, options->notify_user);
    s->most_readings = MOST_LOGITS / vocab < MOST_READINGS ? MOST_LOGITS / vocab : MOST_READINGS;
    if (s->most_readings == 0) s->most_readings = 1;
    s->running = calloc(s->max_running, sizeof *s->running);
    s->readings = calloc(s->most_readings, sizeof *s->readings);
    s->readers = calloc(s->most_readings, sizeof *s->readers);
    s->logits = calloc(s->most_readings * vocab, sizeof *s->logits);
    if (s->running && s->readings && s->readers && s->logits) return DESCENT_OK;
    return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a scheduler of %zu generations", s->max_running);
}

/* The process's signals are for its other threads. */
static descent_code start_thread(descent_scheduler *s, descent_status *status)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&s->thread, NULL, run, s);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return DESCENT_OK;
    return descent_fail(status, DESCENT_NO_MEMORY, "cannot start a scheduler's thread: %s", strerror(failed));
}

descent_code descent_scheduler_create(const descent_model *model, const descent_scheduler_options *options,
                                      descent_scheduler **out, descent_status *status)
{
    static const descent_scheduler_options defaults = {.chunk = 0};
    if (!model || !out) return descent_fail(status, DESCENT_BAD_ARGUMENT, "a scheduler needs a model and a place to be put");
    if (!options) options = &defaults;
    if (options->chunk > MOST_CHUNK)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "chunk is %u; expected at most %d", options->chunk, MOST_CHUNK);
    if (options->max_running > MOST_RUNNING)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "max_running is %u; expected at most %d", options->max_running,
                            MOST_RUNNING);
    descent_scheduler *s = calloc(1, sizeof *s);
    if (!s) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a scheduler");
    s->model = model;
    s->chunk = options->chunk ? options->chunk : DEFAULT_CHUNK;
    s->max_running = options->max_running ? options->max_running : DEFAULT_RUNNING;
    s->idle = true;
    descent_code code = make_parts(s, options, status);
    if (code != DESCENT_OK) {
        release(s);
        return code;
    }
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->orders, NULL);
    if ((code = start_thread(s, status)) != DESCENT_OK) {
        (void)pthread_cond_destroy(&s->orders);
        (void)pthread_mutex_destroy(&s->lock);
        release(s);
        return code;
    }
    *out = s;
    return descent_ok(status);
}

void descent_scheduler_destroy(descent_scheduler *s)
{
    if (!s) return;
    (void)pthread_mutex_lock(&s->lock);
    s->stopping = true;
    (void)pthread_cond_signal(&s->orders);
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    (void)pthread_cond_destroy(&s->orders);
    (void)pthread_mutex_destroy(&s->lock);
    release(s);
}

/* ---- From any thread --------------------------------------------------------------------------------------------- */

/* What it may come to hold fits into the whole cache. */
static descent_code check_size(const descent_scheduler *s, const descent_generation *g, descent_status *status)
{
    size_t tokens = generation_most_held(g);
    uint64_t bytes = text_bytes(s->model, s->page_type, &g->options, g->observe, tokens);
    if (bytes <= s->byte_limit) return DESCENT_OK;
    return descent_fail(status, DESCENT_LIMIT,
                        "a generation of %zu tokens at this depth needs %" PRIu64
                        " bytes of state cache; its limit is %" PRIu64,
                        tokens, bytes, s->byte_limit);
}

/* Takes g, which goes where there is no room for it, to the thread. */
static descent_code submit(descent_scheduler *s, descent_generation *g, const descent_generation *like,
                           descent_generation **out, descent_status *status)
{
    descent_code code = check_size(s, g, status);
    if (code != DESCENT_OK) {
        generation_free(g);
        return code;
    }
    g->scheduler = s;
    *out = g; /* before it can end */
    (void)pthread_mutex_lock(&s->lock);
    if (like) g->like = find_like(s, like, g);
    if (g->like) g->like->followers++;
    live_add(s, g);
    line_append(&s->arrivals, g);
    s->state.waiting++;
    if (s->idle) s->last_progress = monotonic_seconds();
    s->idle = false;
    (void)pthread_cond_signal(&s->orders);
    (void)pthread_mutex_unlock(&s->lock);
    return descent_ok(status);
}

descent_code descent_scheduler_submit(descent_scheduler *s, const descent_generation_options *options, descent_generation **out,
                                      descent_status *status)
{
    if (!s || !options || !out)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "a generation needs a scheduler, options and a place to be put");
    descent_generation *g;
    descent_code code = generation_create(s->model, options, &g, status);
    return code == DESCENT_OK ? submit(s, g, options->like, out, status) : code;
}

descent_code descent_scheduler_sweep(descent_scheduler *s, const descent_sweep_options *options, descent_generation **out,
                                     descent_status *status)
{
    if (!s || !options || !out)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "a sweep needs a scheduler, options and a place to be put");
    descent_generation *g;
    if (s->cost_status.code != DESCENT_OK) return descent_fail(status, s->cost_status.code, "%s", s->cost_status.message);
    descent_code code = sweep_create(s->model, &s->cost, options, &g, status);
    return code == DESCENT_OK ? submit(s, g, NULL, out, status) : code;
}

void descent_generation_cancel(descent_generation *g)
{
    descent_scheduler *s = g->scheduler;
    (void)pthread_mutex_lock(&s->lock);
    atomic_store(&g->cancelled, true);
    s->cancels = true;
    (void)pthread_mutex_unlock(&s->lock);
}

void descent_scheduler_notify(descent_scheduler *s)
{
    team_send_errand(batch_team(s->batch));
}

descent_scheduler_state descent_scheduler_describe(descent_scheduler *s)
{
    (void)pthread_mutex_lock(&s->lock);
    descent_scheduler_state state = s->state;
    if (!s->idle) state.seconds_since_step = monotonic_seconds() - s->last_progress;
    (void)pthread_mutex_unlock(&s->lock);
    return state;
}
