/* model.c: opening a model. Owns the table of families, the checks every family shares (shapes, types, finite small
 * tensors), packing of quantized tensors, and the public functions that describe a model. */
#include "model.h"

#include "kernels/half.h"
#include "kernels/packed.h"
#include "status.h"
#include "tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const family *const families[] = {&nrgpt_family, &cem_family, &gpt_family, &gpt_rec_parallel_family};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

const char *descent_version(void)
{
    return DESCENT_VERSION; /* given by the build */
}

/* ---- Metadata for families ------------------------------------------------------------------------------------- */

enum { KEY_SIZE = 96 };

static const char *model_key(const descent_model *model, const char *suffix, char key[KEY_SIZE])
{
    (void)snprintf(key, KEY_SIZE, "%s.%s", model->family->name, suffix);
    return key;
}

descent_code model_u32(const descent_model *model, const char *suffix, uint32_t min, uint32_t max, uint32_t *value,
                       descent_status *status)
{
    char key[KEY_SIZE];
    return gguf_get_u32(model->file, model_key(model, suffix, key), min, max, value, status);
}

descent_code model_f32(const descent_model *model, const char *suffix, float *value, descent_status *status)
{
    char key[KEY_SIZE];
    return gguf_get_f32(model->file, model_key(model, suffix, key), value, status);
}

descent_code model_choice(const descent_model *model, const char *suffix, const char *const *choices, uint32_t *index,
                          descent_status *status)
{
    char key[KEY_SIZE], allowed[128] = "";
    gguf_string found;
    descent_code code = gguf_get_string(model->file, model_key(model, suffix, key), &found, status);
    if (code != DESCENT_OK) return code;
    for (uint32_t i = 0; choices[i]; i++) {
        if (gguf_string_is(found, choices[i])) {
            *index = i;
            return DESCENT_OK;
        }
        size_t used = strlen(allowed);
        (void)snprintf(allowed + used, sizeof allowed - used, "%s%s", i ? ", " : "", choices[i]);
    }
    int shown = found.bytes < 40 ? (int)found.bytes : 40;
    return descent_fail(status, DESCENT_UNSUPPORTED, "%s is \"%.*s\"; this version knows %s", key, shown, found.text, allowed);
}

/* ---- Tensors for families -------------------------------------------------------------------------------------- */

/* The types of tensors that products are computed with. */
static const struct {
    gguf_type stored;
    number_type number;
} weight_types[] = {{GGUF_F32, NUMBER_F32},   {GGUF_F16, NUMBER_F16},   {GGUF_BF16, NUMBER_BF16}, {GGUF_Q8_0, NUMBER_Q8_0},
                    {GGUF_Q4_0, NUMBER_Q4_0}, {GGUF_Q4_K, NUMBER_Q4_K}, {GGUF_Q6_K, NUMBER_Q6_K}};
enum { N_WEIGHT_TYPES = sizeof weight_types / sizeof weight_types[0] };

static descent_code find_tensor(const descent_model *model, const char *name, const gguf_tensor **tensor,
                                descent_status *status)
{
    *tensor = gguf_find_tensor(model->file, name);
    if (!*tensor)
        return descent_fail(status, DESCENT_BAD_FILE, "tensor %s is missing; a %s model needs it", name, model->family->name);
    return DESCENT_OK;
}

static descent_code wrong_shape(const gguf_tensor *t, size_t rows, size_t cols, descent_status *status)
{
    return descent_fail(status, DESCENT_BAD_FILE,
                        "tensor %s has shape [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "], expected [%zu, %zu]",
                        t->name, t->dims[0], t->dims[1], t->dims[2], t->dims[3], cols, rows);
}

static descent_code unknown_type(const gguf_tensor *t, descent_status *status)
{
    char known[96] = "";
    for (size_t i = 0, used = 0; i < N_WEIGHT_TYPES && used < sizeof known; i++)
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", gguf_type_name(weight_types[i].stored));
    return descent_fail(status, DESCENT_UNSUPPORTED, "tensor %s has type %s; this version computes with %s", t->name,
                        gguf_type_name(t->type), known);
}

