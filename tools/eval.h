/* eval.h: between eval.c, which reads the options of `descent eval` and shows what came out, and the two measurements:
 * eval_loss.c (a text) and eval_match.c (questions with answers). */
#ifndef DESCENT_TOOLS_EVAL_H
#define DESCENT_TOOLS_EVAL_H

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
    uint64_t bytes;       /* of text that the predicted tokens stand for; 0 where the model has no tokenizer */
} loss_result;

/* Measures the text `tokens` [count] at each depth, results [n] in the same order. Windows of the context's length, each
 * begun anew, predict every token but the first exactly once. `reference` (NULL: none) is a model of the same vocabulary,
 * context and way of descending, read at the same depths. The result is the exit code. */
int measure_loss(const session *with, const session *reference, const uint32_t *tokens, size_t count, const asked_depth *depths,
                 size_t n, loss_result *results);

typedef struct match_item {
    uint32_t *prompt; /* up to and with the first "="; released with descent_free */
    size_t prompt_count;
    char *answer;         /* owned by the item */
    int64_t answer_token; /* the token that spells it alone; -1 where it takes several */
} match_item;

typedef struct match_set {
    match_item *items;
    size_t count;
} match_set;

/* Reads lines "prompt TAB answer". The result is the exit code; match_set_release in any case. */
int read_matches(const session *with, const char *path, match_set *set);
void match_set_release(match_set *set);

/* What became of all items at one depth. */
typedef struct match_result {
    size_t right;
    uint64_t tokens, token_steps; /* that descended, prompts included, and their row steps */
} match_result;

/* How the model answers at each depth: results [n]. The result is the exit code. */
int measure_match(const session *with, const match_set *set, const asked_depth *depths, size_t n, match_result *results);

/* Texts that descend side by side at `depth`, `tokens` each: as many as `rows`, those of the batch, allow, 1..64, fewer where
 * the cache would not hold them. */
size_t texts_side_by_side(const session *with, size_t rows, size_t tokens, descent_depth depth);

#endif
