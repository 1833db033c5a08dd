/* eval_loss.c: the loss of a text. Window w has the inputs tokens[w * B .. w * B + B - 1], B the model's context, and
 * predicts the token after each. Where the model deepens, one pass serves every depth: the windows stop at each depth on
 * their way down, smallest first, to be read. Shapes: logits [rows][V]. */
#include "eval.h"

#include "generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOGITS_AT_ONCE = 1 << 22 /* numbers */, MOST_TEXTS = 64 };

/* A measurement in progress. */
typedef struct measurement {
    const session *with;
    const uint32_t *tokens;
    size_t predictions; /* of the whole text */
    const asked_depth *depths;
    const size_t *order; /* of the depths: rising where the model deepens */
    size_t n_depths;
    loss_result *results;
    float *logits;
    descent_reading *readings;
    size_t rows; /* what both hold */
    progress *bar;
} measurement;

size_t texts_side_by_side(const session *with, size_t rows, size_t tokens, descent_depth depth)
{
    size_t texts = tokens ? rows / tokens : 1;
    descent_cache_usage usage = descent_cache_describe(with->cache);
    descent_page_type type = with->page_type;
    uint64_t each = descent_cache_bytes_needed(with->model, type, tokens, depth);
    if (each && usage.byte_limit / each < texts) texts = (size_t)(usage.byte_limit / each);
    return texts < 1 ? 1 : texts > MOST_TEXTS ? MOST_TEXTS : texts;
}

/* -log softmax(logits)[target], in double. */
static double cross_entropy(const float *logits, size_t vocab, uint32_t target)
{
    float largest = logits[0];
    double sum = 0;
    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > largest) largest = logits[i];
    for (size_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - (double)largest);
    return log(sum) + (double)largest - (double)logits[target];
}

/* The sum over one window, its sequence standing at the depth to be read. `targets` [count] are the tokens it predicts. */
static descent_code read_window(const measurement *m, const descent_sequence *sequence, const uint32_t *targets, size_t count,
                                double *nats, descent_status *status)
{
    size_t vocab = m->with->info->vocab;
    for (size_t begin = 0, rows; begin < count; begin += rows) {
        rows = count - begin < m->rows ? count - begin : m->rows;
        for (size_t i = 0; i < rows; i++) m->readings[i] = (descent_reading){.sequence = sequence, .position = begin + i};
        descent_code code = descent_batch_logits(m->with->batch, m->readings, rows, m->logits, status);
        if (code != DESCENT_OK) return code;
        for (size_t i = 0; i < rows; i++) *nats += cross_entropy(m->logits + i * vocab, vocab, targets[begin + i]);
    }
    return DESCENT_OK;
}

static size_t window_length(const measurement *m, size_t start)
{
    size_t left = m->predictions - start;
    return left < m->with->info->context ? left : m->with->info->context;
}

/* Takes `n` windows from token `start` on, whose sequences hold nothing yet, through every depth. */
static descent_code measure_windows(const measurement *m, descent_sequence **windows, size_t n, size_t start,
                                    descent_status *status)
{
    size_t context = m->with->info->context;
    for (size_t w = 0; w < n; w++) {
        size_t begin = start + w * context;
        descent_code code = descent_sequence_append(windows[w], m->tokens + begin, window_length(m, begin), status);
        if (code != DESCENT_OK) return code;
    }
    for (size_t d = 0; d < m->n_depths; d++) {
        size_t which = m->order[d];
        descent_code code = DESCENT_OK;
        for (size_t w = 0; w < n && code == DESCENT_OK; w++)
            code = descent_sequence_set_depth(windows[w], m->depths[which].depth, status);
        if (code == DESCENT_OK) code = advance_all(m->with, windows, n, m->bar, status);
        if (code != DESCENT_OK || interrupted()) return code;
        for (size_t w = 0; w < n; w++) {
            size_t begin = start + w * context;
            code = read_window(m, windows[w], m->tokens + begin + 1, window_length(m, begin), &m->results[which].nats, status);
            if (code != DESCENT_OK) return code;
        }
    }
    return DESCENT_OK;
}

/* The windows from token `start` on, at most `most` of them; *measured counts the predictions they make. */
static descent_code measure_group(const measurement *m, size_t start, size_t most, size_t *measured, descent_status *status)
{
    descent_sequence *windows[MOST_TEXTS] = {NULL};
    descent_sequence_options options = {.depth = m->depths[m->order[0]].depth, .no_sharing = true};
    descent_code code = DESCENT_OK;
    size_t n = 0;
    for (*measured = 0; n < most && start + *measured < m->predictions && code == DESCENT_OK; n++) {
        code = descent_sequence_create(m->with->cache, &options, &windows[n], status);
        *measured += window_length(m, start + *measured);
    }
    if (code == DESCENT_OK) code = measure_windows(m, windows, n, start, status);
    for (size_t w = 0; w < n; w++) descent_sequence_destroy(windows[w]);
    return code;
}

/* Row steps the whole measurement takes, for the progress bar. */
static uint64_t total_rows(const measurement *m)
{
    const descent_model_info *info = m->with->info;
    uint64_t sum = 0, largest = 0;
    for (size_t d = 0; d < m->n_depths; d++) {
        uint64_t steps = 0;
        for (uint32_t k = 0; k < info->kinds; k++) steps += m->depths[d].depth.steps[k] ? m->depths[d].depth.steps[k] : 1;
        sum += steps * info->layers;
        if (steps > largest) largest = steps;
    }
    return m->predictions * (info->deepens ? largest : sum);
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

int measure_loss(const session *with, const uint32_t *tokens, size_t count, const asked_depth *depths, size_t n,
                 loss_result *results)
{
    const descent_model_info *info = with->info;
    size_t rows = LOGITS_AT_ONCE / info->vocab;
    if (rows > info->context) rows = info->context;
    if (rows < 1) rows = 1;
    measurement m = {.with = with,
                     .tokens = tokens,
                     .predictions = count - 1,
                     .depths = depths,
                     .n_depths = n,
                     .results = results,
                     .rows = rows};
    size_t *order = order_depths(with, depths, n);
    m.order = order;
    m.logits = calloc(rows * info->vocab, sizeof *m.logits);
    m.readings = calloc(rows, sizeof *m.readings);
    int exit_code = EXIT_FAILURE;
    if (order && m.logits && m.readings) {
        size_t length = m.predictions < info->context ? m.predictions : info->context;
        descent_depth deepest = depths[order[n - 1]].depth;
        progress bar = progress_begin("loss", "row steps", total_rows(&m));
        m.bar = &bar;
        for (size_t d = 0; d < n; d++)
            results[d] = (loss_result){.predictions = m.predictions, .bytes = bytes_of(with, tokens + 1, m.predictions)};
        exit_code = measure(&m, texts_side_by_side(with, with->rows, length, deepest));
    } else {
        cli_error("no memory left");
    }
    free(m.readings);
    free(m.logits);
    free(order);
    return exit_code;
}
