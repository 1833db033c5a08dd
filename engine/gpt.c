/* gpt.c: the transformers that energy models are compared with (the baselines of arXiv 2512.16762), which have no energy:
 *
 *     gpt               L blocks, each  x += attention(norm1 x),  then  x += feed_forward(norm2 x)
 *     gpt-rec-parallel  one block T times,  x(t+1) = x(t) + attention(norm1 x(t)) + feed_forward(norm2 x(t))
 *
 *     attention(g)_i  = W_O [ sum_j softmax_j( q_hi . k_hj / sqrt(D) ) v_hj ]_h + b_O,   q, k, v = W_Q g, W_K g, W_V g,   j <=
 * i feed_forward(g) = W_down relu( W_up g + b_up ) + b_down
 *
 * A row step of gpt is one sub-layer of one block, of gpt-rec-parallel one application of the block. Plane l (the block's, or
 * the step's) holds each token's keys and behind them its values, H heads of D = floor(C/H) numbers. As in NRGPT x(t) does not
 * depend on T, so the recurrent one deepens. Arrays are [rows][stride] over the tile; F is the hidden width. */
#include "attention.h"
#include "sequence.h"
#include "status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTENTION, FEED_FORWARD }; /* kinds of gpt */

typedef struct layer_norm {
    const float *weight, *bias; /* [C] */
} layer_norm;

typedef struct block {
    layer_norm norm1, norm2;
    matrix q, k, v;  /* [H D, C], rows hD..(h+1)D are head h */
    matrix out;      /* [C, H D] */
    matrix up, down; /* [F, C], [C, F] */
    const float *out_bias, *up_bias, *down_bias;
} block;

typedef struct gpt {
    uint32_t heads, head_width, hidden;
    float eps;
    matrix positions; /* [context, C] */
    layer_norm final_norm;
    block *blocks;
} gpt;

/* ---- Loading --------------------------------------------------------------------------------------------------- */

static descent_code load_settings(descent_model *model, gpt *w, descent_status *status)
{
    uint32_t C = model->info.width;
    descent_code code;
    if ((code = model_u32(model, "attention.head_count", 1, C, &w->heads, status)) != DESCENT_OK) return code;
    if ((code = model_u32(model, "feed_forward_length", 1, 1u << 24, &w->hidden, status)) != DESCENT_OK) return code;
    if ((code = model_f32(model, "norm_epsilon", &w->eps, status)) != DESCENT_OK) return code;
    if (!(w->eps >= 0))
        return descent_fail(status, DESCENT_BAD_FILE, "%s.norm_epsilon is %g; expected 0 or more", model->family->name,
                            (double)w->eps);
    if (model->info.layers > gguf_tensor_count(model->file))
        return descent_fail(status, DESCENT_BAD_FILE, "%s.block_count is %u; the file has only %zu tensors",
                            model->family->name, model->info.layers, gguf_tensor_count(model->file));
    w->head_width = C / w->heads;
    (void)snprintf(model->variant, sizeof model->variant, "%u heads of %u, relu", w->heads, w->head_width);
    return DESCENT_OK;
}

static descent_code load_block(descent_model *model, uint32_t l, block *b, descent_status *status)
{
    const gpt *w = model->weights;
    size_t C = model->info.width, F = w->hidden, A = (size_t)w->heads * w->head_width;
    const struct {
        const char *part;
        size_t rows, cols;
        matrix *to;
    } matrices[] = {{"attn_q", A, C, &b->q},        {"attn_k", A, C, &b->k},  {"attn_v", A, C, &b->v},
                    {"attn_output", C, A, &b->out}, {"ffn_up", F, C, &b->up}, {"ffn_down", C, F, &b->down}};
    const struct {
        const char *part;
        size_t count;
        const float **to;
    } vectors[] = {{"attn_norm.weight", C, &b->norm1.weight}, {"attn_norm.bias", C, &b->norm1.bias},
                   {"attn_output.bias", C, &b->out_bias},     {"ffn_norm.weight", C, &b->norm2.weight},
                   {"ffn_norm.bias", C, &b->norm2.bias},      {"ffn_up.bias", F, &b->up_bias},
                   {"ffn_down.bias", C, &b->down_bias}};
    char name[64];
    descent_code code = DESCENT_OK;
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices && code == DESCENT_OK; i++) {
        (void)snprintf(name, sizeof name, "blk.%u.%s.weight", l, matrices[i].part);
        code = model_matrix(model, name, matrices[i].rows, matrices[i].cols, matrices[i].to, status);
    }
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors && code == DESCENT_OK; i++) {
        (void)snprintf(name, sizeof name, "blk.%u.%s", l, vectors[i].part);
        code = model_vector(model, name, vectors[i].count, 1, vectors[i].to, status);
    }
    return code;
}