/* Repacks a quantized tensor and gives the file's memory of it back. */
static descent_code pack(descent_model *model, const gguf_tensor *t, matrix *w, packed **made, descent_status *status)
{
    bool both_ways = !strncmp(t->name, "blk.", 4); /* embeddings and the head are only read and multiplied by */
    *made = packed_create(w->type, t->data, w->rows, w->cols, both_ways);
    if (!*made)
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory to repack tensor %s (%zu x %zu)", t->name, w->rows, w->cols);
    w->packed = *made;
    model->info.resident_bytes += packed_bytes(*made);
    model->info.resident_bytes -= gguf_release(model->file, t);
    return DESCENT_OK;
}

/* How wide a tensor's rows are to be: whole blocks. Types without blocks may have the padding of those that have. */
static size_t padded_width(const gguf_tensor *t, const gguf_type_info *type, size_t cols)
{
    static const size_t blocks[] = {32, 256};
    for (size_t i = 0; i < 2 && type->block == 1; i++) {
        size_t padded = (cols + blocks[i] - 1) / blocks[i] * blocks[i];
        if (t->dims[0] == padded) return padded;
    }
    return (cols + type->block - 1) / type->block * type->block;
}

descent_code model_matrix(descent_model *model, const char *name, size_t rows, size_t cols, matrix *w, descent_status *status)
{
    const gguf_tensor *t;
    descent_code code = find_tensor(model, name, &t, status);
    if (code != DESCENT_OK) return code;
    const gguf_type_info *type = gguf_type_find(t->type);
    size_t padded = padded_width(t, type, cols);
    if (t->dims[0] != padded || t->dims[1] != rows || t->dims[2] != 1 || t->dims[3] != 1)
        return wrong_shape(t, rows, padded, status);
    size_t k = 0;
    while (k < N_WEIGHT_TYPES && weight_types[k].stored != t->type) k++;
    if (k == N_WEIGHT_TYPES) return unknown_type(t, status);
    *w = (matrix){.type = weight_types[k].number, .rows = rows, .cols = cols};
    packed *made = NULL;
    if (w->type >= NUMBER_Q8_0) {
        if ((code = pack(model, t, w, &made, status)) != DESCENT_OK) return code;
    } else {
        w->data = t->data;
        w->stride = padded * number_bytes(w->type);
    }
    model->info.parameters += (uint64_t)rows * cols; /* padding is none */
    model->matrices[model->n_matrices++] = (file_matrix){.tensor = t, .w = w, .packed = made};
    return DESCENT_OK;
}

descent_code model_vector(descent_model *model, const char *name, size_t rows, size_t cols, const float **values,
                          descent_status *status)
{
    const gguf_tensor *t;
    descent_code code = find_tensor(model, name, &t, status);
    if (code != DESCENT_OK) return code;
    if (t->type != GGUF_F32)
        return descent_fail(status, DESCENT_BAD_FILE, "tensor %s has type %s; norms, biases and rates are F32", name,
                            gguf_type_name(t->type));
    bool fits = cols == 1 ? t->dims[0] == rows && t->dims[1] == 1 : t->dims[0] == cols && t->dims[1] == rows;
    if (!fits || t->dims[2] != 1 || t->dims[3] != 1)
        return cols == 1 ? wrong_shape(t, 1, rows, status) : wrong_shape(t, rows, cols, status);
    *values = t->data;
    model->info.parameters += t->numbers;
    return DESCENT_OK;
}

bool model_has_tensor(const descent_model *model, const char *name)
{
    return gguf_find_tensor(model->file, name) != NULL;
}

