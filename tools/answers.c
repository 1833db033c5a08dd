/* answers.c: see answers.h. Generations run on the scheduler's thread, and so do their callbacks; this thread submits and
 * waits. */
#include "answers.h"

#include "generate.h"
#include "input.h"
#include "terminal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

enum { MOST_BYTES = 256 << 20 };

/* prompt TAB answer, without newline */
static descent_code read_line(const session *with, const char *line, size_t length, question *into, descent_status *status)
{
    const char *tab = memchr(line, '\t', length);
    if (!tab) {
        *into = (question){.answer_token = -1};
        *status =
            (descent_status){.code = DESCENT_BAD_ARGUMENT, .message = "expected a prompt, a tab and its answer, found no tab"};
        return status->code;
    }
    const char *equals = memchr(line, '=', (size_t)(tab - line));
    question_text prompt = {line, (size_t)((equals ? equals + 1 : tab) - line)};
    question_text wanted = {tab + 1, length - (size_t)(tab + 1 - line)};
    return question_of_answer(with->tokenizer, with->info->context, prompt, wanted, into, status);
}

static descent_code read_object(const session *with, const char *line, size_t length, question *into, descent_status *status)
{
    json_error_t error;
    *into = (question){.answer_token = -1};
    json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!object) {
        *status = (descent_status){.code = DESCENT_BAD_ARGUMENT};
        snprintf(status->message, sizeof status->message, "no JSON object: %s", error.text);
        return status->code;
    }
    descent_code code = question_of_json(with->tokenizer, with->info->context, object, into, status);
    json_decref(object);
    return code;
}

/* One question behind the others; `shown` names file and line in messages. */
static int add_question(const session *with, bool json, const char *shown, const char *line, size_t length, question_set *set)
{
    descent_status status;
    question *into = &set->questions[set->count];
    descent_code code = (json ? read_object : read_line)(with, line, length, into, &status);
    set->count++;
    if (code != DESCENT_OK) {
        cli_error("%s: %s", shown, status.message);
        return EXIT_FAILURE;
    }
    if (!into->choices == !set->questions->choices) return EXIT_SUCCESS;
    cli_error("%s: a record %s choices, where those before it have %s: a file holds records of one kind", shown,
              into->choices ? "with" : "without", into->choices ? "none" : "some");
    return EXIT_FAILURE;
}

static int read_lines(const session *with, const char *path, const text_buffer *text, question_set *set)
{
    size_t lines = 1, name = strlen(path);
    bool json = name >= 6 && !strcmp(path + name - 6, ".jsonl");
    for (size_t i = 0; i < text->length; i++) lines += text->bytes[i] == '\n';
    set->questions = calloc(lines, sizeof *set->questions);
    if (!set->questions) {
        cli_error("no memory left");
        return EXIT_FAILURE;
    }
    for (text_line line = {.number = 0}; text_next_line(text, &line);) {
        char shown[300];
        snprintf(shown, sizeof shown, "%s, line %zu", path, line.number);
        int exit_code = add_question(with, json, shown, line.bytes, line.length, set);
        if (exit_code != EXIT_SUCCESS) return exit_code;
    }
    if (set->count) return EXIT_SUCCESS;
    cli_error("%s: no line with a prompt and an answer", path);
    return EXIT_FAILURE;
}

int read_questions(const session *with, const char *path, question_set *set)
{
    text_buffer text;
    *set = (question_set){.questions = NULL};
    if (!with->tokenizer) {
        cli_error("model %s has no tokenizer, so it cannot read a text", with->info->name);
        return EXIT_FAILURE;
    }
    int exit_code = read_text(path, MOST_BYTES, &text);
    if (exit_code == EXIT_SUCCESS) exit_code = read_lines(with, path, &text, set);
    text_buffer_release(&text);
    return exit_code;
}

void question_set_release(question_set *set)
{
    for (size_t i = 0; i < set->count; i++) question_release(&set->questions[i]);
    free(set->questions);
    *set = (question_set){.questions = NULL};
}

/* ---- Answering -------------------------------------------------------------------------------------------------- */

typedef struct answering answering;

/* One question on its way. */
typedef struct asked {
    answering *in;
    const question *of;
    answer *into;
    descent_generation *running; /* NULL: before and after; under the lock */
    descent_generation_end end;
} asked;

