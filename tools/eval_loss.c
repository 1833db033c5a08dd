/* eval_loss.c: the loss of a text. Window w has the inputs tokens[w * B .. w * B + B - 1], B the model's context, and
 * predicts the token after each. Where tokens are deepened, one pass serves every depth: the windows stop at each depth on
 * their way down, smallest first, to be read; elsewhere they begin again at each. A reference goes the same way beside the
 * model. Shapes: logits [rows][V]. */
#include "eval.h"

#include "generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOGITS_AT_ONCE = 1 << 22 /* numbers */, MOST_TEXTS = 64 };
enum { MODEL, REFERENCE, MOST_MODELS };

/* A measurement in progress. */
typedef struct measurement {
    const session *with[MOST_MODELS];
    size_t n_models; /* 1 where there is no reference */
    const uint32_t *tokens;
    size_t predictions; /* of the whole text */
    const asked_depth *depths;
    const size_t *order; /* of the depths: rising where the model deepens */
    size_t n_depths;
    loss_result *results;
    float *logits[MOST_MODELS];
    descent_reading *readings;
    size_t rows; /* what they hold */
    progress *bar;
} measurement;

/* Texts that descend side by side at `depth`, `tokens` each: as many as `rows`, those of the batch, allow, 1..64, fewer where
 * the cache would not hold them. */
static size_t texts_side_by_side(const session *with, size_t rows, size_t tokens, descent_depth depth)
{
    size_t texts = tokens ? rows / tokens : 1;
    descent_cache_usage usage = descent_cache_describe(with->cache);
    descent_page_type type = with->page_type;
    descent_sequence_options each_with = {
        .depth = depth, .motion = with->motion, .solver = with->solver, .exit = with->exit, .history = with->history};
    uint64_t each = descent_cache_bytes_needed(with->model, type, tokens, &each_with);
    if (each && usage.byte_limit / each < texts) texts = (size_t)(usage.byte_limit / each);
    return texts < 1 ? 1 : texts > MOST_TEXTS ? MOST_TEXTS : texts;
}

/* log sum exp, in double; *likeliest is the first of the largest. */
static double log_sum(const float *logits, size_t vocab, size_t *likeliest)
{
    size_t largest = 0;
    double sum = 0;
    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > logits[largest]) largest = i;
    for (size_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - (double)logits[largest]);
    *likeliest = largest;
    return log(sum) + (double)logits[largest];
}

/* One prediction of `target`; `reference` may be NULL. */
static void add_prediction(const float *logits, const float *reference, size_t vocab, uint32_t target, loss_result *result)
{
    size_t likeliest, wanted;
    double all = log_sum(logits, vocab, &likeliest), divergence = 0;
    result->nats += all - (double)logits[target];
    if (!reference) return;
    double reference_all = log_sum(reference, vocab, &wanted);
    for (size_t i = 0; i < vocab; i++) {
        double log_p = (double)reference[i] - reference_all;
        divergence += exp(log_p) * (log_p - ((double)logits[i] - all));
    }
    result->reference_nats += reference_all - (double)reference[target];
    result->divergence += divergence;
    result->agreed += likeliest == wanted;
}

/* A group of windows: of every model as many sequences. */
typedef struct window_group {
    descent_sequence *of[MOST_MODELS][MOST_TEXTS];
    size_t n, start; /* from token `start` on */
} window_group;

/* Adds one window to a result, its sequences standing at the depth to be read. `targets` [count] are the tokens it predicts. */
static descent_code read_window(const measurement *m, const window_group *group, size_t window, const uint32_t *targets,
                                size_t count, loss_result *result, descent_status *status)
{
    size_t vocab = m->with[MODEL]->info->vocab;
    for (size_t i = 0; i < count; i++) {
        result->token_steps += descent_sequence_token_steps(group->of[MODEL][window], i);
        result->unconverged += !descent_sequence_converged(group->of[MODEL][window], i);
    }
    for (size_t begin = 0, rows; begin < count; begin += rows) {
        rows = count - begin < m->rows ? count - begin : m->rows;
        for (size_t k = 0; k < m->n_models; k++) {
            for (size_t i = 0; i < rows; i++)
                m->readings[i] = (descent_reading){.sequence = group->of[k][window], .position = begin + i};
            descent_code code = descent_batch_logits(m->with[k]->batch, m->readings, rows, m->logits[k], status);
            if (code != DESCENT_OK) return code;
        }
        for (size_t i = 0; i < rows; i++)
            add_prediction(m->logits[MODEL] + i * vocab, m->n_models > 1 ? m->logits[REFERENCE] + i * vocab : NULL, vocab,
                           targets[begin + i], result);
    }
    return DESCENT_OK;
}

