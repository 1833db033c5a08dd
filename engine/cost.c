/* cost.c: counted multiply-adds, see descent.h. Owns the table that says how often a step multiplies with each of a family's
 * matrices; the rest is adding up. C is the width, F the hidden width, H heads, D the width of a head, n the tokens that
 * attention sees. docs/bench.md has the formulas. Called by the tools that reckon with speed, and by scaling.c. */
#include "status.h"

#include <stdlib.h>
#include <string.h>

typedef enum columns { WIDTH, HIDDEN, HEADS, STORED } columns;

/* A matrix of a block: products with it in each step, and in the first of a descent beside those. */
typedef struct use {
    const char *family, *part; /* "blk.N.PART.weight" or "blk.N.PART.i.weight" */
    const char *sublayer;      /* of cem files: "attention.kind" or "mlp.kind"... */
    const char *kind;          /* ...is this; NULL: whatever it is */
    uint32_t of_kind;          /* sub-layer kind, an index of descent_model_info.kinds */
    unsigned each, entry;
    columns columns; /* a row's true length, which padding may have made longer */
    unsigned saved;  /* of `each`, by the form with keys for every head */
    unsigned energy; /* in an energy by itself, where it is of a history that stands still */
} use;

static const use uses[] = {
    {"nrgpt", "attn_h", NULL, NULL, 0, 2, 0, WIDTH, 1, 0},
    {"nrgpt", "ffn_1", NULL, NULL, 0, 2, 0, WIDTH, 0, 0},
    {"nrgpt", "ffn_2", NULL, NULL, 0, 2, 0, HIDDEN, 0, 0}, /* of ff2 its columns are C: see columns_of */
    {"nrgpt", "rate", NULL, NULL, 0, 1, 0, WIDTH, 0, 0},
    {"cem", "attn_q", "attention.kind", "cem", 0, 2, 0, WIDTH, 0, 1},
    {"cem", "attn_k", "attention.kind", "cem", 0, 0, 1, WIDTH, 0, 0},
    {"cem", "attn_q", "attention.kind", "llama", 0, 1, 0, WIDTH, 0, 0},
    {"cem", "attn_k", "attention.kind", "llama", 0, 1, 0, WIDTH, 0, 0},
    {"cem", "attn_v", NULL, NULL, 0, 1, 0, WIDTH, 0, 0},
    {"cem", "attn_output", NULL, NULL, 0, 1, 0, WIDTH, 0, 0},
    {"cem", "attn_precond_u", NULL, NULL, 0, 2, 0, STORED, 0, 0},
    {"cem", "attn_precond_v", NULL, NULL, 0, 2, 0, STORED, 0, 0},
    {"cem", "mlp_up", "mlp.kind", "cem", 1, 2, 0, WIDTH, 0, 1},
    {"cem", "mlp_gate", "mlp.kind", "cem", 1, 0, 1, WIDTH, 0, 0},
    {"cem", "mlp_up", "mlp.kind", "swiglu", 1, 1, 0, WIDTH, 0, 0},
    {"cem", "mlp_gate", "mlp.kind", "swiglu", 1, 1, 0, WIDTH, 0, 0},
    {"cem", "mlp_down", NULL, NULL, 1, 1, 0, HIDDEN, 0, 0},
    {"cem", "mlp_precond_u", NULL, NULL, 1, 2, 0, STORED, 0, 0},
    {"cem", "mlp_precond_v", NULL, NULL, 1, 2, 0, STORED, 0, 0},
    {"gpt", "attn_q", NULL, NULL, 0, 1, 0, WIDTH, 0, 0},
    {"gpt", "attn_k", NULL, NULL, 0, 1, 0, WIDTH, 0, 0},
    {"gpt", "attn_v", NULL, NULL, 0, 1, 0, WIDTH, 0, 0},
    {"gpt", "attn_output", NULL, NULL, 0, 1, 0, HEADS, 0, 0},
    {"gpt", "ffn_up", NULL, NULL, 1, 1, 0, WIDTH, 0, 0},
    {"gpt", "ffn_down", NULL, NULL, 1, 1, 0, HIDDEN, 0, 0},
};

