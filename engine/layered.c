/* layered.c: models of layers, each an attention sub-layer and an MLP sub-layer. Owns what every kind of sub-layer has in
 * common (embedding, RMSNorms, rotations, head), and what observers are told; section 2 of the mathematics. The kinds (cem.c,
 * llama.c) say what a sub-layer makes of g. See layered.h for the interface and the shapes. */
#include "layered.h"

#include "exit.h"
#include "sequence.h"
#include "status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each choice of cem.attention.kind and of cem.mlp.kind; the first is meant where the file does not say. */
static const sublayer_kind *const kinds[SUBLAYERS][3] = {
    [ATTENTION] = {&cem_attention, &llama_attention, NULL},
    [MLP] = {&cem_mlp, &swiglu_mlp, NULL},
};
static const char *const part_names[SUBLAYERS] = {"attention", "mlp"};
static const char *const tensor_parts[SUBLAYERS] = {"attn", "mlp"};

/* ---- Loading --------------------------------------------------------------------------------------------------- */

const char *layered_tensor(char name[64], uint32_t l, const char *part)
{
    (void)snprintf(name, 64, "blk.%u.%s.weight", l, part);
    return name;
}

descent_code layered_matrix(descent_model *model, uint32_t l, const char *part, size_t rows, size_t cols, matrix *w,
                            descent_status *status)
{
    char name[64];
    return model_matrix(model, layered_tensor(name, l, part), rows, cols, w, status);
}

descent_code layered_vector(descent_model *model, uint32_t l, const char *part, size_t rows, size_t cols, const float **values,
                            descent_status *status)
{
    char name[64];
    return model_vector(model, layered_tensor(name, l, part), rows, cols, values, status);
}

static descent_code choose_kind(const descent_model *model, uint32_t part, layered *w, descent_status *status)
{
    char key[64], suffix[32];
    const char *names[4] = {NULL};
    uint32_t choice = 0;
    for (size_t i = 0; kinds[part][i]; i++) names[i] = kinds[part][i]->name;
    (void)snprintf(suffix, sizeof suffix, "%s.kind", part_names[part]);
    (void)snprintf(key, sizeof key, "%s.%s", model->family->name, suffix);
    if (gguf_has(model->file, key)) {
        descent_code code = model_choice(model, suffix, names, &choice, status);
        if (code != DESCENT_OK) return code;
    }
    w->kind[part] = kinds[part][choice];
    return DESCENT_OK;
}

static void describe(descent_model *model, const layered *w)
{
    descent_model_info *info = &model->info;
    char words[SUBLAYERS][56] = {"", ""}; /* the longest: "per_head diagonal, preconditioner rank N" */
    info->kinds = SUBLAYERS;
    for (uint32_t k = 0; k < SUBLAYERS; k++) {
        info->kind_names[k] = info->term_names[k][0] = part_names[k];
        info->terms[k] = w->kind[k]->energy ? 1 : 0;
        w->kind[k]->describe(w, w->weights[k], words[k], sizeof words[k]);
    }
    (void)snprintf(model->variant, sizeof model->variant, "%s, %s, %s head", words[ATTENTION], words[MLP],
                   model->head.data == model->embedding.data ? "tied" : "own");
    info->deepens = false;
}

static descent_code load_settings(descent_model *model, layered *w, descent_status *status)
{
    uint32_t C = model->info.width;
    descent_code code;
    for (uint32_t k = 0; k < SUBLAYERS; k++) {
        uint32_t steps = 0;
        char suffix[32];
        if ((code = choose_kind(model, k, w, status)) != DESCENT_OK) return code;
        (void)snprintf(suffix, sizeof suffix, "steps.%s", part_names[k]);
        if (w->kind[k]->energy && (code = model_u32(model, suffix, 1, DESCENT_MAX_STEPS, &steps, status)) != DESCENT_OK)
            return code;
        model->info.trained.steps[k] = (uint16_t)steps;
    }
    if ((code = model_u32(model, "attention.head_count", 1, C, &w->heads, status)) != DESCENT_OK) return code;
    if ((code = model_u32(model, "feed_forward_length", 1, 1u << 24, &w->hidden, status)) != DESCENT_OK) return code;
    if ((code = model_f32(model, "norm_epsilon", &w->eps, status)) != DESCENT_OK) return code;
    if (!(w->eps >= 0))
        return descent_fail(status, DESCENT_BAD_FILE, "cem.norm_epsilon is %g; expected 0 or more", (double)w->eps);
    if (C % w->heads != 0 || C / w->heads % 2 != 0)
        return descent_fail(status, DESCENT_BAD_FILE,
                            "cem.attention.head_count is %u; expected to divide the width %u into even parts", w->heads, C);
    w->head_width = C / w->heads;
    return DESCENT_OK;
}