static size_t window_length(const measurement *m, size_t start)
{
    size_t left = m->predictions - start;
    return left < m->with[MODEL]->info->context ? left : m->with[MODEL]->info->context;
}

/* Takes the group's windows to a depth, with every model. */
static descent_code descend_windows(const measurement *m, window_group *group, descent_depth depth, descent_status *status)
{
    descent_code code = DESCENT_OK;
    for (size_t k = 0; k < m->n_models && code == DESCENT_OK && !interrupted(); k++) {
        for (size_t w = 0; w < group->n && code == DESCENT_OK; w++)
            code = descent_sequence_set_depth(group->of[k][w], depth, status);
        if (code == DESCENT_OK) code = advance_all(m->with[k], group->of[k], group->n, m->bar, status);
    }
    return code;
}

/* Takes the windows, whose sequences hold nothing yet, through every depth. */
static descent_code measure_windows(const measurement *m, window_group *group, descent_status *status)
{
    size_t context = m->with[MODEL]->info->context;
    for (size_t k = 0; k < m->n_models; k++)
        for (size_t w = 0; w < group->n; w++) {
            size_t begin = group->start + w * context;
            descent_code code = descent_sequence_append(group->of[k][w], m->tokens + begin, window_length(m, begin), status);
            if (code != DESCENT_OK) return code;
        }
    for (size_t d = 0; d < m->n_depths; d++) {
        size_t which = m->order[d];
        descent_code code = descend_windows(m, group, m->depths[which].depth, status);
        if (code != DESCENT_OK || interrupted()) return code;
        for (size_t w = 0; w < group->n; w++) {
            size_t begin = group->start + w * context;
            code = read_window(m, group, w, m->tokens + begin + 1, window_length(m, begin), &m->results[which], status);
            if (code != DESCENT_OK) return code;
        }
    }
    return DESCENT_OK;
}

/* The windows from token `start` on, at most `most` of them; *measured counts the predictions they make. */
static descent_code measure_group(const measurement *m, size_t start, size_t most, size_t *measured, descent_status *status)
{
    window_group group = {.start = start};
    descent_code code = DESCENT_OK;
    for (*measured = 0; group.n < most && start + *measured < m->predictions && code == DESCENT_OK; group.n++) {
        for (size_t k = 0; k < m->n_models && code == DESCENT_OK; k++) {
            descent_sequence_options options = {.depth = m->depths[m->order[0]].depth,
                                                .motion = m->with[k]->motion,
                                                .solver = m->with[k]->solver,
                                                .exit = m->with[k]->exit,
                                                .history = m->with[k]->history,
                                                .no_sharing = true};
            code = descent_sequence_create(m->with[k]->cache, &options, &group.of[k][group.n], status);
        }
        *measured += window_length(m, start + *measured);
    }
    if (code == DESCENT_OK) code = measure_windows(m, &group, status);
    for (size_t k = 0; k < m->n_models; k++)
        for (size_t w = 0; w < group.n; w++) descent_sequence_destroy(group.of[k][w]);
    return code;
}

/* Row steps the whole measurement takes, for the progress bar. */
static uint64_t total_rows(const measurement *m)
{
    const descent_model_info *info = m->with[MODEL]->info;
    uint64_t sum = 0, largest = 0;
    for (size_t d = 0; d < m->n_depths; d++) {
        uint64_t steps = 0;
        for (uint32_t k = 0; k < info->kinds; k++) steps += m->depths[d].depth.steps[k] ? m->depths[d].depth.steps[k] : 1;
        sum += steps * info->layers;
        if (steps > largest) largest = steps;
    }
    bool deepens = info->deepens && m->with[MODEL]->history.policy == DESCENT_HISTORY_OWN;
    return m->n_models * m->predictions * (deepens ? largest : sum);
}

