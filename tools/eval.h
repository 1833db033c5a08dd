/* eval.h: between eval.c, which reads the options of `descent eval` and shows what came out, and the two measurements:
 * eval_loss.c (a text) and eval_match.c (questions with answers). */
#ifndef DESCENT_TOOLS_EVAL_H
#define DESCENT_TOOLS_EVAL_H

#include "answers.h"
#include "input.h"
#include "session.h"

/* The loss of a text at one depth, summed over its predictions. */
typedef struct loss_result {
    double nats;
    double reference_nats; /* what follows is summed where there is a reference: its loss, */
    double divergence;     /* KL(reference || model) of the distributions, in nats, */
    size_t agreed;         /* and how often both find the same token likeliest */
    size_t predictions;
    uint64_t token_steps; /* row steps that the tokens took which it predicts from */
    size_t unconverged;   /* of these tokens, those whose solver was not through at T */
    uint64_t bytes;       /* of text that the predicted tokens stand for; 0 where the model has no tokenizer */
} loss_result;

/* Measures the text `tokens` [count] at each depth, results [n] in the same order. Windows of the context's length, each
 * begun anew, predict every token but the first exactly once. `reference` (NULL: none) is a model of the same vocabulary,
 * context and way of descending, read at the same depths. The result is the exit code. */
int measure_loss(const session *with, const session *reference, const uint32_t *tokens, size_t count, const asked_depth *depths,
                 size_t n, loss_result *results);

/* What became of all items at one depth. */
typedef struct match_result {
    size_t right;
    uint64_t tokens, token_steps; /* that descended, prompts included, and their row steps */
} match_result;

/* How the model answers the questions, which have answers, at each depth: results [n]. The session has a scheduler. The result
 * is the exit code. */
int measure_match(const session *with, const question_set *set, const asked_depth *depths, size_t n, match_result *results);

#endif