/* What the counting needs of a model. */
typedef struct shape {
    const descent_model *model;
    const char *family;
    uint64_t width, hidden, heads, head_width;
    bool recurrent_gpt; /* its two parts are one kind */
    bool ff2;
} shape;

static const char *cost_key(const descent_model *model, const char *suffix, char *text, size_t size)
{
    const char *family = descent_model_describe(model)->family, *key;
    size_t length = strlen(family);
    for (size_t i = 0; descent_model_metadata(model, i, &key, text, size); i++)
        if (!strncmp(key, family, length) && key[length] == '.' && !strcmp(key + length + 1, suffix)) return text;
    return NULL;
}

static bool key_is(const descent_model *model, const char *suffix, const char *value, bool when_absent)
{
    char text[32];
    return cost_key(model, suffix, text, sizeof text) ? !strcmp(text, value) : when_absent;
}

static descent_code read_shape(const descent_model *model, shape *s, descent_status *status)
{
    const descent_model_info *info = descent_model_describe(model);
    char heads[32], hidden[32];
    if (!cost_key(model, "attention.head_count", heads, sizeof heads))
        return descent_fail(status, DESCENT_UNSUPPORTED, "%s has no attention.head_count to count with", info->name);
    if (!cost_key(model, "feed_forward_length", hidden, sizeof hidden))
        return descent_fail(status, DESCENT_UNSUPPORTED, "%s has no feed_forward_length to count with", info->name);
    *s = (shape){.model = model,
                 .family = info->family,
                 .width = info->width,
                 .hidden = strtoull(hidden, NULL, 10),
                 .heads = strtoull(heads, NULL, 10),
                 .recurrent_gpt = !strcmp(info->family, "gpt-rec-parallel"),
                 .ff2 = key_is(model, "feed_forward", "ff2", false)};
    if (!s->heads) return descent_fail(status, DESCENT_UNSUPPORTED, "%s has no heads to count with", info->name);
    s->head_width = s->width / s->heads;
    if (s->recurrent_gpt) s->family = "gpt";
    return DESCENT_OK;
}

/* "blk.0.attn_h.3.weight" is the part "attn_h", "blk.11.mlp_up.weight" is "mlp_up". */
static bool is_part(const char *tensor, const char *part)
{
    if (strncmp(tensor, "blk.", 4) != 0) return false;
    const char *dot = strchr(tensor + 4, '.');
    size_t length = strlen(part);
    if (!dot || strncmp(dot + 1, part, length) != 0 || dot[1 + length] != '.') return false;
    const char *end = strrchr(dot, '.');
    return !strcmp(end, ".weight");
}

static const use *find_use(const shape *s, const char *tensor)
{
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const use *u = &uses[i];
        if (strcmp(u->family, s->family) != 0 || !is_part(tensor, u->part)) continue;
        if (!u->kind || key_is(s->model, u->sublayer, u->kind, !strcmp(u->kind, "cem"))) return u;
    }
    return NULL;
}

static uint64_t columns_of(const shape *s, const use *u, const descent_tensor_info *t)
{
    switch (s->ff2 ? WIDTH : u->columns) {
    case WIDTH:
        return s->width;
    case HIDDEN:
        return s->hidden;
    case HEADS:
        return s->heads * s->head_width;
    default:
        return t->dims[0];
    }
}

/* Q8_0, Q4_K, ...: blocks of integers. */
static bool is_quantized(const descent_tensor_info *t)
{
    return t->type[0] == 'Q';
}

static void add_uses(descent_weight_cost *to, unsigned products, uint64_t multiply_adds, bool of_bytes, uint64_t bytes)
{
    to->multiply_adds += products * multiply_adds;
    if (of_bytes) to->of_bytes += products * multiply_adds;
    to->product_bytes += products * bytes;
    if (products) to->bytes += bytes;
}