struct answering {
    const descent_tokenizer *tokenizer;
    asked *asked; /* [n] */
    size_t n, going;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static bool chosen(void *user, const descent_choice *choice)
{
    asked *one = user;
    one->into->tokens[one->into->count++] = choice->token;
    return true;
}

/* Whether the text ended, and with the answer before its EOS. */
static bool is_right(const asked *one)
{
    const answer *given = one->into;
    return one->end == DESCENT_END_EOS && given->count >= 2 &&
           question_is_answered(one->of, one->in->tokenizer, given->tokens[given->count - 2]);
}

static void ended(void *user, const descent_generation_report *report)
{
    asked *one = user;
    answering *in = one->in;
    (void)pthread_mutex_lock(&in->lock);
    one->end = report->end;
    one->into->row_steps = report->row_steps;
    one->into->status = report->status;
    one->into->code = report->end == DESCENT_END_FAILED ? report->status.code : DESCENT_OK;
    one->into->right = is_right(one);
    one->running = NULL;
    in->going--;
    (void)pthread_cond_signal(&in->changed);
    (void)pthread_mutex_unlock(&in->lock);
}

/* The lock is held over it, so that an end that comes at once finds its question registered. */
static descent_code submit(const session *with, const descent_sequence_options *how, uint64_t group, asked *one,
                           descent_status *status)
{
    size_t room = generation_room(with, one->of->prompt_count);
    descent_generation_options options = {
        .prompt = one->of->prompt,
        .prompt_count = one->of->prompt_count,
        .limit = room < ANSWER_MOST_TOKENS ? room : ANSWER_MOST_TOKENS,
        .sampling = descent_sampling_defaults(),
        .depth = how->depth,
        .motion = how->motion,
        .solver = how->solver,
        .exit = how->exit,
        .history = how->history,
        .share_group = group,
        .calls = {.chosen = chosen, .ended = ended},
        .user = one,
    };
    options.sampling.temperature = 0;
    *one->into = (answer){.count = 0};
    (void)pthread_mutex_lock(&one->in->lock);
    descent_code code = descent_scheduler_submit(with->scheduler, &options, &one->running, status);
    one->in->going += code == DESCENT_OK;
    (void)pthread_mutex_unlock(&one->in->lock);
    return code;
}

/* Looks for Ctrl-C from time to time. */
static void wait_for_all(answering *in, bool cancel)
{
    const long between_looks = 50 * 1000 * 1000; /* nanoseconds */
    (void)pthread_mutex_lock(&in->lock);
    while (in->going) {
        if (cancel || interrupted())
            for (size_t i = 0; i < in->n; i++)
                if (in->asked[i].running) descent_generation_cancel(in->asked[i].running);
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += between_looks;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&in->changed, &in->lock, &until);
    }
    (void)pthread_mutex_unlock(&in->lock);
}

int answer_questions(const session *with, const question *const *questions, size_t n, const descent_sequence_options *how,
                     uint64_t first_group, answer *answers)
{
    descent_status status = {.code = DESCENT_OK};
    answering in = {.tokenizer = with->tokenizer,
                    .asked = calloc(n, sizeof *in.asked),
                    .lock = PTHREAD_MUTEX_INITIALIZER,
                    .changed = PTHREAD_COND_INITIALIZER};
    if (!in.asked) {
        cli_error("no memory left");
        return EXIT_FAILURE;
    }
    while (in.n < n && status.code == DESCENT_OK && !interrupted()) {
        in.asked[in.n] = (asked){.in = &in, .of = questions[in.n], .into = &answers[in.n]};
        if (submit(with, how, first_group + in.n, &in.asked[in.n], &status) == DESCENT_OK) in.n++;
    }
    wait_for_all(&in, status.code != DESCENT_OK);
    for (size_t i = 0; i < in.n && status.code == DESCENT_OK; i++)
        if (answers[i].code != DESCENT_OK && answers[i].code != DESCENT_DIVERGED) status = answers[i].status;
    free(in.asked);
    if (status.code == DESCENT_OK) return EXIT_SUCCESS;
    cli_error("%s", status.message);
    return EXIT_FAILURE;
}

bool answers_can_end(const session *with)
{
    if (descent_tokenizer_describe(with->tokenizer)->eos >= 0) return true;
    cli_error("exact match needs an end-of-text token, and the tokenizer of model %s has none", with->info->name);
    return false;
}