/* cos and sin of every position's rotation, pair (d, d + D/2) turning by position * base^(-2d/D). */
static descent_code load_rotation(const descent_model *model, layered *w, descent_status *status)
{
    enum { MOST_NUMBERS = 1 << 26 };
    float base;
    descent_code code = model_f32(model, "rope.freq_base", &base, status);
    if (code != DESCENT_OK) return code;
    if (!(base > 0))
        return descent_fail(status, DESCENT_BAD_FILE, "cem.rope.freq_base is %g; expected more than 0", (double)base);
    size_t half = w->head_width / 2, numbers = (size_t)model->info.context * half * 2;
    if (numbers > MOST_NUMBERS)
        return descent_fail(status, DESCENT_UNSUPPORTED, "cem.context_length %u times head width %u: more than %d rotations",
                            model->info.context, w->head_width, MOST_NUMBERS);
    w->rotation = descent_alloc(numbers, sizeof *w->rotation);
    if (!w->rotation) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu rotations", numbers);
    for (size_t d = 0; d < half; d++) {
        double frequency = pow((double)base, -2.0 * (double)d / (double)w->head_width);
        for (size_t i = 0; i < model->info.context; i++) {
            w->rotation[(i * half + d) * 2] = (float)cos((double)i * frequency);
            w->rotation[(i * half + d) * 2 + 1] = (float)sin((double)i * frequency);
        }
    }
    return DESCENT_OK;
}

static descent_code load_layers(descent_model *model, layered *w, descent_status *status)
{
    uint32_t layers = model->info.layers;
    char part[32];
    if (layers > gguf_tensor_count(model->file))
        return descent_fail(status, DESCENT_BAD_FILE, "cem.block_count is %u; the file has only %zu tensors", layers,
                            gguf_tensor_count(model->file));
    for (uint32_t k = 0; k < SUBLAYERS; k++) {
        w->weights[k] = calloc(layers, w->kind[k]->size);
        w->norms[k] = calloc(layers, sizeof *w->norms[k]);
        if (!w->weights[k] || !w->norms[k]) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %u layers", layers);
    }
    for (uint32_t l = 0; l < layers; l++)
        for (uint32_t k = 0; k < SUBLAYERS; k++) {
            (void)snprintf(part, sizeof part, "%s_norm", tensor_parts[k]);
            descent_code code = layered_vector(model, l, part, model->info.width, 1, &w->norms[k][l], status);
            if (code == DESCENT_OK) code = w->kind[k]->load(model, l, w->weights[k] + l * w->kind[k]->size, status);
            if (code != DESCENT_OK) return code;
        }
    return DESCENT_OK;
}

static descent_code layered_load(descent_model *model, descent_status *status)
{
    size_t C = model->info.width;
    layered *w = calloc(1, sizeof *w);
    if (!w) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a model");
    model->weights = w;
    descent_code code;
    if ((code = load_settings(model, w, status)) != DESCENT_OK) return code;
    if ((code = load_layers(model, w, status)) != DESCENT_OK) return code;
    if ((code = model_vector(model, "output_norm.weight", C, 1, &w->final_norm, status)) != DESCENT_OK) return code;
    model->head = model->embedding;
    if (model_has_tensor(model, "output.weight") &&
        (code = model_matrix(model, "output.weight", model->info.vocab, C, &model->head, status)) != DESCENT_OK)
        return code;
    if ((code = load_rotation(model, w, status)) != DESCENT_OK) return code;
    describe(model, w);
    return DESCENT_OK;
}

static void layered_unload(descent_model *model)
{
    layered *w = model->weights;
    if (!w) return;
    for (uint32_t k = 0; k < SUBLAYERS; k++) {
        for (uint32_t l = 0; w->weights[k] && w->kind[k]->unload && l < model->info.layers; l++)
            w->kind[k]->unload(w->weights[k] + l * w->kind[k]->size);
        free(w->weights[k]);
        free(w->norms[k]);
    }
    free(w->rotation);
    free(w);
}

