/* sampler.c: the next token from a row of logits. Owns no state: every call reads logits [V] and the text so far, works in
 * two double arrays of its own, logit [V] and weight [V] (the unnormalized probability, 0: out), and forgets them.
 *
 * What happens, in this order:
 *
 *     1. repetition, then presence and frequency penalties, on the model's logits
 *     2. logit bias, plain addition; -inf is a ban
 *     3. ids without text out, EOS out where ignore_eos or min_tokens say so
 *     4. temperature 0: the largest logit, the lowest id on a tie, and nothing below applies
 *     5. temperature
 *     6. top-k, locally typical, top-p, min-p, each on the renormalized distribution the one before left
 *     7. one uniform number through the inverse of the cumulative distribution, ids ascending
 *
 * Temperature comes before the filters, as in OpenAI's API and vLLM and unlike llama.cpp, whose filters see the
 * distribution at temperature 1: top_p = 0.9 means nine tenths of the distribution that is really drawn from. The draw
 * walks ids, not ranks, so the same number and nearly the same distribution give the same token whatever filters are on.
 * Equal logits rank by id, sums are doubles in a fixed order, and a mass or a ratio is compared with the caller's float
 * in float: probabilities 0.5 and 0.3 do reach top_p = 0.8f.
 *
 * Called by whoever generates: the scheduler, `descent run`, the Python module. */
#include "random.h"
#include "status.h"

#include <math.h>
#include <stdlib.h>

enum { FEW_TOKENS = 256 };

typedef struct {
    double *logit;  /* [vocab] penalized and biased, -inf: out */
    double *weight; /* [vocab] exp((logit - largest) / temperature), 0: out */
    uint32_t vocab;
} distribution;

descent_sampling descent_sampling_defaults(void)
{
    return (descent_sampling){
        .temperature = 1.0f, .top_p = 1.0f, .typical_p = 1.0f, .repetition_penalty = 1.0f, /* all else 0: off */
    };
}

static descent_code check_bias(const descent_sampling *sampling, uint32_t vocab, descent_status *status)
{
    if (sampling->n_bias > 0 && !sampling->bias)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "bias is NULL, expected %zu entries", sampling->n_bias);
    for (size_t i = 0; i < sampling->n_bias; i++) {
        descent_logit_bias entry = sampling->bias[i];
        if (entry.token >= vocab)
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "logit bias of token %u, expected an id below %u", entry.token,
                                vocab);
        if (isnan(entry.bias) || (isinf(entry.bias) && entry.bias > 0))
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "logit bias of token %u is %g, expected a number or -inf",
                                entry.token, (double)entry.bias);
    }
    return descent_ok(status);
}

descent_code descent_sampling_check(const descent_sampling *sampling, uint32_t vocab, descent_status *status)
{
    if (!sampling) return descent_fail(status, DESCENT_BAD_ARGUMENT, "sampling is NULL");
    const struct {
        const char *name, *expected;
        float value;
        bool good; /* a NaN fails every comparison */
    } fields[] = {
        {"temperature", "a finite number of at least 0", sampling->temperature, sampling->temperature >= 0},
        {"top_p", "above 0 and at most 1", sampling->top_p, sampling->top_p > 0 && sampling->top_p <= 1},
        {"min_p", "0 to 1", sampling->min_p, sampling->min_p >= 0 && sampling->min_p <= 1},
        {"typical_p", "above 0 and at most 1", sampling->typical_p, sampling->typical_p > 0 && sampling->typical_p <= 1},
        {"repetition_penalty", "a finite number above 0", sampling->repetition_penalty, sampling->repetition_penalty > 0},
        {"presence_penalty", "a finite number", sampling->presence_penalty, true},
        {"frequency_penalty", "a finite number", sampling->frequency_penalty, true},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (!fields[i].good || !isfinite(fields[i].value))
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "%s is %g, expected %s", fields[i].name, (double)fields[i].value,
                                fields[i].expected);
    return check_bias(sampling, vocab, status);
}

static descent_code check_call(const float *logits, uint32_t vocab, const uint32_t *tokens, size_t count, size_t prompt_count,
                               const uint32_t *token, descent_status *status)
{
    if (!logits || !token || (count > 0 && !tokens))
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "%s is NULL", !logits ? "logits" : !token ? "token" : "tokens");
    if (prompt_count > count)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "the prompt has %zu tokens, expected at most the text's %zu",
                            prompt_count, count);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] >= vocab)
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "token %zu is %u, expected an id below %u", i, tokens[i], vocab);
    for (uint32_t id = 0; id < vocab; id++)
        if (!isfinite(logits[id]))
            return descent_fail(status, DESCENT_DIVERGED, "the logit of token %u is %g, expected a finite number", id,
                                (double)logits[id]);
    return DESCENT_OK;
}

