/* batch.h: rows advanced together, as a family's step sees them.
 *
 * A batch holds its rows in order of sequence and position. A step takes those that may run and hands them to the family
 * in tiles of at most workspace.most, in that order: a row's keys are written before a later row of its sequence reads them.
 * Arrays of a tile are [rows][stride] with the vector_stride of C or of the hidden width, and zero behind.
 */
#ifndef DESCENT_BATCH_H
#define DESCENT_BATCH_H

#include "cache.h"
#include "parallel.h"

enum { TILE_ROWS = 128 };

typedef struct row {
    descent_sequence *sequence;
    size_t position;
    uint32_t progress;
    place where;
    uint32_t spent;      /* row steps made, fewer than progress where a descent stopped early */
    bool moved;          /* this step gave it its next state */
    bool stops;          /* its descent stops with this step, or before it where it has not moved (exit.c) */
    bool measuring;      /* has come to its depth, or stopped, and only reads its energy there */
    float *x;            /* [C], in its page */
    float *frozen;       /* [model->frozen], kept from step to step of a sub-layer */
    float *velocity;     /* [C] d, what momentum goes on with: in its page or in `kept`; NULL: none */
    float start;         /* |x(0)|, where steps are angular */
    float *kept;         /* motion_row_numbers of them, its own; NULL: none */
    bool solved;         /* its solver is through with this step: it stops where it moves (solver.c) */
    const float *logits; /* read for its observer, until others are */
    float slope;         /* of this step, where somebody asks for it: see descent_observation */
    float own_after;     /* energy E(g(step); keys of step-1) of the step before, NaN where unknown */
    exit_memory asked;
} row;

enum { WIDE_BUFFERS = 12, HIDDEN_BUFFERS = 5, SCORE_BUFFERS = 3 };
enum { ROW_SCRATCH = 2 * DESCENT_MAX_NSTEP + 2 };

/* Arrays of a tile; which is which is the family's affair. */
typedef struct workspace {
    size_t rows;                   /* of an array: TILE_ROWS, fewer where a model is so wide that they would take too much */
    size_t most;                   /* rows of a tile, at most those */
    float *wide[WIDE_BUFFERS];     /* [rows][wide_stride] */
    float *hidden[HIDDEN_BUFFERS]; /* [rows][hidden_stride] */
    size_t wide_stride, hidden_stride;
    float *velocity; /* [rows][wide_stride] d of this step, for rows that move (motion.c) */
    double *numbers; /* [ROW_SCRATCH][wide_stride] for the move of one row */
    float *scores;   /* [threads][SCORE_BUFFERS][RUN_ROWS][score_stride] */
    size_t score_stride, score_room;
    float (*energy[2])[DESCENT_MAX_TERMS]; /* [TILE_ROWS] before and after the step */
    float *logits;                         /* [readings][V] of rows on their way; NULL where none was asked for yet */
    size_t readings;
} workspace;

typedef struct tile {
    const descent_model *model;
    const descent_cache *cache;
    const kernels *kernels;
    team *team;
    workspace *work;
    row **rows;
    size_t n;
    int watch; /* the observers' flags of all rows together */
} tile;

/* Has every product and function of the batch's steps and readings go through `k`, which outlives it: kernels_get() but for
 * whoever watches the products (importance.c). */
void batch_set_kernels(descent_batch *b, const kernels *k);

/* Whose threads take part in the batch's steps. */
team *batch_team(const descent_batch *b);

/* The bucket, of DESCENT_ROW_BUCKETS, that a number from 1 on counts in. */
size_t bucket_of(size_t number);

/* A row of the sequence only reads its energy at x(T): taken out now, it never will. */
bool batch_measures(const descent_batch *b, const descent_sequence *s);

/* descent_batch_logits also of tokens that are on their way, as they stand: they must have done a step, in a model that
 * deepens. */
descent_code batch_logits_so_far(descent_batch *batch, const descent_reading *readings, size_t count, float *logits,
                                 descent_status *status);

/* ---- For a family's step (step.c) ------------------------------------------------------------------------------- */

/* Y = X W^T + bias, rows of X [n][x_stride], Y [n][y_stride]; Y += ... with add. bias may be NULL. */
void tile_project(const tile *t, const matrix *w, const float *bias, const float *x, size_t x_stride, float *y, size_t y_stride,
                  bool add);
/* Y = U W. */
void tile_project_back(const tile *t, const matrix *w, const float *u, size_t u_stride, float *y, size_t y_stride, bool add);

/* Work is counted in multiply-adds of floats: an exponential is some 20, and a weight or key that is read once for all rows
 * that it meets READING. */
enum { READING = 3 };

/* part(arg, i, thread) for every i below n, on the team's threads where that much work is worth sharing, else in order. */
void tile_each(const tile *t, size_t n, size_t work, team_part part, const void *arg);

