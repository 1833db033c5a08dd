/* llama.c: Llama's sub-layers, which run once and have no energy: softmax attention over keys and values of K heads of width
 * D = C/K, and a gated MLP of width M. With g = norm(x):
 *
 *     x <- x + Wo sum_j softmax_j( R_i q_i . R_j k_j / sqrt(D) ) v_j        q, k, v = Wq g, Wk g, Wv g
 *     x <- x + down( silu(gate g) * up g )
 *
 * Called by layered.c. Plane l holds for each token R_j k_j and, behind it, v_j. Arrays are [rows][stride]. */
#include "attention.h"
#include "layered.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* NEXT_X = X + W y */
static void add_projected(const tile *t, const matrix *w, const float *y, size_t y_stride)
{
    workspace *k = t->work;
    size_t ws = k->wide_stride;
    for (size_t i = 0; i < t->n; i++)
        memcpy(k->wide[WIDE_NEXT_X] + i * ws, k->wide[WIDE_X] + i * ws, t->model->info.width * sizeof(float));
    tile_project(t, w, NULL, y, y_stride, k->wide[WIDE_NEXT_X], ws, true);
}

/* ---- Attention ------------------------------------------------------------------------------------------------- */

enum { QUERY = WIDE_OWN, KEY, VALUE, OUTPUT };

typedef struct attention {
    matrix wq, wk, wv, wo; /* [C, C]; rows kD..(k+1)D of the first three, columns of the last, are head k */
} attention;

static descent_code attention_load(descent_model *model, uint32_t l, void *weights, descent_status *status)
{
    attention *a = weights;
    size_t C = model->info.width;
    descent_code code;
    if ((code = layered_matrix(model, l, "attn_q", C, C, &a->wq, status)) != DESCENT_OK) return code;
    if ((code = layered_matrix(model, l, "attn_k", C, C, &a->wk, status)) != DESCENT_OK) return code;
    if ((code = layered_matrix(model, l, "attn_v", C, C, &a->wv, status)) != DESCENT_OK) return code;
    if ((code = layered_matrix(model, l, "attn_output", C, C, &a->wo, status)) != DESCENT_OK) return code;
    if (model->slot < slot_part(C) + C) model->slot = slot_part(C) + C;
    return DESCENT_OK;
}

static void attention_describe(const layered *w, const void *weights, char *text, size_t size)
{
    (void)w;
    (void)weights;
    (void)snprintf(text, size, "llama attention");
}

static void attention_step(const tile *t, const void *weights, energies energy)
{
    (void)energy;
    const attention *a = weights;
    const layered *w = t->model->weights;
    workspace *k = t->work;
    size_t C = t->model->info.width, ws = k->wide_stride;
    const head_layout heads = {.count = w->heads, .width = w->head_width, .keys = 0, .values = slot_part(C)};
    const float scale = 1.0f / sqrtf((float)w->head_width);
    tile_project(t, &a->wq, NULL, k->wide[WIDE_G], ws, k->wide[QUERY], ws, false);
    tile_project(t, &a->wk, NULL, k->wide[WIDE_G], ws, k->wide[KEY], ws, false);
    tile_project(t, &a->wv, NULL, k->wide[WIDE_G], ws, k->wide[VALUE], ws, false);
    for (size_t i = 0; i < t->n; i++) {
        const row *r = t->rows[i];
        layered_rotate(w, r->position, 1, k->wide[QUERY] + i * ws);
        layered_rotate(w, r->position, 1, k->wide[KEY] + i * ws);
        for (size_t c = 0; c < C; c++) k->wide[QUERY][i * ws + c] *= scale;
        (void)tile_write_key(t, r, r->where.plane, 0, k->wide[KEY] + i * ws, C);
        (void)tile_write_key(t, r, r->where.plane, slot_part(C), k->wide[VALUE] + i * ws, C);
    }
    softmax_attention(t, false, &heads, k->wide[QUERY], k->wide[OUTPUT], ws);
    add_projected(t, &a->wo, k->wide[OUTPUT], ws);
}

const sublayer_kind llama_attention = {
    .name = "llama",
    .size = sizeof(attention),
    .load = attention_load,
    .describe = attention_describe,
    .step = attention_step,
};

/* ---- MLP ------------------------------------------------------------------------------------------------------- */

enum { GATED, RAISED };

typedef struct mlp {
    matrix gate, up; /* [M, C] */
    matrix down;     /* [C, M] */
} mlp;

static descent_code mlp_load(descent_model *model, uint32_t l, void *weights, descent_status *status)
{
    mlp *m = weights;
    const layered *w = model->weights;
    size_t C = model->info.width, M = w->hidden;
    descent_code code;
    if ((code = layered_matrix(model, l, "mlp_gate", M, C, &m->gate, status)) != DESCENT_OK) return code;
    if ((code = layered_matrix(model, l, "mlp_up", M, C, &m->up, status)) != DESCENT_OK) return code;
    if ((code = layered_matrix(model, l, "mlp_down", C, M, &m->down, status)) != DESCENT_OK) return code;
    if (model->hidden < M) model->hidden = M;
    return DESCENT_OK;
}

static void mlp_describe(const layered *w, const void *weights, char *text, size_t size)
{
    (void)w;
    (void)weights;
    (void)snprintf(text, size, "swiglu mlp");
}

/* RAISED = silu(GATED) * RAISED, of one row. */
static void gate(const void *arg, size_t i, unsigned thread)
{
    (void)thread;
    const tile *t = arg;
    size_t M = ((const layered *)t->model->weights)->hidden, at = i * t->work->hidden_stride;
    float *gated = t->work->hidden[GATED] + at, *raised = t->work->hidden[RAISED] + at;
    t->kernels->silu(gated, M, gated);
    for (size_t j = 0; j < M; j++) raised[j] *= gated[j];
}

static void mlp_step(const tile *t, const void *weights, energies energy)
{
    (void)energy;
    const mlp *m = weights;
    workspace *k = t->work;
    size_t M = m->gate.rows, ws = k->wide_stride, hs = k->hidden_stride;
    float *gated = k->hidden[GATED], *raised = k->hidden[RAISED];
    tile_project(t, &m->gate, NULL, k->wide[WIDE_G], ws, gated, hs, false);
    tile_project(t, &m->up, NULL, k->wide[WIDE_G], ws, raised, hs, false);
    tile_each(t, t->n, t->n * M * 20, gate, t);
    add_projected(t, &m->down, raised, hs);
}

const sublayer_kind swiglu_mlp = {
    .name = "swiglu",
    .size = sizeof(mlp),
    .load = mlp_load,
    .describe = mlp_describe,
    .step = mlp_step,
};