static descent_code penalize(const descent_sampling *sampling, const uint32_t *tokens, size_t count, size_t prompt_count,
                             distribution *d, descent_status *status)
{
    bool repetition = sampling->repetition_penalty != 1.0f;
    if (!repetition && sampling->presence_penalty == 0.0f && sampling->frequency_penalty == 0.0f) return DESCENT_OK;

    struct seen {
        bool anywhere;
        size_t generated;
    } *seen = descent_alloc(d->vocab, sizeof *seen);
    if (!seen) return descent_fail(status, DESCENT_NO_MEMORY, "no memory to count the occurrences of %u tokens", d->vocab);
    for (size_t i = 0; i < count; i++) {
        seen[tokens[i]].anywhere = true;
        if (i >= prompt_count) seen[tokens[i]].generated++;
    }
    for (uint32_t id = 0; id < d->vocab; id++) {
        double logit = d->logit[id];
        if (repetition && seen[id].anywhere)
            logit = logit > 0 ? logit / (double)sampling->repetition_penalty : logit * (double)sampling->repetition_penalty;
        if (seen[id].generated > 0)
            logit -= (double)sampling->presence_penalty + (double)sampling->frequency_penalty * (double)seen[id].generated;
        d->logit[id] = logit;
    }
    free(seen);
    return DESCENT_OK;
}

/* Takes out what may not be sampled however likely it is. */
static void ban(const descent_sampling *sampling, const descent_tokenizer *tokenizer, size_t generated, distribution *d)
{
    if (!tokenizer) return;
    int64_t eos = descent_tokenizer_describe(tokenizer)->eos;
    bool ends = !sampling->ignore_eos && generated >= sampling->min_tokens;
    for (uint32_t id = 0; id < d->vocab; id++) {
        bool allowed = (int64_t)id == eos ? ends : descent_tokenizer_has_text(tokenizer, id);
        if (!allowed) d->logit[id] = -INFINITY;
    }
}

static uint32_t largest(const distribution *d)
{
    uint32_t best = 0;
    for (uint32_t id = 1; id < d->vocab; id++)
        if (d->logit[id] > d->logit[best]) best = id;
    return best;
}

/* A token on its way through a filter; the larger key is kept first, the lower id among equals. */
typedef struct {
    double key;
    uint32_t id;
} candidate;

static bool before(candidate a, candidate b)
{
    return a.key > b.key || (a.key == b.key && a.id < b.id);
}

static void sift_down(candidate *heap, size_t n, size_t i)
{
    candidate moving = heap[i];
    for (size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], moving)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}

static double total_weight(const distribution *d)
{
    double total = 0;
    for (uint32_t id = 0; id < d->vocab; id++) total += d->weight[id];
    return total;
}

/* Keeps the first of the n candidates, in the order of their keys, until `most` are kept or those kept weigh `mass` of
 * the whole distribution; the others leave it. Only what is kept gets sorted: O(n + kept log n). */
static void keep_first(distribution *d, candidate *heap, size_t n, size_t most, float mass)
{
    double total = total_weight(d), kept = 0;
    for (size_t i = n / 2; i-- > 0;) sift_down(heap, n, i);
    for (size_t taken = 0; n > 0 && taken < most && (float)(kept / total) < mass; taken++) {
        kept += d->weight[heap[0].id];
        heap[0] = heap[--n];
        if (n > 0) sift_down(heap, n, 0);
    }
    for (size_t i = 0; i < n; i++) d->weight[heap[i].id] = 0;
}

static size_t list_by_logit(const distribution *d, candidate *list)
{
    size_t n = 0;
    for (uint32_t id = 0; id < d->vocab; id++)
        if (d->weight[id] > 0) list[n++] = (candidate){d->logit[id], id};
    return n;
}

/* Locally typical sampling: first those whose surprise, -log p, is nearest to the expected surprise, the entropy. */
static size_t list_by_typicality(const distribution *d, candidate *list)
{
    double total = total_weight(d), entropy = 0;
    size_t n = 0;
    for (uint32_t id = 0; id < d->vocab; id++) {
        if (!(d->weight[id] > 0)) continue;
        double p = d->weight[id] / total;
        double surprise = -log(d->weight[id]) + log(total);
        entropy += p * surprise;
        list[n++] = (candidate){surprise, id};
    }
    for (size_t i = 0; i < n; i++) list[i].key = -fabs(list[i].key - entropy);
    return n;
}

