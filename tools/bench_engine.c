/* bench_engine.c: a load through libdescent's scheduler, as a program that has no server would run it. Tokens are timed on the
 * scheduler's thread; the next text of a stream is submitted from here, since callbacks may not. */
#include "bench_load.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct engine_run engine_run;

typedef struct engine_stream {
    engine_run *run;
    size_t index, generations; /* of them begun */
    uint64_t asked, last;      /* uv_hrtime; last 0: no token yet */
    struct engine_stream *next;
} engine_stream;

struct engine_run {
    const load *load;
    load_result *result;
    char *message;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    engine_stream *ended; /* streams whose text is there */
    bool failed;          /* under the lock, as `ended` is */
};

static bool on_chosen(void *user, const descent_choice *choice)
{
    engine_stream *s = user;
    if (!choice->token_chosen) return true;
    uint64_t now = uv_hrtime();
    load_result *result = s->run->result;
    if (s->last)
        load_samples_add(&result->between, (double)(now - s->last) / 1e9);
    else
        load_samples_add(&result->first, (double)(now - s->asked) / 1e9);
    s->last = now;
    result->tokens++;
    return true;
}

static void on_ended(void *user, const descent_generation_report *report)
{
    engine_stream *s = user;
    engine_run *run = s->run;
    run->result->row_steps += report->row_steps;
    (void)pthread_mutex_lock(&run->lock);
    if (report->end != DESCENT_END_LENGTH && !run->failed) {
        run->failed = true;
        (void)snprintf(run->message, BENCH_MESSAGE_SIZE, "a text in process ended after %zu tokens: %s", report->generated,
                       report->status.message);
    }
    s->next = run->ended;
    run->ended = s;
    (void)pthread_cond_signal(&run->changed);
    (void)pthread_mutex_unlock(&run->lock);
}

static bool submit(descent_scheduler *scheduler, engine_stream *s, uint32_t *prompt)
{
    const load *l = s->run->load;
    const asked_depth *depth;
    descent_status status;
    descent_generation *generation;
    descent_generation_options options = {.prompt = prompt,
                                          .prompt_count = l->shape->prompt_tokens,
                                          .limit = l->shape->tokens,
                                          .sampling = descent_sampling_defaults(),
                                          .calls = {.chosen = on_chosen, .ended = on_ended},
                                          .user = s};
    load_text(l, s->index, s->generations++, prompt, &depth, &options.sampling.seed);
    options.sampling.ignore_eos = true;
    options.depth = depth->depth;
    s->asked = uv_hrtime();
    s->last = 0;
    if (descent_scheduler_submit(scheduler, &options, &generation, &status) == DESCENT_OK) return true;
    (void)pthread_mutex_lock(&s->run->lock);
    if (!s->run->failed) (void)snprintf(s->run->message, BENCH_MESSAGE_SIZE, "in process: %s", status.message);
    s->run->failed = true;
    (void)pthread_mutex_unlock(&s->run->lock);
    return false;
}

/* The next stream whose text is there. */
static engine_stream *wait_for_one(engine_run *run, bool *failed)
{
    (void)pthread_mutex_lock(&run->lock);
    while (!run->ended) (void)pthread_cond_wait(&run->changed, &run->lock);
    engine_stream *s = run->ended;
    run->ended = s->next;
    *failed = run->failed;
    (void)pthread_mutex_unlock(&run->lock);
    return s;
}

bool bench_engine_run(descent_scheduler *scheduler, const load *l, load_result *result, char message[BENCH_MESSAGE_SIZE])
{
    engine_run run = {.load = l,
                      .result = result,
                      .message = message,
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER};
    engine_stream *streams = calloc(l->streams, sizeof *streams);
    uint32_t *prompt = calloc(l->shape->prompt_tokens, sizeof *prompt);
    size_t running = 0;
    bool failed = !streams || !prompt;
    if (failed) (void)snprintf(message, BENCH_MESSAGE_SIZE, "no memory for %zu streams", l->streams);
    uint64_t started = uv_hrtime();
    for (size_t i = 0; i < l->streams && !failed; i++) {
        streams[i] = (engine_stream){.run = &run, .index = i};
        failed = !submit(scheduler, &streams[i], prompt);
        running += !failed;
    }
    while (running > 0) {
        bool bad;
        engine_stream *s = wait_for_one(&run, &bad);
        failed |= bad;
        if (failed || s->generations == l->generations || !submit(scheduler, s, prompt)) running--;
    }
    result->seconds += (double)(uv_hrtime() - started) / 1e9;
    free(prompt);
    free(streams);
    return !failed && !run.failed;
}
