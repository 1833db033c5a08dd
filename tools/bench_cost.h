/* bench_cost.h: what a model's row steps cost by its shape: multiply-adds and bytes of weights, counted from metadata and
 * tensors, whatever the engine makes of them. docs/bench.md has the formulas.
 *
 * A *product* is one matrix times one vector: rows * cols multiply-adds. A matrix that is multiplied both ways in a step is two
 * products of the same bytes, so bytes are counted twice: once for every product, and once for every matrix.
 */
#ifndef DESCENT_TOOLS_BENCH_COST_H
#define DESCENT_TOOLS_BENCH_COST_H

#include "descent.h"

typedef struct weight_cost {
    uint64_t multiply_adds;
    uint64_t of_bytes;      /* of them, with matrices of quantized types, which are multiplied as bytes */
    uint64_t product_bytes; /* of each matrix as often as it is multiplied with */
    uint64_t bytes;         /* of each matrix once */
} weight_cost;

/* Sub-layers of one kind, all layers of it together. */
typedef struct kind_cost {
    weight_cost step;  /* every step */
    weight_cost entry; /* beside it on the first step of the T */
    /* Multiply-adds with what attention sees, for each token seen: in every step; and numbers of history read. */
    uint64_t attention, history;
    /* Multiply-adds of `step` that a form with keys made for every head saves where a whole prompt is computed; those of
     * bytes among them. */
    uint64_t saved_in_prompts, saved_of_bytes;
} kind_cost;

typedef struct model_cost {
    const descent_model_info *info;
    kind_cost kinds[DESCENT_MAX_KINDS];
    weight_cost head;
    bool strict; /* a token does not see itself */
} model_cost;

/* False where a key or tensor that is counted is not there. */
bool cost_of_model(const descent_model *model, model_cost *cost);

/* Steps of a kind at a depth: its T, or the one of a kind that has none. */
uint32_t cost_steps(const model_cost *cost, descent_depth depth, uint32_t kind);

/* What a token costs at a depth, without its head. `seen`: tokens its attention sees, itself among them. */
typedef struct token_cost {
    uint64_t weights, attention;    /* multiply-adds */
    uint64_t of_bytes;              /* of `weights` */
    uint64_t product_bytes;         /* of weights */
    uint64_t history;               /* numbers */
    uint64_t saved, saved_of_bytes; /* of `weights` and of `of_bytes`, as in kind_cost */
} token_cost;
token_cost cost_of_token(const model_cost *cost, descent_depth depth, uint64_t seen);

/* The value of a metadata key "ARCHITECTURE.suffix" as text; NULL where the file has none. */
const char *cost_key(const descent_model *model, const char *suffix, char *text, size_t size);

#endif