/* How many of n parts of equal work the busiest thread does, and whether the team is busy most of that time. */
size_t tile_rounds(const tile *t, size_t n);
bool tile_even(const tile *t, size_t n);

/* Hidden layers: what enters is multiplied with a hidden unit's weights, and what comes of it with the same, or others, on the
 * way out. They are computed PRODUCT_GROUP units at a time, in one pass over the weights.
 *
 * hidden_units fills columns [first, last) of the arrays [n][hidden_stride] that the sums read, on the calling thread. It is
 * the family's affair; first is a multiple of PRODUCT_CUT. */
typedef void (*hidden_units)(const tile *t, const void *arg, size_t first, size_t last);

/* out = sum over hidden units f of in[f] w_f, w_f being row f of W or, with `columns`, its column f: of PRODUCT_GROUP units
 * at a time, the groups' sums added in order. out and scratch are [n][wide_stride]; scratch has work->rows rows. */
typedef struct hidden_sum {
    const matrix *w;
    bool columns;
    const float *in;
    float *out, *scratch;
} hidden_sum;

/* Fills all `hidden` units, which is that much work for the tile, and forms the sums. */
void tile_hidden(const tile *t, size_t hidden, size_t work, hidden_units units, const void *arg, const hidden_sum *sums,
                 size_t n_sums);

/* For parts of a tile's work: rows [first, last) of a product, with their bias (or NULL), on the calling thread. */
void tile_project_rows(const tile *t, const matrix *w, const float *bias, const float *x, size_t x_stride, float *y,
                       size_t y_stride, size_t first, size_t last);

/* Bytes of memory that a product with W reads. */
size_t matrix_bytes(const matrix *w);

/* Work of a product with the tile's rows: small integers are faster than floats. */
size_t tile_product_work(const tile *t, const matrix *w);

/* Copies the rows' states into X, with their interventions on x; puts the next states back. A row whose next state is not
 * finite ends its sequence, and the rows of sequences that have ended stay as they were. */
void tile_gather(const tile *t, float *x);
void tile_scatter(const tile *t, const float *x);
/* Applies interventions on g. */
void tile_intervene_g(const tile *t, float *g);

/* Writes `count` numbers into a row's slot of a plane from number `offset` on, rounded to the page type. False when one of
 * them is not finite there: the row's sequence has then ended, unless the row was only measuring. */
bool tile_write_key(const tile *t, const row *r, uint32_t plane, size_t offset, const float *values, size_t count);

/* The observer's flags of a row, 0 where nobody looks at this step of it. */
int row_watch(const row *r);
/* Somebody looks, and there is a step to be seen. */
bool row_observed(const row *r);
/* Some row makes a step: not all only read their energy. */
bool tile_moves(const tile *t);

/* Reports what a step was to the observer of row i. `before` and `after` are its energies with the keys of this step at g
 * and at the next g (where asked for); x, g and next_g may be NULL where nobody wants them. */
typedef struct step_record {
    const float *x, *g;           /* before the step */
    const float *next_x, *next_g; /* after it; NULL when there was none */
    const float *before, *after;  /* [terms] or NULL */
    const float *logits;          /* [V] at x, or NULL */
    bool final;
} step_record;
void tile_report(const tile *t, size_t i, const step_record *record);

/* The same for every observed row, from arrays [rows][wide_stride], and behind a sub-layer's last step its reading at x(T)
 * where that was asked for: for families in which nothing of x(T) needs a history of its own. `energy`: work->energy holds the
 * energies before and after. */
void tile_report_steps(const tile *t, const float *x, const float *g, const float *next_x, const float *next_g, bool energy,
                       float *scratch);

/* Logits of `count` states [C], in work->logits, through one product for as many as a tile has; scratch is
 * [work->rows][wide_stride]. There is room for work->readings where somebody asks. */
void tile_read_logits(const tile *t, const float *const *states, size_t count, float *scratch);

/* Reads the logits at x [rows][wide_stride] of rows from `first` on whose observers ask for them, as many as there is room for:
 * row.logits, NULL of the others. Returns the first row not looked at. `ends`: only of rows whose sub-layer ends with this
 * step. */
size_t tile_read_observed(const tile *t, size_t first, const float *x, bool ends, float *scratch);

/* Gives rows whose observer asks for it their slope, from x, the gradient at g and what R makes of that, all
 * [rows][wide_stride]; `factor` [rows] multiplies R, NULL: 1. */
struct slope_norm;
void tile_slopes(const tile *t, const struct slope_norm *norm, const float *x, const float *gradient, const float *rated,
                 const float *factor);

/* Sum of a_i b_i in double. */
double dot(const float *a, const float *b, size_t n);

#endif
