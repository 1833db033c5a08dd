/* model.h: a loaded checkpoint as the engine's own files see it, and the interface a family implements.
 *
 * A family is one file and one entry in the table of model.c (and where its layers are made of interchangeable parts, as in
 * layered.c, a part is one file and one entry in a table there). It says which tensors and keys it needs and which of the
 * progressions (progression.c) its tokens take: how many row steps at a depth, and where in the network each of them lies. And
 * it advances a tile of rows by one step. Everything else (pages, sharing, batching, observing, errors) is written once, for
 * all families.
 *
 * Words: a token's *progress* is the number of row steps it has done, 0 .. total(depth). A *place* is where in the network
 * the step at some progress lies. A *plane* is what the cache keeps for one recursion step, where one block is applied T times,
 * or for one layer.
 */
#ifndef DESCENT_MODEL_H
#define DESCENT_MODEL_H

#include "descent.h"
#include "gguf.h"
#include "kernels/kernels.h"

struct tile; /* batch.h: the rows advanced together */

typedef struct place {
    uint32_t layer, kind, step; /* as in descent_site */
    uint32_t group;             /* rows of one group share their weights; groups are run in ascending order */
    uint32_t plane;             /* the plane whose history it reads and, beginning a recursion step or layer, writes */
    uint32_t level;             /* a row may run when every earlier token's level has reached its own */
} place;

/* How a token's row steps go through the network. */
typedef struct progression {
    uint32_t (*planes)(const descent_model *model, descent_depth depth);
    uint32_t (*total)(const descent_model *model, descent_depth depth);
    place (*locate)(const descent_model *model, descent_depth depth, uint32_t progress);
    /* The progress of a token whose descent stops with the step at `progress`. */
    uint32_t (*leave)(const descent_model *model, descent_depth depth, uint32_t progress);
    /* The progress at which the step of `site` lies; false where the model at that depth has no such step. */
    bool (*find)(const descent_model *model, descent_depth depth, descent_site site, uint32_t *progress);
} progression;

/* One block, applied T times; L layers of two sub-layers, each with its T or run once. */
extern const progression recurrent_progression, layered_progression;

/* What of x a model does not see: steps may then be angular (motion.c). */
typedef enum invariance { SEES_ALL, SEES_NO_LENGTH, SEES_NO_LENGTH_OR_MEAN } invariance;

typedef struct family {
    const char *name; /* general.architecture */
    const progression *progression;

    /* Reads metadata and tensors, sets info (family fields) and the sizes below. What it allocates goes to
     * model->weights and is released by unload, which is also called after a failed load. */
    descent_code (*load)(descent_model *model, descent_status *status);
    void (*unload)(descent_model *model);

    /* True where reading the energy at x(T) takes a row one step more, with a plane of its own, because history moves. */
    bool measures;

    /* x(0) of a token. */
    void (*embed)(const descent_model *model, uint32_t token, size_t position, float *x);
    /* Advances every row of the tile by the step at its place; rows are in order of sequence and position. */
    void (*step)(struct tile *tile);
    /* R at a sub-layer's step, as descent_model_rate; NULL: nothing descends. */
    bool (*rate)(const descent_model *model, uint32_t layer, uint32_t kind, uint32_t step, descent_rate *rate);
    /* out = the final norm of x. */
    void (*final_norm)(const descent_model *model, const float *x, float *out);
} family;

/* A tensor that the family multiplies by, and the matrix it became, which lies in the family's own struct. */
typedef struct file_matrix {
    const gguf_tensor *tensor; /* its data is gone where it was packed */
    const matrix *w;
    struct packed *packed; /* w's, or NULL; the model's */
} file_matrix;

struct descent_model {
    descent_model_info info;
    const family *family;
    gguf_file *file;
    descent_tokenizer *tokenizer;
    char name[128], variant[128];

    void *weights;          /* the family's own struct */
    matrix embedding;       /* [V, C] */
    matrix head;            /* [V, C] */
    const float *head_bias; /* [V] or NULL */

    size_t slot;   /* numbers a token has in one plane; parts of it that are written apart begin where slot_part says */
    size_t hidden; /* widest hidden layer */
    invariance invariance;

    size_t frozen; /* numbers a row keeps from step to step of a sub-layer, 0 where x is all */

    double history_weight; /* what log |hist(i)| is multiplied by in descent_model_history_term */
    bool strict_history;   /* tokens do not see themselves */

    file_matrix *matrices; /* [n_matrices] as model_matrix gave them out, at most one a tensor */
    size_t n_matrices;
};

/* Where in a slot the next part begins behind one of so many numbers: no block of a page has numbers of two parts. */
static inline size_t slot_part(size_t numbers)
{
    return (numbers + Q8_BLOCK - 1) / Q8_BLOCK * Q8_BLOCK;
}

extern const family nrgpt_family, cem_family, gpt_family, gpt_rec_parallel_family;

/* ---- For a family's load --------------------------------------------------------------------------------------- */

/* The key `suffix` under the model's architecture, e.g. "embedding_length" -> "nrgpt.embedding_length". */
descent_code model_u32(const descent_model *model, const char *suffix, uint32_t min, uint32_t max, uint32_t *value,
                       descent_status *status);
descent_code model_f32(const descent_model *model, const char *suffix, float *value, descent_status *status);
/* One of `choices` (ended by NULL): its index. */
descent_code model_choice(const descent_model *model, const char *suffix, const char *const *choices, uint32_t *index,
                          descent_status *status);

/* A matrix of rows x cols in any weight type, its rows possibly padded to whole blocks. A quantized one is packed, and the
 * file's memory of it given back: each tensor is asked for once. */
descent_code model_matrix(descent_model *model, const char *name, size_t rows, size_t cols, matrix *w, descent_status *status);
/* An F32 tensor of count numbers (count = rows * cols where cols is not 1). */
descent_code model_vector(descent_model *model, const char *name, size_t rows, size_t cols, const float **values,
                          descent_status *status);
bool model_has_tensor(const descent_model *model, const char *name);

/* Row r of a matrix as floats, stored in out or added to it. */
void matrix_row(const matrix *w, size_t r, float *out, bool add);

/* ---- Depth ----------------------------------------------------------------------------------------------------- */

/* Row steps of a sub-layer of a kind: its T, or the one of a kind that has none. */
uint32_t sublayer_steps(descent_depth depth, uint32_t kind);

/* Every kind that has a T has 1 .. DESCENT_MAX_STEPS steps, others 0. */
descent_code depth_check(const descent_model *model, descent_depth depth, descent_status *status);

#endif