/* ---- Both ends -------------------------------------------------------------------------------------------------- */

static void layered_embed(const descent_model *model, uint32_t token, size_t position, float *x)
{
    (void)position;
    matrix_row(&model->embedding, token, x, false);
}

static void layered_final_norm(const descent_model *model, const float *x, float *out)
{
    const layered *w = model->weights;
    kernels_get()->rms_norm(x, model->info.width, w->final_norm, w->eps, out);
}

/* ---- For the kinds ---------------------------------------------------------------------------------------------- */

void layered_rotate(const layered *w, size_t position, float direction, float *y)
{
    size_t half = w->head_width / 2;
    const float *turn = w->rotation + position * half * 2;
    for (uint32_t k = 0; k < w->heads; k++, y += w->head_width)
        for (size_t d = 0; d < half; d++) {
            float c = turn[2 * d], s = direction * turn[2 * d + 1], a = y[d], b = y[d + half];
            y[d] = a * c - b * s;
            y[d + half] = b * c + a * s;
        }
}

tile layered_beginning(const tile *t, const float *g, row **chosen, float *copied)
{
    tile begin = *t;
    begin.rows = chosen;
    begin.n = 0;
    size_t ws = t->work->wide_stride;
    for (size_t i = 0; i < t->n; i++)
        if (t->rows[i]->where.step == 0) {
            memcpy(copied + begin.n * ws, g + i * ws, t->model->info.width * sizeof *g);
            chosen[begin.n++] = t->rows[i];
        }
    return begin;
}

/* ---- The step -------------------------------------------------------------------------------------------------- */

static void normalize(const tile *t, const float *norm, const float *x, float *g)
{
    const layered *w = t->model->weights;
    size_t ws = t->work->wide_stride;
    for (size_t i = 0; i < t->n; i++) t->kernels->rms_norm(x + i * ws, t->model->info.width, norm, w->eps, g + i * ws);
}

/* Reports the step that was just made, and at its sub-layer's last one the reading at x(T): the history of a sub-layer is
 * frozen, so that reading is at hand. */
static void observe(const tile *t, bool energy)
{
    workspace *k = t->work;
    tile_report_steps(t, k->wide[WIDE_X], k->wide[WIDE_G], k->wide[WIDE_NEXT_X], k->wide[WIDE_NEXT_G], energy,
                      k->wide[WIDE_OWN]);
}

static void layered_step(tile *t)
{
    const layered *w = t->model->weights;
    workspace *k = t->work;
    uint32_t part = t->rows[0]->where.kind, l = t->rows[0]->where.layer;
    const sublayer_kind *kind = w->kind[part];
    const void *weights = w->weights[part] + l * kind->size;
    const float *norm = w->norms[part][l];
    tile_gather(t, k->wide[WIDE_X]);
    normalize(t, norm, k->wide[WIDE_X], k->wide[WIDE_G]);
    tile_intervene_g(t, k->wide[WIDE_G]);
    bool energy = kind->energy && ((t->watch & DESCENT_OBSERVE_ENERGY) || tile_weighs(t));
    kind->step(t, weights, energy ? k->energy[0] : NULL);
    tile_scatter(t, k->wide[WIDE_NEXT_X]);
    bool asks = tile_asks(t);
    if (t->watch || asks) normalize(t, norm, k->wide[WIDE_NEXT_X], k->wide[WIDE_NEXT_G]);
    if (energy) kind->energy(t, weights, k->wide[WIDE_NEXT_G], k->energy[1]);
    if (asks) tile_decide(t, k->wide[WIDE_G], k->wide[WIDE_NEXT_G]);
    if (t->watch) observe(t, energy);
}

static bool layered_rate(const descent_model *model, uint32_t layer, uint32_t kind, uint32_t step, descent_rate *rate)
{
    const layered *w = model->weights;
    const sublayer_kind *k = w->kind[kind];
    return k->rate && k->rate(model, w->weights[kind] + layer * k->size, w->norms[kind][layer], step, rate);
}

const family cem_family = {
    .name = "cem",
    .progression = &layered_progression,
    .load = layered_load,
    .unload = layered_unload,
    .embed = layered_embed,
    .step = layered_step,
    .rate = layered_rate,
    .final_norm = layered_final_norm,
};
