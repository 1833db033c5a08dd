/* attention.h: scores, softmax and weighted sums over pages of history, one head at a time.
 *
 * A *run* is up to RUN_ROWS neighbouring rows of one sequence that read the same plane. Their queries are multiplied with
 * a page at once, the page being a matrix whose rows are token slots. Positions are visited from 0 in order.
 *
 * What a slot holds is the family's affair: keys and values are ranges of its columns, one range where a family's keys are its
 * values too. The pieces take ranges as they are; softmax_attention is the whole of it for families that keep both.
 */
#ifndef DESCENT_ATTENTION_H
#define DESCENT_ATTENTION_H

#include "batch.h"
#include "sequence.h"

enum { RUN_ROWS = 16 };

typedef struct run {
    size_t first, n; /* rows of the tile */
    const descent_sequence *sequence;
    uint32_t plane;
    size_t longest;        /* tokens the last row sees */
    size_t sees[RUN_ROWS]; /* tokens each row sees, ascending */
} run;

/* Cuts the tile into runs; row i sees position + 1 - strict tokens. `runs` has room for tile->n. Returns their number. */
size_t runs_make(const tile *t, bool strict, run *runs);

/* Work of scores and sums over the runs, per column of a slot. */
size_t runs_work(const run *runs, size_t n);

/* scores[m][j] (+)= q_m . (columns offset .. offset+width of token j's slot), j < longest. */
void run_scores(const tile *t, const run *r, size_t offset, size_t width, const float *q, size_t q_stride, float *scores,
                bool add);

/* Softmax of each row over what it sees, the rest 0. log_sum[m] = log sum exp. */
void run_softmax(const tile *t, const run *r, float *scores, float *log_sum);

/* out_m = sum_j weights[m][j] (columns offset .. offset+width of token j's slot). */
void run_gather(const tile *t, const run *r, size_t offset, size_t width, const float *weights, float *out, size_t out_stride);

/* Where softmax attention finds its heads: head h's query, key and value are columns h * width .. (h + 1) * width of a query
 * row and of the slot's two parts, which begin at columns `keys` and `values`. */
typedef struct head_layout {
    size_t count, width;
    size_t keys, values;
} head_layout;

/* out_m = for each head, sum_j softmax_j(q_m . key_j) value_j, for every row of the tile; rows of q (already scaled) and of out
 * are `stride` apart. Runs on as many threads as it is worth. */
void softmax_attention(const tile *t, bool strict, const head_layout *heads, const float *q, float *out, size_t stride);

/* The scratch of a thread of the team: SCORE_BUFFERS arrays [RUN_ROWS][score_stride]. */
float *run_scratch(const tile *t, unsigned thread, unsigned buffer);

#endif
