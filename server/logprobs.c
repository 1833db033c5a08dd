/* logprobs.c: see logprobs.h. logprob = logit - log sum exp, shifted by the largest logit. Called for every token whose
 * logprobs are asked for, by transcript.c on a scheduler's thread, so one pass over the vocabulary for the sum and one for the
 * likeliest. */
#include "logprobs.h"

#include <math.h>

/* log sum exp of the logits is largest + log_sum; kept apart, since logits may be so large that their sum shows no log_sum. */
typedef struct normalizer {
    double largest, log_sum;
} normalizer;

static normalizer normalize(const float *logits, uint32_t vocab)
{
    float largest = -INFINITY;
    double sum = 0;
    for (uint32_t i = 0; i < vocab; i++)
        if (logits[i] > largest) largest = logits[i];
    for (uint32_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - (double)largest);
    return (normalizer){(double)largest, log(sum)};
}

static float logprob(float logit, normalizer n)
{
    return (float)((double)logit - n.largest - n.log_sum);
}

float logprob_of(const float *logits, uint32_t vocab, uint32_t token)
{
    return logprob(logits[token], normalize(logits, vocab));
}

void logprobs_of(const float *logits, uint32_t vocab, const uint32_t *tokens, size_t count, float *logprobs)
{
    normalizer n = normalize(logits, vocab);
    for (size_t i = 0; i < count; i++) logprobs[i] = logprob(logits[tokens[i]], n);
}

size_t logprobs_top(const float *logits, uint32_t vocab, size_t most, token_logprob *top)
{
    size_t count = 0;
    for (uint32_t i = 0; i < vocab && most > 0; i++) {
        if (count == most && !(logits[i] > logits[top[count - 1].token])) continue;
        size_t at = count < most ? count++ : count - 1;
        for (; at > 0 && logits[i] > logits[top[at - 1].token]; at--) top[at] = top[at - 1];
        top[at].token = i;
    }
    normalizer n = normalize(logits, vocab);
    for (size_t i = 0; i < count; i++) top[i].logprob = logprob(logits[top[i].token], n);
    return count;
}