static float number_at(const char *row, number_type type, size_t c)
{
    float value;
    if (type == NUMBER_F32) {
        memcpy(&value, row + c * sizeof value, sizeof value);
        return value;
    }
    uint16_t half;
    memcpy(&half, row + c * sizeof half, sizeof half);
    if (type == NUMBER_F16) return half_to_float(half);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void matrix_row(const matrix *w, size_t r, float *out, bool add)
{
    if (w->packed) {
        packed_row(w->packed, r, out, add);
        return;
    }
    const char *row = (const char *)w->data + r * w->stride;
    for (size_t c = 0; c < w->cols; c++) out[c] = number_at(row, w->type, c) + (add ? out[c] : 0.0f);
}

/* ---- Opening --------------------------------------------------------------------------------------------------- */

/* Four interleaved multiply-rotate lanes over 32 bytes a turn: not for secrets, quick enough for gigabytes. */
static uint64_t hash_bytes(const unsigned char *data, uint64_t bytes)
{
    uint64_t lane[4] = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu, 0x165667b19e3779f9u, 0x27d4eb2f165667c5u};
    uint64_t at = 0;
    for (; at < bytes; at += 32) {
        unsigned char tail[32] = {0};
        const unsigned char *from = data + at;
        if (bytes - at < 32) {
            memcpy(tail, from, bytes - at);
            from = tail;
        }
        for (int l = 0; l < 4; l++) {
            uint64_t word;
            memcpy(&word, from + 8 * l, sizeof word);
            lane[l] = (lane[l] ^ word) * 0x9fb21c651e98df25u;
            lane[l] = lane[l] << 29 | lane[l] >> 35;
        }
    }
    uint64_t hash = bytes;
    for (int l = 0; l < 4; l++) {
        hash = (hash ^ lane[l]) * 0x9fb21c651e98df25u;
        hash ^= hash >> 32;
    }
    return hash;
}

static void name_model(descent_model *model, const char *path)
{
    gguf_string name;
    if (gguf_get_string(model->file, "general.name", &name, NULL) == DESCENT_OK && name.bytes > 0) {
        int bytes = name.bytes < sizeof model->name ? (int)name.bytes : (int)sizeof model->name - 1;
        (void)snprintf(model->name, sizeof model->name, "%.*s", bytes, name.text);
    } else {
        const char *base = strrchr(path, '/');
        (void)snprintf(model->name, sizeof model->name, "%s", base ? base + 1 : path);
        char *dot = strrchr(model->name, '.');
        if (dot && dot != model->name) *dot = '\0';
    }
    model->info.name = model->name;
}

static descent_code choose_family(descent_model *model, descent_status *status)
{
    gguf_string architecture;
    descent_code code = gguf_get_string(model->file, "general.architecture", &architecture, status);
    if (code != DESCENT_OK) return code;
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (gguf_string_is(architecture, families[i]->name)) model->family = families[i];
    if (!model->family) {
        char known[96] = "";
        for (size_t i = 0, used = 0; i < N_FAMILIES && used < sizeof known; i++)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", families[i]->name);
        int shown = architecture.bytes < 40 ? (int)architecture.bytes : 40;
        return descent_fail(status, DESCENT_UNSUPPORTED, "general.architecture is \"%.*s\"; this version knows %s", shown,
                            architecture.text, known);
    }
    uint32_t version;
    return gguf_get_u32(model->file, "descent.format_version", 1, 1, &version, status);
}

/* The type that holds most of the file's weight bytes. */
static const char *main_type(const gguf_file *file)
{
    uint64_t best = 0;
    const char *name = "F32";
    for (size_t k = 0; k < N_WEIGHT_TYPES; k++) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < gguf_tensor_count(file); i++)
            if (gguf_tensor_at(file, i)->type == weight_types[k].stored) bytes += gguf_tensor_at(file, i)->bytes;
        if (bytes > best) {
            best = bytes;
            name = gguf_type_name(weight_types[k].stored);
        }
    }
    return name;
}

/* What every family has: the sizes, the embedding, and a tokenizer that fits. */
static descent_code load_common(descent_model *model, descent_status *status)
{
    descent_model_info *info = &model->info;
    info->family = model->family->name;
    info->weight_type = main_type(model->file);
    info->file_bytes = info->resident_bytes = gguf_bytes(model->file);
    descent_code code;
    if ((code = model_u32(model, "vocab_size", 1, 1u << 24, &info->vocab, status)) != DESCENT_OK) return code;
    if ((code = model_u32(model, "embedding_length", 1, 1u << 20, &info->width, status)) != DESCENT_OK) return code;
    if ((code = model_u32(model, "context_length", 1, 1u << 24, &info->context, status)) != DESCENT_OK) return code;
    /* At the largest depths the row steps of a token must still fit 32 bits. */
    if ((code = model_u32(model, "block_count", 1, 1u << 15, &info->layers, status)) != DESCENT_OK) return code;
    code = model_matrix(model, "token_embd.weight", info->vocab, info->width, &model->embedding, status);
    if (code != DESCENT_OK) return code;
    return tokenizer_load(model->file, info->vocab, &model->tokenizer, status);
}

