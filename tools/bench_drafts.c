/* bench_drafts.c: what drafts are worth: one text after another through the scheduler, which drafts as it sees fit, beside the
 * same texts without. They begin with what the model itself wrote, since how often a guess is right depends on the text.
 */
#include "bench.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_TOKENS = 128, WARM_TEXTS = 3 };

/* One text: its tokens behind the prompt, and how it ended. */
typedef struct written {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over; /* under the lock, as the report is */
    descent_generation_report report;
    uint32_t tokens[TEXT_TOKENS];
    size_t count;
} written;

static bool on_chosen(void *user, const descent_choice *choice)
{
    written *w = user;
    if (choice->token_chosen && w->count < TEXT_TOKENS) w->tokens[w->count++] = choice->token;
    return true;
}

static void on_ended(void *user, const descent_generation_report *report)
{
    written *w = user;
    (void)pthread_mutex_lock(&w->lock);
    w->report = *report;
    w->over = true;
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
}

/* Writes `limit` tokens behind a prompt. Text `number` is another each time, the same with drafts and without. */
static bool write_text(const bench_run *b, descent_scheduler *scheduler, const uint32_t *prompt, size_t count, size_t limit,
                       int draft_steps, int64_t number, written *w, descent_status *status)
{
    descent_generation *generation;
    descent_generation_options options = {.prompt = prompt,
                                          .prompt_count = count,
                                          .limit = limit,
                                          .sampling = descent_sampling_defaults(),
                                          .depth = b->depth.depth,
                                          .draft_steps = draft_steps,
                                          .calls = {.chosen = on_chosen, .ended = on_ended},
                                          .user = w};
    options.sampling.ignore_eos = true;
    options.sampling.seed = number;
    w->over = false;
    w->count = 0;
    if (descent_scheduler_submit(scheduler, &options, &generation, status) != DESCENT_OK) return false;
    (void)pthread_mutex_lock(&w->lock);
    while (!w->over) (void)pthread_cond_wait(&w->changed, &w->lock);
    (void)pthread_mutex_unlock(&w->lock);
    *status = w->report.status;
    return w->report.end == DESCENT_END_LENGTH;
}

/* A prompt of `count` tokens, the first of them 0, that the model wrote. */
static bool write_prompt(const bench_run *b, descent_scheduler *scheduler, uint32_t *prompt, size_t count, written *w,
                         descent_status *status)
{
    prompt[0] = 0;
    for (size_t have = 1; have < count; have += w->count) {
        size_t more = count - have < TEXT_TOKENS ? count - have : TEXT_TOKENS;
        if (!write_text(b, scheduler, prompt, have, more, 0, 0, w, status)) return false;
        memcpy(prompt + have, w->tokens, w->count * sizeof *prompt);
    }
    return true;
}

/* The repetitions, each text once with drafts and once without, now this first and now that. */
static bool write_all(bench_run *b, bench_line *line, descent_scheduler *scheduler, const uint32_t *prompt, written *w,
                      progress *bar, descent_status *status)
{
    size_t room = b->with.info->context - (line->context - 1), limit = room < TEXT_TOKENS ? room : TEXT_TOKENS;
    for (int64_t i = -WARM_TEXTS; i < b->repeats && !interrupted(); i++) {
        descent_generation_report reports[2]; /* without, and with */
        for (int turn = 0; turn < 2; turn++) {
            bool drafts = (turn + i) % 2 != 0;
            if (!write_text(b, scheduler, prompt, line->context - 1, limit, drafts ? DESCENT_DRAFT_AUTO : 0, i, w, status))
                return false;
            reports[drafts] = w->report;
        }
        if (i < 0) continue; /* the scheduler is still learning whether drafts pay */
        load_samples_add(&line->seconds, reports[1].generation_seconds);
        load_samples_add(&line->beside[0].seconds, reports[0].generation_seconds);
        line->counts = (run_counts){.tokens = reports[1].generated, .row_steps = reports[1].row_steps};
        line->drafted += reports[1].drafted;
        line->accepted += reports[1].accepted;
        progress_advance(bar, 1);
    }
    return true;
}

int drafts_measure(bench_run *b, bench_line *line, progress *bar)
{
    descent_scheduler_options options = {.cache = {.page_type = b->with.page_type}, .threads = (uint32_t)b->threads};
    descent_scheduler *scheduler = NULL;
    descent_status status = {.code = DESCENT_NO_MEMORY, .message = "no memory left"};
    written w = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    uint32_t *prompt = calloc(line->context, sizeof *prompt);
    line->beside[0].name = "without drafts";
    bool good = prompt && descent_scheduler_create(b->with.model, &options, &scheduler, &status) == DESCENT_OK;
    good = good && write_prompt(b, scheduler, prompt, line->context - 1, &w, &status);
    good = good && write_all(b, line, scheduler, prompt, &w, bar, &status);
    descent_scheduler_destroy(scheduler);
    free(prompt);
    if (!good) {
        cli_error("drafts at context %zu: %s", line->context, status.message);
        return EXIT_FAILURE;
    }
    return interrupted() ? EXIT_INTERRUPTED : EXIT_SUCCESS;
}