static size_t *order_depths(const session *with, const asked_depth *depths, size_t n)
{
    size_t *order = calloc(n, sizeof *order);
    for (size_t i = 0; order && i < n; i++) {
        size_t at = i;
        for (; with->info->deepens && at > 0 && depths[order[at - 1]].depth.steps[0] > depths[i].depth.steps[0]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return order;
}

static int measure(const measurement *m, size_t side_by_side)
{
    descent_status status;
    size_t measured = 0;
    for (size_t start = 0; start < m->predictions; start += measured) {
        descent_code code = measure_group(m, start, side_by_side, &measured, &status);
        if (code == DESCENT_OK && !interrupted()) continue;
        progress_end(m->bar);
        if (code == DESCENT_OK) return EXIT_INTERRUPTED;
        cli_error("in the windows that begin at token %zu: %s", start, status.message);
        return EXIT_FAILURE;
    }
    progress_end(m->bar);
    return EXIT_SUCCESS;
}

static uint64_t bytes_of(const session *with, const uint32_t *tokens, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; with->tokenizer && i < count; i++) {
        size_t bytes = 0;
        if (descent_tokenizer_piece(with->tokenizer, tokens[i], &bytes)) sum += bytes;
    }
    return sum;
}

/* Whether the two can be read side by side. */
static bool comparable(const descent_model_info *model, const descent_model_info *reference)
{
    if (model->vocab == reference->vocab && model->context == reference->context && model->deepens == reference->deepens)
        return true;
    cli_error("%s has a vocabulary of %u and a context of %u, %s %u and %u%s: only models that agree can be compared",
              model->name, model->vocab, model->context, reference->name, reference->vocab, reference->context,
              model->deepens == reference->deepens ? "" : ", and one of them descends layer by layer");
    return false;
}

static bool make_room(measurement *m)
{
    size_t vocab = m->with[MODEL]->info->vocab;
    for (size_t k = 0; k < m->n_models; k++)
        if (!(m->logits[k] = calloc(m->rows * vocab, sizeof(float)))) return false;
    m->readings = calloc(m->rows, sizeof *m->readings);
    return m->readings != NULL;
}

int measure_loss(const session *with, const session *reference, const uint32_t *tokens, size_t count, const asked_depth *depths,
                 size_t n, loss_result *results)
{
    const descent_model_info *info = with->info;
    if (reference && !comparable(info, reference->info)) return EXIT_FAILURE;
    size_t rows = LOGITS_AT_ONCE / info->vocab;
    if (rows > info->context) rows = info->context;
    if (rows < 1) rows = 1;
    size_t *order = order_depths(with, depths, n);
    measurement m = {.with = {with, reference},
                     .n_models = reference ? 2 : 1,
                     .tokens = tokens,
                     .predictions = count - 1,
                     .depths = depths,
                     .order = order,
                     .n_depths = n,
                     .results = results,
                     .rows = rows};
    int exit_code = EXIT_FAILURE;
    if (order && make_room(&m)) {
        size_t length = m.predictions < info->context ? m.predictions : info->context;
        descent_depth deepest = depths[order[n - 1]].depth;
        progress bar = progress_begin("loss", "row steps", total_rows(&m));
        m.bar = &bar;
        for (size_t d = 0; d < n; d++)
            results[d] = (loss_result){.predictions = m.predictions, .bytes = bytes_of(with, tokens + 1, m.predictions)};
        size_t texts = MOST_TEXTS;
        for (size_t k = 0; k < m.n_models; k++) { /* each has a cache of its own */
            size_t fit = texts_side_by_side(m.with[k], m.with[k]->rows, length, deepest);
            if (fit < texts) texts = fit;
        }
        exit_code = measure(&m, texts);
    } else {
        cli_error("no memory left");
    }
    free(m.readings);
    for (size_t k = 0; k < MOST_MODELS; k++) free(m.logits[k]);
    free(order);
    return exit_code;
}