typedef descent_code (*file_opener)(const char *path, gguf_file **file, descent_status *status);

static descent_code load_model(descent_model *model, file_opener open_file, const char *path, descent_status *status)
{
    descent_code code;
    if ((code = open_file(path, &model->file, status)) != DESCENT_OK) return code;
    name_model(model, path);
    model->matrices = calloc(gguf_tensor_count(model->file) + 1, sizeof *model->matrices);
    if (!model->matrices) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a list of tensors");
    if ((code = choose_family(model, status)) != DESCENT_OK) return code;
    model->info.fingerprint = hash_bytes(gguf_data(model->file), gguf_bytes(model->file)); /* before tensors are packed */
    if ((code = load_common(model, status)) != DESCENT_OK) return code;
    if ((code = model->family->load(model, status)) != DESCENT_OK) return code;
    if ((code = depth_check(model, model->info.trained, status)) != DESCENT_OK) return code;
    model->info.variant = model->variant;
    return DESCENT_OK;
}

static descent_code open_model(const char *path, file_opener open_file, descent_model **out, descent_status *status)
{
    if (!path || !out)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "opening a model needs a path and a place for the model");
    descent_model *model = calloc(1, sizeof *model);
    if (!model) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a model");
    descent_status why = {0};
    descent_code code = load_model(model, open_file, path, &why);
    if (code != DESCENT_OK) {
        descent_model_close(model);
        bool named = strstr(why.message, path) != NULL;
        return descent_fail(status, code, "%s%s%s", named ? "" : path, named ? "" : ": ", why.message);
    }
    *out = model;
    return descent_ok(status);
}

descent_code descent_model_open(const char *path, descent_model **out, descent_status *status)
{
    return open_model(path, gguf_open, out, status);
}

descent_code descent_model_read(const char *path, descent_model **out, descent_status *status)
{
    return open_model(path, gguf_read, out, status);
}

void descent_model_close(descent_model *model)
{
    if (!model) return;
    if (model->family) model->family->unload(model);
    for (size_t i = 0; i < model->n_matrices; i++) packed_destroy(model->matrices[i].packed);
    free(model->matrices);
    tokenizer_free(model->tokenizer);
    gguf_close(model->file);
    free(model);
}

/* ---- Describing ------------------------------------------------------------------------------------------------ */

const descent_model_info *descent_model_describe(const descent_model *model)
{
    return &model->info;
}

double descent_model_history_term(const descent_model *model, size_t position)
{
    size_t seen = model->strict_history ? position : position + 1;
    return model->history_weight != 0 && seen > 1 ? model->history_weight * log((double)seen) : 0;
}

bool descent_model_rate(const descent_model *model, descent_site site, descent_rate *rate)
{
    const descent_model_info *info = &model->info;
    if (!model->family->rate || site.layer >= info->layers || site.kind >= info->kinds || info->terms[site.kind] == 0)
        return false;
    return model->family->rate(model, site.layer, site.kind, site.step, rate);
}

const descent_tokenizer *descent_model_tokenizer(const descent_model *model)
{
    return model->tokenizer;
}

bool descent_model_metadata(const descent_model *model, size_t i, const char **key, char *value, size_t size)
{
    const char *found = gguf_metadata_key(model->file, i);
    if (!found || !gguf_metadata_text(model->file, i, value, size)) return false;
    *key = found;
    return true;
}

bool descent_model_tensor(const descent_model *model, size_t i, descent_tensor_info *tensor)
{
    const gguf_tensor *t = gguf_tensor_at(model->file, i);
    if (!t) return false;
    *tensor = (descent_tensor_info){.name = t->name, .type = gguf_type_name(t->type), .n_dims = t->n_dims, .bytes = t->bytes};
    for (int d = 0; d < 4; d++) tensor->dims[d] = t->dims[d];
    return true;
}