static void keep_likely(distribution *d, float min_p)
{
    double top = 0;
    for (uint32_t id = 0; id < d->vocab; id++)
        if (d->weight[id] > top) top = d->weight[id];
    for (uint32_t id = 0; id < d->vocab; id++)
        if ((float)(d->weight[id] / top) < min_p) d->weight[id] = 0;
}

static descent_code filter(const descent_sampling *sampling, distribution *d, descent_status *status)
{
    bool top_k = sampling->top_k > 0 && (uint32_t)sampling->top_k < d->vocab;
    if (top_k || sampling->typical_p < 1 || sampling->top_p < 1) {
        candidate *list = descent_alloc(d->vocab, sizeof *list);
        if (!list) return descent_fail(status, DESCENT_NO_MEMORY, "no memory to rank %u tokens", d->vocab);
        if (top_k) keep_first(d, list, list_by_logit(d, list), (size_t)sampling->top_k, INFINITY);
        if (sampling->typical_p < 1) keep_first(d, list, list_by_typicality(d, list), d->vocab, sampling->typical_p);
        if (sampling->top_p < 1) keep_first(d, list, list_by_logit(d, list), d->vocab, sampling->top_p);
        free(list);
    }
    if (sampling->min_p > 0) keep_likely(d, sampling->min_p);
    return DESCENT_OK;
}

/* The token at which the cumulative weight passes the fraction u < 1 of the whole. */
static uint32_t draw(const distribution *d, double u)
{
    double threshold = u * total_weight(d), cumulative = 0;
    uint32_t chosen = 0;
    for (uint32_t id = 0; id < d->vocab; id++) {
        if (!(d->weight[id] > 0)) continue;
        chosen = id;
        cumulative += d->weight[id];
        if (cumulative > threshold) break;
    }
    return chosen;
}

/* Steps 4 to 7 of the paragraph above. */
static descent_code choose(const descent_sampling *sampling, distribution *d, size_t position, uint32_t *token,
                           descent_status *status)
{
    uint32_t best = largest(d);
    if (d->logit[best] == -INFINITY)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "none of %u tokens may be sampled: those without text, EOS where ignore_eos or min_tokens "
                            "forbid it and those with a bias of -inf are out",
                            d->vocab);
    if (sampling->temperature == 0) {
        *token = best;
        return DESCENT_OK;
    }
    double top = d->logit[best], temperature = (double)sampling->temperature;
    for (uint32_t id = 0; id < d->vocab; id++) d->weight[id] = exp((d->logit[id] - top) / temperature);
    descent_code code = filter(sampling, d, status);
    if (code != DESCENT_OK) return code;
    *token = draw(d, descent_random_uniform(sampling->seed, sampling->prompt, sampling->choice, position));
    return DESCENT_OK;
}

descent_code descent_sample(const descent_sampling *sampling, const descent_tokenizer *tokenizer, const float *logits,
                            uint32_t vocab, const uint32_t *tokens, size_t count, size_t prompt_count, uint32_t *token,
                            descent_status *status)
{
    if (vocab == 0) return descent_fail(status, DESCENT_BAD_ARGUMENT, "vocab is 0, expected at least one token");
    descent_code code = descent_sampling_check(sampling, vocab, status);
    if (code == DESCENT_OK) code = check_call(logits, vocab, tokens, count, prompt_count, token, status);
    if (code != DESCENT_OK) return code;

    double few[2 * FEW_TOKENS]; /* memory of its own takes as long as the rest of the work, where tokens are so few */
    double *numbers = vocab <= FEW_TOKENS ? few : descent_alloc(vocab, 2 * sizeof *numbers);
    if (!numbers) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for the distribution of %u tokens", vocab);
    distribution d = {.logit = numbers, .weight = numbers + vocab, .vocab = vocab};
    for (uint32_t id = 0; id < vocab; id++) d.logit[id] = (double)logits[id];

    code = penalize(sampling, tokens, count, prompt_count, &d, status);
    if (code == DESCENT_OK) {
        for (size_t i = 0; i < sampling->n_bias; i++) d.logit[sampling->bias[i].token] += (double)sampling->bias[i].bias;
        ban(sampling, tokenizer, count - prompt_count, &d);
        code = choose(sampling, &d, count, token, status);
    }
    if (numbers != few) free(numbers);
    return code == DESCENT_OK ? descent_ok(status) : code;
}
