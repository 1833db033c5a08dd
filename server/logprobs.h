/* logprobs.h: log-softmax of raw logits, before temperature, penalties, bias and truncation; and the likeliest tokens. Pure. */
#ifndef DESCENT_SERVER_LOGPROBS_H
#define DESCENT_SERVER_LOGPROBS_H

#include <stddef.h>
#include <stdint.h>

enum { LOGPROBS_MOST = 20 };

typedef struct token_logprob {
    uint32_t token;
    float logprob; /* natural logarithm; -INFINITY where the logit is */
} token_logprob;

/* The logprob of `token` in logits [vocab]; sums in double, in index order. */
float logprob_of(const float *logits, uint32_t vocab, uint32_t token);
/* Those of tokens [count], with one pass over the vocabulary. */
void logprobs_of(const float *logits, uint32_t vocab, const uint32_t *tokens, size_t count, float *logprobs);
/* Fills top[0..most-1], likeliest first, the lower id first on a tie, each value exactly what logprob_of gives; returns how
 * many (fewer where the vocabulary is smaller). */
size_t logprobs_top(const float *logits, uint32_t vocab, size_t most, token_logprob *top);

#endif