/* ---- Depth ----------------------------------------------------------------------------------------------------- */

uint32_t sublayer_steps(descent_depth depth, uint32_t kind)
{
    return depth.steps[kind] ? depth.steps[kind] : 1;
}

static bool has_depth(const descent_model *model, uint32_t kind)
{
    return kind < model->info.kinds && model->info.trained.steps[kind] > 0;
}

static uint32_t count_depths(const descent_model *model)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < DESCENT_MAX_KINDS; k++) n += has_depth(model, k);
    return n;
}

descent_code depth_check(const descent_model *model, descent_depth depth, descent_status *status)
{
    for (uint32_t k = 0; k < DESCENT_MAX_KINDS; k++) {
        if (has_depth(model, k) && depth.steps[k] == 0)
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "%s steps are 0; expected 1 to %u", model->info.kind_names[k],
                                DESCENT_MAX_STEPS);
        if (has_depth(model, k) || depth.steps[k] == 0) continue;
        if (k < model->info.kinds)
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "%s steps are %u; in %s it has no T and runs once: expected 0",
                                model->info.kind_names[k], depth.steps[k], model->info.name);
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "a depth of %u kinds was given; a %s model has %u", k + 1,
                            model->info.family, model->info.kinds);
    }
    return DESCENT_OK;
}

/* One number of a depth; *text moves past it. */
static bool parse_steps(const char **text, uint16_t *steps)
{
    uint32_t value = 0;
    const char *c = *text;
    for (; *c >= '0' && *c <= '9'; c++) {
        value = value * 10 + (uint32_t)(*c - '0');
        if (value > DESCENT_MAX_STEPS) return false;
    }
    if (c == *text || value == 0) return false;
    *steps = (uint16_t)value;
    *text = c;
    return true;
}

/* What a depth may be, after "expected". */
static void expected_depth(const descent_model *model, char text[160])
{
    uint32_t n = count_depths(model);
    const char *with = model->info.kind_names[has_depth(model, 0) ? 0 : 1];
    const char *without = model->info.kind_names[has_depth(model, 0) ? 1 : 0];
    if (n == 0)
        (void)snprintf(text, 160, "\"none\": no sub-layer of this model has a T");
    else if (n == model->info.kinds)
        (void)snprintf(text, 160, "a number from 1 to %u%s", DESCENT_MAX_STEPS,
                       n == 2 ? ", or two as in 3x2 (attention x mlp)" : "");
    else
        (void)snprintf(text, 160, "one number from 1 to %u, of %s: %s has no T in this model", DESCENT_MAX_STEPS, with,
                       without);
}

descent_code descent_depth_parse(const descent_model *model, const char *text, descent_depth *depth, descent_status *status)
{
    uint32_t wanted = count_depths(model), given = 0;
    uint16_t numbers[DESCENT_MAX_KINDS] = {0};
    const char *c = text;
    bool good = wanted > 0 && parse_steps(&c, &numbers[given++]);
    while (good && *c == 'x' && given < wanted) {
        c++;
        good = parse_steps(&c, &numbers[given++]);
    }
    good = good ? *c == '\0' && (given == 1 || given == wanted) : wanted == 0 && !strcmp(text, "none");
    if (!good) {
        char expected[160];
        expected_depth(model, expected);
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "steps \"%.40s\": expected %s", text, expected);
    }
    descent_depth parsed = {{0}};
    for (uint32_t k = 0, n = 0; k < model->info.kinds; k++)
        if (has_depth(model, k)) parsed.steps[k] = numbers[given == 1 ? 0 : n++];
    *depth = parsed;
    return descent_ok(status);
}

const char *descent_depth_format(const descent_model *model, descent_depth depth, char text[16])
{
    uint32_t n = count_depths(model), first = has_depth(model, 0) ? 0 : 1;
    if (n == 0)
        (void)snprintf(text, 16, "none");
    else if (n == 1 || depth.steps[0] == depth.steps[1])
        (void)snprintf(text, 16, "%u", depth.steps[first]);
    else
        (void)snprintf(text, 16, "%ux%u", depth.steps[0], depth.steps[1]);
    return text;
}