static descent_code load_ends(descent_model *model, gpt *w, descent_status *status)
{
    size_t C = model->info.width, V = model->info.vocab;
    descent_code code;
    if ((code = model_matrix(model, "position_embd.weight", model->info.context, C, &w->positions, status)) != DESCENT_OK)
        return code;
    if ((code = model_vector(model, "output_norm.weight", C, 1, &w->final_norm.weight, status)) != DESCENT_OK) return code;
    if ((code = model_vector(model, "output_norm.bias", C, 1, &w->final_norm.bias, status)) != DESCENT_OK) return code;
    if ((code = model_matrix(model, "output.weight", V, C, &model->head, status)) != DESCENT_OK) return code;
    return model_vector(model, "output.bias", V, 1, &model->head_bias, status);
}

static descent_code load(descent_model *model, descent_status *status)
{
    gpt *w = calloc(1, sizeof *w);
    if (!w) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a model");
    model->weights = w;
    descent_code code = load_settings(model, w, status);
    if (code != DESCENT_OK) return code;
    w->blocks = calloc(model->info.layers, sizeof *w->blocks);
    if (!w->blocks) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %u layers", model->info.layers);
    for (uint32_t l = 0; l < model->info.layers; l++)
        if ((code = load_block(model, l, &w->blocks[l], status)) != DESCENT_OK) return code;
    size_t values = (size_t)w->heads * w->head_width;
    model->slot = slot_part(values) + values;
    model->hidden = w->hidden;
    return load_ends(model, w, status);
}

static descent_code load_sequential(descent_model *model, descent_status *status)
{
    descent_code code = load(model, status);
    if (code != DESCENT_OK) return code;
    model->info.kinds = 2;
    model->info.kind_names[ATTENTION] = "attention";
    model->info.kind_names[FEED_FORWARD] = "feed_forward";
    return DESCENT_OK;
}

static descent_code load_recurrent(descent_model *model, descent_status *status)
{
    uint32_t steps;
    descent_code code = model_u32(model, "steps", 1, DESCENT_MAX_STEPS, &steps, status);
    if (code != DESCENT_OK) return code;
    if (model->info.layers != 1)
        return descent_fail(status, DESCENT_BAD_FILE, "%s.block_count is %u; such a model has one block", model->family->name,
                            model->info.layers);
    model->info.kinds = 1;
    model->info.kind_names[0] = "block";
    model->info.trained.steps[0] = (uint16_t)steps;
    model->info.deepens = true;
    return load(model, status);
}

static void unload(descent_model *model)
{
    gpt *w = model->weights;
    if (w) free(w->blocks);
    free(w);
}

/* ---- Both ends -------------------------------------------------------------------------------------------------- */

/* x_i(0) = token_embedding[id_i] + position_embedding[i] */
static void embed(const descent_model *model, uint32_t token, size_t position, float *x)
{
    const gpt *w = model->weights;
    matrix_row(&model->embedding, token, x, false);
    matrix_row(&w->positions, position, x, true);
}

static void final_norm(const descent_model *model, const float *x, float *out)
{
    const gpt *w = model->weights;
    kernels_get()->layer_norm(x, model->info.width, w->final_norm.weight, w->final_norm.bias, w->eps, out);
}

/* ---- Sub-layers ------------------------------------------------------------------------------------------------ */

enum wide { X, G, NEXT_X, NEXT_G, QUERY, KEY, VALUE, MIXED, ATTENDED, FED };
enum hidden { Z };

static void normalize(const tile *t, const layer_norm *n, const float *x, float *g)
{
    const gpt *w = t->model->weights;
    size_t C = t->model->info.width, ws = t->work->wide_stride;
    for (size_t i = 0; i < t->n; i++) t->kernels->layer_norm(x + i * ws, C, n->weight, n->bias, w->eps, g + i * ws);
}

/* Keys, and behind them values, of every row into its slot of the plane. */
static void write_history(const tile *t, const block *b, const float *g)
{
    workspace *k = t->work;
    size_t ws = k->wide_stride, A = b->k.rows;
    tile_project(t, &b->k, NULL, g, ws, k->wide[KEY], ws, false);
    tile_project(t, &b->v, NULL, g, ws, k->wide[VALUE], ws, false);
    for (size_t i = 0; i < t->n; i++) {
        const row *r = t->rows[i];
        (void)tile_write_key(t, r, r->where.plane, 0, k->wide[KEY] + i * ws, A);
        (void)tile_write_key(t, r, r->where.plane, slot_part(A), k->wide[VALUE] + i * ws, A);
    }
}