/* Attention of one layer, for each token seen. The diagonal of a CEM is scored and summed over C numbers more, once for all
 * heads where it is theirs together. */
static void count_attention(const shape *s, uint64_t layers, descent_kind_cost *kind)
{
    uint64_t C = s->width, A = s->heads * s->head_width;
    bool descends = !strcmp(s->family, "cem") && key_is(s->model, "attention.kind", "cem", true);
    if (!strcmp(s->family, "nrgpt")) {
        kind->attention = 2 * s->heads * C;
        kind->history = C;
    } else if (descends && !key_is(s->model, "attention.diagonal", "none", true)) {
        kind->attention = 2 * C + 2 * C * (key_is(s->model, "attention.diagonal", "per_head", false) ? s->heads : 1);
        kind->history = 2 * C;
    } else if (descends) {
        kind->attention = 2 * C;
        kind->history = C;
    } else {
        kind->attention = 2 * A;
        kind->history = 2 * A;
    }
    kind->attention *= layers;
    kind->history *= layers;
}

descent_code descent_model_count(const descent_model *model, descent_model_cost *out, descent_status *status)
{
    if (!model || !out) return descent_fail(status, DESCENT_BAD_ARGUMENT, "counting needs a model and a place to be put");
    const descent_model_info *info = descent_model_describe(model);
    descent_tensor_info t;
    shape s = {.heads = 0};
    descent_code code = read_shape(model, &s, status);
    if (code != DESCENT_OK) return code;
    descent_model_cost sum = {.info = info, .strict = key_is(model, "attention.mask", "strict", false)}, *cost = &sum;
    descent_tensor_info head = {.type = ""};
    for (size_t i = 0; descent_model_tensor(model, i, &t); i++) {
        bool tied = !strcmp(t.name, "token_embd.weight") && !head.bytes; /* unless there is a head of its own */
        if (tied || !strcmp(t.name, "output.weight")) head = t;
        const use *u = find_use(&s, t.name);
        if (!u || t.n_dims < 2) continue; /* a rate that is a vector or a number */
        uint64_t products = columns_of(&s, u, &t) * t.dims[1];
        descent_kind_cost *kind = &cost->kinds[s.recurrent_gpt ? 0 : u->of_kind];
        add_uses(&kind->step, u->each, products, is_quantized(&t), t.bytes);
        add_uses(&kind->entry, u->entry, products, is_quantized(&t), t.bytes);
        kind->energy += u->energy * products;
        kind->saved_in_prompts += u->saved * products;
        if (is_quantized(&t)) kind->saved_of_bytes += u->saved * products;
    }
    count_attention(&s, info->layers, &cost->kinds[0]);
    add_uses(&cost->head, 1, (uint64_t)info->vocab * info->width, is_quantized(&head), head.bytes);
    if (!cost->head.bytes || !cost->kinds[0].step.bytes)
        return descent_fail(status, DESCENT_UNSUPPORTED, "%s has no %s to count with", info->name,
                            cost->head.bytes ? "matrices in its block" : "token_embd.weight or output.weight");
    *out = sum;
    return descent_ok(status);
}

descent_token_cost descent_cost_token(const descent_model_cost *cost, descent_depth depth, uint64_t seen)
{
    descent_token_cost sum = {0};
    for (uint32_t k = 0; k < cost->info->kinds; k++) {
        const descent_kind_cost *kind = &cost->kinds[k];
        uint64_t steps = cost->info->trained.steps[k] ? depth.steps[k] : 1;
        sum.weights += steps * kind->step.multiply_adds + kind->entry.multiply_adds;
        sum.of_bytes += steps * kind->step.of_bytes + kind->entry.of_bytes;
        sum.product_bytes += steps * kind->step.product_bytes + kind->entry.product_bytes;
        sum.attention += steps * seen * kind->attention;
        sum.history += steps * seen * kind->history;
        sum.saved += steps * kind->saved_in_prompts;
        sum.saved_of_bytes += steps * kind->saved_of_bytes;
    }
    return sum;
}
