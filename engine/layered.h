/* layered.h: what a kind of sub-layer implements, and what layered.c gives it.
 *
 * A layered model is L layers of two sub-layers, attention and MLP, all attentions of one kind and all MLPs of one:
 *
 *     g = norm(x),   x <- x + (what the kind makes of g),   once, or T times where the kind is a descent
 *
 * A kind is one file's affair and one entry in the table of layered.c, which owns the rest: the embedding, norms and rotations,
 * reaching in and observing. A row step is one step of one sub-layer of one layer (layered_progression), and rows of one
 * sub-layer share its weights. Plane l is the history that layer l's attention keeps. Arrays are [rows][stride], C the width.
 */
#ifndef DESCENT_LAYERED_H
#define DESCENT_LAYERED_H

#include "batch.h"

enum { ATTENTION, MLP, SUBLAYERS };

/* Arrays of workspace.wide that layered.c and the kinds hand each other; those from WIDE_OWN on are the kind's. */
enum { WIDE_X, WIDE_G, WIDE_NEXT_X, WIDE_NEXT_G, WIDE_OWN };

typedef float (*energies)[DESCENT_MAX_TERMS]; /* [rows of the tile] */

struct layered;

typedef struct sublayer_kind {
    const char *name; /* what the file calls it */
    size_t size;      /* of the struct that holds one layer's weights */

    /* Reads layer l's tensors, and the settings all layers share, into zeroed weights; raises the model's slot, hidden and
     * frozen to what it needs. unload (NULL: nothing to do) is also called where load failed. */
    descent_code (*load)(descent_model *model, uint32_t l, void *weights, descent_status *status);
    void (*unload)(void *weights);
    /* Its part of descent_model_info.variant; the other kinds of w are known. */
    void (*describe)(const struct layered *w, const void *weights, char *text, size_t size);

    /* NEXT_X from X and G; a row's step is in its place. `energy` (NULL: not asked for) receives E at G. */
    void (*step)(const tile *t, const void *weights, energies energy);
    /* R at a step, beside the norm's weight; false without memory. NULL where `energy` is. */
    bool (*rate)(const descent_model *model, const void *weights, const float *norm, uint32_t step, descent_rate *rate);
    /* E at g of rows that have just made a step, their history as it was then. NULL: the kind is no descent and runs once. */
    void (*energy)(const tile *t, const void *weights, const float *g, energies energy);
} sublayer_kind;

extern const sublayer_kind cem_attention, cem_mlp;
extern const sublayer_kind llama_attention, swiglu_mlp;

/* model->weights. */
typedef struct layered {
    const sublayer_kind *kind[SUBLAYERS];
    char *weights[SUBLAYERS];       /* [layers] of kind->size bytes */
    const float **norms[SUBLAYERS]; /* [layers] of [C] */
    const float *final_norm;        /* [C] */
    float eps;
    uint32_t heads, head_width, hidden; /* K, D = C/K even, M */
    float *rotation;                    /* [context][D/2] pairs (cos, sin) */
} layered;

/* Turns every head of y [C] by the rotation of a position, forwards (+1) or back (-1). */
void layered_rotate(const layered *w, size_t position, float direction, float *y);

/* The rows that begin this sub-layer, and copies of their g in `copied`. `chosen` [TILE_ROWS] becomes the new tile's rows. */
tile layered_beginning(const tile *t, const float *g, row **chosen, float *copied);

/* blk.{l}.{part}.weight, e.g. "attn_q". Returns name. */
const char *layered_tensor(char name[64], uint32_t l, const char *part);
/* The matrix or vector of that name. */
descent_code layered_matrix(descent_model *model, uint32_t l, const char *part, size_t rows, size_t cols, matrix *w,
                            descent_status *status);
descent_code layered_vector(descent_model *model, uint32_t l, const char *part, size_t rows, size_t cols, const float **values,
                            descent_status *status);

#endif