/* ATTENDED = attention(g) */
static void attend(const tile *t, const block *b, const float *g)
{
    const gpt *w = t->model->weights;
    workspace *k = t->work;
    size_t ws = k->wide_stride, A = b->q.rows;
    float scale = 1.0f / sqrtf((float)w->head_width);
    write_history(t, b, g);
    tile_project(t, &b->q, NULL, g, ws, k->wide[QUERY], ws, false);
    for (size_t i = 0; i < t->n; i++)
        for (size_t a = 0; a < A; a++) k->wide[QUERY][i * ws + a] *= scale;
    head_layout heads = {.count = w->heads, .width = w->head_width, .keys = 0, .values = slot_part(A)};
    softmax_attention(t, false, &heads, k->wide[QUERY], k->wide[MIXED], ws);
    tile_project(t, &b->out, b->out_bias, k->wide[MIXED], ws, k->wide[ATTENDED], ws, false);
}

/* FED = feed_forward(g) */
static void feed(const tile *t, const block *b, const float *g)
{
    const gpt *w = t->model->weights;
    workspace *k = t->work;
    size_t ws = k->wide_stride, hs = k->hidden_stride;
    float *z = k->hidden[Z];
    tile_project(t, &b->up, b->up_bias, g, ws, z, hs, false);
    for (size_t i = 0; i < t->n; i++)
        for (size_t f = 0; f < w->hidden; f++)
            if (z[i * hs + f] < 0) z[i * hs + f] = 0; /* what is not a number stays so, and is found in x */
    tile_project(t, &b->down, b->down_bias, z, hs, k->wide[FED], ws, false);
}

/* ---- The step -------------------------------------------------------------------------------------------------- */

/* `norm` is what x and the next x are looked at through. */
static void observe(const tile *t, const layer_norm *norm)
{
    workspace *k = t->work;
    normalize(t, norm, k->wide[NEXT_X], k->wide[NEXT_G]);
    tile_report_steps(t, k->wide[X], k->wide[G], k->wide[NEXT_X], k->wide[NEXT_G], false, k->wide[QUERY]);
}

/* NEXT_X = X + a (+ b) */
static void add(const tile *t, const float *a, const float *b)
{
    workspace *k = t->work;
    size_t C = t->model->info.width, ws = k->wide_stride;
    for (size_t i = 0; i < t->n; i++)
        for (size_t c = i * ws; c < i * ws + C; c++) k->wide[NEXT_X][c] = k->wide[X][c] + a[c] + (b ? b[c] : 0.0f);
}

/* x += attention(norm1 x), or x += feed_forward(norm2 x) */
static void sequential_step(tile *t)
{
    const gpt *w = t->model->weights;
    workspace *k = t->work;
    bool attention = t->rows[0]->where.kind == ATTENTION;
    const block *b = &w->blocks[t->rows[0]->where.layer];
    const layer_norm *norm = attention ? &b->norm1 : &b->norm2;
    tile_gather(t, k->wide[X]);
    normalize(t, norm, k->wide[X], k->wide[G]);
    tile_intervene_g(t, k->wide[G]);
    if (attention)
        attend(t, b, k->wide[G]);
    else
        feed(t, b, k->wide[G]);
    add(t, attention ? k->wide[ATTENDED] : k->wide[FED], NULL);
    tile_scatter(t, k->wide[NEXT_X]);
    if (t->watch) observe(t, norm);
}

/* x(t+1) = x(t) + attention(norm1 x(t)) + feed_forward(norm2 x(t)); g, for who looks and reaches in, is norm1 x. */
static void recurrent_step(tile *t)
{
    const gpt *w = t->model->weights;
    workspace *k = t->work;
    const block *b = &w->blocks[0];
    tile_gather(t, k->wide[X]);
    normalize(t, &b->norm2, k->wide[X], k->wide[G]);
    feed(t, b, k->wide[G]);
    normalize(t, &b->norm1, k->wide[X], k->wide[G]);
    tile_intervene_g(t, k->wide[G]);
    attend(t, b, k->wide[G]);
    add(t, k->wide[ATTENDED], k->wide[FED]);
    tile_scatter(t, k->wide[NEXT_X]);
    if (t->watch) observe(t, &b->norm1);
}

const family gpt_family = {
    .name = "gpt",
    .progression = &layered_progression,
    .load = load_sequential,
    .unload = unload,
    .embed = embed,
    .step = sequential_step,
    .final_norm = final_norm,
};

const family gpt_rec_parallel_family = {
    .name = "gpt-rec-parallel",
    .progression = &recurrent_progression,
    .load = load_recurrent,
    .unload = unload,
    .embed = embed,
    .step = recurrent_step,
    .final_norm = final_norm,
};
