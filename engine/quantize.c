/* quantize.c: writes a model again with its matrices in other types. Decides each tensor's type, carries metadata over,
 * and streams the tensors: rows of 32 at a time are read as floats, padded, encoded and compared with what they were. The
 * encodings are blocks.c's, the file gguf_write.c's. Which tensors are matrices, and how wide they are without padding, is
 * known from the model's loading. See "Quantization" in descent.h. */
#include "blocks.h"
#include "gguf_write.h"
#include "importance.h"
#include "machine.h"
#include "parallel.h"
#include "status.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By descent_weight_type. `file_type`: what general.file_type calls a file mostly of it. */
static const struct {
    gguf_type type;
    uint32_t file_type;
} weight_types[] = {
    [DESCENT_WEIGHT_Q4_0] = {GGUF_Q4_0, 2}, [DESCENT_WEIGHT_Q4_K] = {GGUF_Q4_K, 14}, [DESCENT_WEIGHT_Q6_K] = {GGUF_Q6_K, 18},
    [DESCENT_WEIGHT_Q8_0] = {GGUF_Q8_0, 7}, [DESCENT_WEIGHT_BF16] = {GGUF_BF16, 32}, [DESCENT_WEIGHT_F16] = {GGUF_F16, 1},
    [DESCENT_WEIGHT_F32] = {GGUF_F32, 0},
};
enum { N_WEIGHT_TYPES = sizeof weight_types / sizeof *weight_types };

static bool is_type(descent_weight_type type)
{
    return type > DESCENT_WEIGHT_BY_RULE && (size_t)type < N_WEIGHT_TYPES;
}

const char *descent_weight_type_name(descent_weight_type type)
{
    return is_type(type) ? gguf_type_name(weight_types[type].type) : NULL;
}

static descent_weight_type weight_type_of(uint32_t type)
{
    for (int t = DESCENT_WEIGHT_BY_RULE + 1; t < N_WEIGHT_TYPES; t++)
        if (weight_types[t].type == type) return (descent_weight_type)t;
    return DESCENT_WEIGHT_BY_RULE;
}

/* The model as it was loaded, which knows its matrices, and its file once more: loading gives quantized tensors' memory back.
 */
typedef struct source {
    descent_model *model;
    gguf_file *file;
} source;

/* ---- What each tensor becomes ----------------------------------------------------------------------------------- */

typedef struct planned {
    const gguf_tensor *from;
    const matrix *w; /* NULL: no matrix, copied */
    const matrix_importance *importance;
    const gguf_type_info *type;
    bool copied, tiled;
    uint64_t dims[GGUF_MAX_DIMS];
    char note[96];
} planned;

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_embedding(const char *name)
{
    return !strcmp(name, "token_embd.weight") || !strcmp(name, "position_embd.weight");
}

static bool head_is_tied(const descent_model *model)
{
    return gguf_find_tensor(model->file, "output.weight") == NULL;
}

/* NRGPT's R: every step's change goes through it, and nothing rounds its errors off again. One matrix of many, and at four bits
 * half of what the predictions lose (docs/quantize.md). */
static bool is_rate(const char *name)
{
    return !strcmp(name, "blk.0.rate.weight");
}

/* Low-rank factors of a preconditioner: small, and every step of a descent goes through them. */
static bool stays(const char *name)
{
    return strstr(name, "_precond_") != NULL;
}

/* True of matrices that a descent multiplies by both W and W^T: the others gain nothing from equal scales. */
static bool is_multiplied_both_ways(const descent_model *model, const char *name)
{
    if (!strcmp(model->family->name, "nrgpt")) return starts(name, "blk.0.attn_h.") || starts(name, "blk.0.ffn_");
    if (strcmp(model->family->name, "cem") != 0) return false;
    return (model->info.terms[0] > 0 && strstr(name, ".attn_q.")) || (model->info.terms[1] > 0 && strstr(name, ".mlp_up."));
}

static uint64_t padded_width(const gguf_type_info *type, uint64_t cols)
{
    return (cols + type->block - 1) / type->block * type->block;
}

static uint64_t row_bytes(const gguf_type_info *type, uint64_t cols)
{
    return padded_width(type, cols) / type->block * type->block_bytes;
}

/* `type`, or, where its rows of `cols` have to be padded, that which takes fewest bytes of it and those that keep more; of
 * those that take as few, the one that keeps most. BF16 takes as much as F16 and keeps fewer digits: it comes when asked for
 * only. */
static descent_weight_type worth_its_bytes(descent_weight_type type, size_t cols)
{
    descent_weight_type best = type;
    if (cols % gguf_type_find(weight_types[type].type)->block == 0) return best;
    for (int t = (int)type + 1; t < N_WEIGHT_TYPES; t++)
        if (t != DESCENT_WEIGHT_BF16 &&
            row_bytes(gguf_type_find(weight_types[t].type), cols) <= row_bytes(gguf_type_find(weight_types[best].type), cols))
            best = (descent_weight_type)t;
    return best;
}

/* The type asked of a matrix; *exactly where it was named for it. */
static descent_weight_type asked_type(const descent_quantize_options *o, const char *name, bool *exactly)
{
    for (size_t i = o->n_choices; i > 0; i--)
        if (fnmatch(o->choices[i - 1].pattern, name, 0) == 0) {
            *exactly = true;
            return o->choices[i - 1].type;
        }
    *exactly = false;
    if (is_rate(name) && o->type < DESCENT_WEIGHT_Q8_0) return DESCENT_WEIGHT_Q8_0;
    bool embedding = is_embedding(name), head = !strcmp(name, "output.weight");
    if (!embedding && !head) return o->type;
    descent_weight_type own = embedding ? o->embedding_type : o->head_type;
    if (own != DESCENT_WEIGHT_BY_RULE) return own;
    return o->type < DESCENT_WEIGHT_Q6_K ? DESCENT_WEIGHT_Q6_K : o->type;
}

/* Whether it gets equal scales over 32 x 32 weights. In Q8_0 that loses little, in Q4_0 twice as much (docs/quantize.md): by
 * rule Q8_0 does, unless it is there already. */
static bool is_tiled(const descent_model *model, const descent_quantize_options *o, descent_weight_type type,
                     const gguf_tensor *from)
{
    if (!is_multiplied_both_ways(model, from->name) || o->scales == DESCENT_SCALES_ROW) return false;
    if (type == DESCENT_WEIGHT_Q8_0) return o->scales == DESCENT_SCALES_TILE || from->type != GGUF_Q8_0;
    return type == DESCENT_WEIGHT_Q4_0 && o->scales == DESCENT_SCALES_TILE;
}

static void plan_matrix(const descent_model *model, const descent_quantize_options *o, planned *p)
{
    bool exactly;
    descent_weight_type asked = asked_type(o, p->from->name, &exactly), type = asked;
    if (!exactly && stays(p->from->name))
        type = weight_type_of(p->from->type);
    else if (!exactly)
        type = worth_its_bytes(asked, p->w->cols);
    p->type = gguf_type_find(weight_types[type].type);
    if (type != asked && !stays(p->from->name))
        (void)snprintf(p->note, sizeof p->note, "rows of %zu padded to %" PRIu64 " would make %s no smaller", p->w->cols,
                       padded_width(gguf_type_find(weight_types[asked].type), p->w->cols), descent_weight_type_name(asked));
    p->tiled = is_tiled(model, o, type, p->from);
    p->copied = p->type->type == p->from->type && !p->tiled;
    if (!p->copied) p->dims[0] = padded_width(p->type, p->w->cols);
}

/* [tensors of the file], freed by the caller. */
static planned *make_plan(const source *from, const descent_quantize_options *o)
{
    const descent_model *model = from->model;
    size_t n = gguf_tensor_count(from->file);
    planned *plan = calloc(n + 1, sizeof *plan);
    if (!plan) return NULL;
    for (size_t i = 0; i < n; i++) {
        const gguf_tensor *t = gguf_tensor_at(from->file, i);
        plan[i] = (planned){.from = t, .type = gguf_type_find(t->type), .copied = true};
        memcpy(plan[i].dims, t->dims, sizeof t->dims);
    }
    for (size_t m = 0; m < model->n_matrices; m++) {
        planned *p = &plan[model->matrices[m].tensor - gguf_tensor_at(model->file, 0)];
        p->w = model->matrices[m].w;
        p->importance = importance_of(o->importance, model, m);
        plan_matrix(model, o, p);
    }
    return plan;
}

static descent_code check_choices(const descent_model *model, const descent_quantize_options *o, const planned *plan,
                                  descent_status *status)
{
    for (size_t i = 0; i < o->n_choices; i++) {
        bool fits = false;
        if (!is_type(o->choices[i].type))
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "tensors %.60s: %d is no type", o->choices[i].pattern,
                                (int)o->choices[i].type);
        for (size_t t = 0; t < gguf_tensor_count(model->file); t++)
            fits = fits || (plan[t].w && fnmatch(o->choices[i].pattern, plan[t].from->name, 0) == 0);
        if (!fits)
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "no matrix of %s has a name like %.60s", model->info.name,
                                o->choices[i].pattern);
    }
    return DESCENT_OK;
}

static descent_code check_plan(const descent_model *model, const descent_quantize_options *o, const planned *plan,
                               descent_status *status)
{
    for (size_t i = 0; i < gguf_tensor_count(model->file); i++) {
        const planned *p = &plan[i];
        if (p->copied) continue;
        if (!o->requantize && weight_type_of(p->from->type) < DESCENT_WEIGHT_Q8_0)
            return descent_fail(
                status, DESCENT_UNSUPPORTED,
                "tensor %s is %s already, and would lose again as %s: begin with a file that has more, or allow "
                "it (--allow-requantize)",
                p->from->name, gguf_type_name(p->from->type), p->type->name);
        if (o->importance && !p->importance)
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "the importance given is of another model than %s",
                                model->info.name);
    }
    return check_choices(model, o, plan, status);
}

static descent_code check_options(const descent_model *model, const descent_quantize_options *o, descent_status *status)
{
    const descent_weight_type given[] = {o->type, o->embedding_type, o->head_type};
    for (size_t i = 0; i < 3; i++)
        if (!is_type(given[i]) && (i == 0 || given[i] != DESCENT_WEIGHT_BY_RULE))
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "type %d is none that weights are written in", (int)given[i]);
    if (o->head_type != DESCENT_WEIGHT_BY_RULE && head_is_tied(model))
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "the head of %s is its embedding, whose type is --embedding-type: it has none of its own",
                            model->info.name);
    return DESCENT_OK;
}

/* ---- Metadata --------------------------------------------------------------------------------------------------- */

/* What the tensors decide, and so is not copied. */
static const char *const decided[] = {"general.file_type", "general.quantization_version", "descent.scales"};

static void declare(gguf_output *out, const gguf_file *file, const descent_quantize_options *o, const planned *plan)
{
    bool quantized = false, tiled = false, kept = false;
    gguf_string scales;
    bool were_tiled = gguf_get_string(file, "descent.scales", &scales, NULL) == DESCENT_OK && gguf_string_is(scales, "tile");
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        quantized = quantized || plan[i].type->block > 1;
        tiled = tiled || plan[i].tiled;
        kept = kept || (plan[i].copied && plan[i].type->block == 32);
    }
    for (size_t i = 0; i < gguf_metadata_count(file); i++) {
        bool copied = true;
        for (size_t k = 0; k < sizeof decided / sizeof *decided; k++)
            copied = copied && strcmp(gguf_metadata_key(file, i), decided[k]) != 0;
        if (copied) gguf_output_entry(out, gguf_metadata_bytes(file, i));
    }
    gguf_output_u32(out, decided[0], weight_types[o->type].file_type);
    if (quantized) gguf_output_u32(out, decided[1], 2);
    if (tiled || (kept && were_tiled)) gguf_output_text(out, decided[2], "tile");
    for (size_t i = 0; i < gguf_tensor_count(file); i++)
        gguf_output_tensor(out, plan[i].from->name, plan[i].type, plan[i].from->n_dims, plan[i].dims);
}

/* ---- Numbers ---------------------------------------------------------------------------------------------------- */

/* One tensor on its way. What a band of 32 rows finds is kept by band, so that sums do not depend on the threads. */
typedef struct conversion {
    const planned *p;
    size_t rows, cols, padded, from_stride, to_stride;
    unsigned char *encoded; /* [rows][to_stride] */
    float *col_weights;     /* [padded] */
    struct band {
        double squares, errors;
        size_t bad_row, bad_col; /* the first number that is none, or else the largest of those that cannot be had: below `rows`
                                    where there is one */
        float bad;
    } * bands;
    size_t n_bands, first; /* of those that are shared at the time */
    float *scratch;        /* [threads][scratch_stride] */
    size_t scratch_stride;
} conversion;

static void convert_band(const conversion *c, size_t index, float *scratch)
{
    size_t first = index * BLOCK_BAND, n = c->rows - first < BLOCK_BAND ? c->rows - first : BLOCK_BAND;
    float *x = scratch, *wide = x + BLOCK_BAND * c->padded, ones[BLOCK_BAND];
    struct band *b = &c->bands[index];
    unsigned char *to = c->encoded + first * c->to_stride;
    for (size_t r = 0; r < n; r++) {
        const unsigned char *from = (const unsigned char *)c->p->from->data + (first + r) * c->from_stride;
        block_decode(c->p->from->type, from, (size_t)c->p->from->dims[0], wide);
        memcpy(x + r * c->padded, wide, c->cols * sizeof *x);
        memset(x + r * c->padded + c->cols, 0, (c->padded - c->cols) * sizeof *x);
        ones[r] = c->p->importance ? c->p->importance->rows[first + r] : 1;
    }
    b->bad_row = c->rows;
    for (size_t i = 0; i < n * c->padded && b->bad_row == c->rows; i++)
        if (!isfinite(x[i])) *b = (struct band){0, 0, first + i / c->padded, i % c->padded, x[i]};
    if (b->bad_row < c->rows) return;
    block_encode(c->p->type->type, c->p->tiled, x, n, c->padded, ones, c->col_weights, to);
    for (size_t r = 0; r < n; r++) {
        block_decode(c->p->type->type, to + r * c->to_stride, c->padded, wide);
        for (size_t k = 0; k < c->cols; k++) {
            double was = (double)x[r * c->padded + k], error = (double)wide[k] - was;
            if (!isfinite(wide[k]) && (b->bad_row == c->rows || fabs(was) > fabs((double)b->bad)))
                *b = (struct band){0, 0, first + r, k, (float)was};
            b->squares += was * was;
            b->errors += error * error;
        }
    }
}

static descent_code tell_bad(const conversion *c, const struct band *b, descent_status *status)
{
    if (!isfinite(b->bad))
        return descent_fail(status, DESCENT_BAD_FILE, "tensor %s: the number of row %zu, column %zu is %g", c->p->from->name,
                            b->bad_row, b->bad_col, (double)b->bad);
    return descent_fail(status, DESCENT_BAD_FILE, "tensor %s: numbers near row %zu, column %zu, %g, are too large for %s",
                        c->p->from->name, b->bad_row, b->bad_col, (double)b->bad, c->p->type->name);
}

static descent_code allocate(conversion *c, size_t threads, descent_status *status)
{
    size_t wide = c->padded > c->p->from->dims[0] ? c->padded : (size_t)c->p->from->dims[0];
    c->n_bands = (c->rows + BLOCK_BAND - 1) / BLOCK_BAND;
    c->scratch_stride = BLOCK_BAND * c->padded + wide;
    c->encoded = descent_alloc(c->rows, c->to_stride);
    c->col_weights = descent_alloc(c->padded, sizeof *c->col_weights);
    c->bands = descent_alloc(c->n_bands, sizeof *c->bands);
    c->scratch = descent_alloc(threads * c->scratch_stride, sizeof *c->scratch);
    if (c->encoded && c->col_weights && c->bands && c->scratch) return DESCENT_OK;
    return descent_fail(status, DESCENT_NO_MEMORY, "no memory for tensor %s, %zu x %zu", c->p->from->name, c->rows, c->cols);
}

static void convert_part(const void *arg, size_t band, unsigned thread)
{
    const conversion *c = arg;
    convert_band(c, c->first + band, c->scratch + thread * c->scratch_stride);
}

/* How far all of it is, for the caller, who may have had enough. */
typedef struct course {
    const descent_quantize_options *o;
    uint64_t done, total; /* bytes of the old file's tensors; of those that have been written */
} course;

static descent_code check_course(const course *at, uint64_t of_this, descent_status *status)
{
    if (!at->o->progress || at->o->progress(at->o->user, at->done + of_this, at->total)) return DESCENT_OK;
    return descent_fail(status, DESCENT_IO, "stopped by the caller");
}

/* All bands, a few for each thread at a time: one of a wide matrix takes a tenth of a second. */
static descent_code convert_bands(conversion *c, team *threads, const course *at, descent_status *status)
{
    const size_t some = 4 * (size_t)team_threads(threads);
    descent_code code = DESCENT_OK;
    for (size_t n; c->first < c->n_bands && code == DESCENT_OK; c->first += n) {
        n = c->n_bands - c->first < some ? c->n_bands - c->first : some;
        team_share(threads, n, convert_part, c);
        size_t rows = (c->first + n) * BLOCK_BAND;
        code = check_course(at, (rows < c->rows ? rows : c->rows) * c->from_stride, status);
    }
    return code;
}

static descent_code convert(const planned *p, team *threads, gguf_output *out, const course *at, descent_quantized_tensor *told,
                            descent_status *status)
{
    conversion c = {.p = p, .rows = p->w->rows, .cols = p->w->cols, .padded = (size_t)p->dims[0]};
    c.from_stride = (size_t)row_bytes(gguf_type_find(p->from->type), p->from->dims[0]);
    c.to_stride = (size_t)row_bytes(p->type, c.padded);
    descent_code code = allocate(&c, team_threads(threads), status);
    for (size_t i = 0; i < c.padded && code == DESCENT_OK; i++) /* padding is zero in every type: its weight is no matter */
        c.col_weights[i] = p->importance && i < c.cols ? p->importance->cols[i] : 1;
    if (code == DESCENT_OK) code = convert_bands(&c, threads, at, status);
    if (code == DESCENT_OK) {
        double squares = 0, errors = 0, numbers = (double)c.rows * (double)c.cols;
        for (size_t i = 0; i < c.n_bands && code == DESCENT_OK; i++) {
            squares += c.bands[i].squares;
            errors += c.bands[i].errors;
            if (c.bands[i].bad_row < c.rows) code = tell_bad(&c, &c.bands[i], status);
        }
        told->rms = sqrt(squares / numbers);
        told->rms_error = sqrt(errors / numbers);
    }
    if (code == DESCENT_OK) code = gguf_output_data(out, c.encoded, c.rows * c.to_stride, status);
    free(c.encoded);
    free(c.col_weights);
    free(c.bands);
    free(c.scratch);
    return code;
}

/* ---- The file --------------------------------------------------------------------------------------------------- */

static descent_code write_tensor(course *at, const planned *p, team *threads, gguf_output *out, descent_status *status)
{
    const descent_quantize_options *o = at->o;
    descent_quantized_tensor told = {.name = p->from->name,
                                     .from = gguf_type_name(p->from->type),
                                     .to = p->type->name,
                                     .n_dims = p->from->n_dims,
                                     .before = p->from->bytes,
                                     .matrix = p->w != NULL,
                                     .tiled = p->tiled,
                                     .changed = !p->copied,
                                     .note = p->note[0] ? p->note : NULL};
    memcpy(told.dims, p->from->dims, sizeof told.dims);
    if (p->w) told.dims[0] = p->w->cols;
    told.bytes = p->copied ? p->from->bytes : p->w->rows * row_bytes(p->type, p->dims[0]);
    descent_code code = p->copied ? gguf_output_data(out, p->from->data, (size_t)p->from->bytes, status)
                                  : convert(p, threads, out, at, &told, status);
    if (code == DESCENT_OK && o->written && !o->written(o->user, &told))
        code = descent_fail(status, DESCENT_IO, "stopped by the caller");
    at->done += p->from->bytes;
    return code == DESCENT_OK ? check_course(at, 0, status) : code;
}

static descent_code write_file(const gguf_file *file, const char *path, const descent_quantize_options *o, const planned *plan,
                               descent_status *status)
{
    gguf_output *out;
    descent_code code = gguf_output_create(path, o->replace, &out, status);
    if (code != DESCENT_OK) return code;
    course at = {.o = o};
    for (size_t i = 0; i < gguf_tensor_count(file); i++) at.total += plan[i].from->bytes;
    team *threads = team_create(o->threads ? o->threads : cpus_available());
    if (!threads) code = descent_fail(status, DESCENT_NO_MEMORY, "no memory for threads");
    declare(out, file, o, plan);
    if (code == DESCENT_OK) code = gguf_output_begin(out, gguf_alignment(file), status);
    for (size_t i = 0; i < gguf_tensor_count(file) && code == DESCENT_OK; i++)
        code = write_tensor(&at, &plan[i], threads, out, status);
    team_destroy(threads);
    if (code == DESCENT_OK) return gguf_output_finish(out, status);
    gguf_output_discard(out);
    return code;
}

/* Both were opened from one path: whether that was one file, still. */
static descent_code check_source(const source *from, const char *path, descent_status *status)
{
    bool same = gguf_bytes(from->file) == gguf_bytes(from->model->file) &&
                gguf_tensor_count(from->file) == gguf_tensor_count(from->model->file);
    for (size_t i = 0; same && i < gguf_tensor_count(from->file); i++) {
        const gguf_tensor *a = gguf_tensor_at(from->file, i), *b = gguf_tensor_at(from->model->file, i);
        same = !strcmp(a->name, b->name) && a->type == b->type && !memcmp(a->dims, b->dims, sizeof a->dims);
    }
    return same ? DESCENT_OK : descent_fail(status, DESCENT_IO, "'%s' changed while it was read", path);
}

static descent_code quantize_source(const source *from, const char *path, const descent_quantize_options *o,
                                    descent_status *status)
{
    descent_code code = check_options(from->model, o, status);
    if (code != DESCENT_OK) return code;
    planned *plan = make_plan(from, o);
    if (!plan) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a list of tensors");
    code = check_plan(from->model, o, plan, status);
    if (code == DESCENT_OK) code = write_file(from->file, path, o, plan, status);
    free(plan);
    return code;
}

descent_code descent_quantize(const char *in, const char *out, const descent_quantize_options *o, descent_status *status)
{
    source from = {.model = NULL};
    if (!in || !out || !o)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "writing a model again needs two paths and options");
    descent_code code = descent_model_open(in, &from.model, status);
    if (code != DESCENT_OK) return code;
    code = gguf_open(in, &from.file, status);
    if (code == DESCENT_OK) code = check_source(&from, in, status);
    if (code == DESCENT_OK) code = quantize_source(&from, out, o, status);
    gguf_close(from.file);
    descent_model_close(from.model);
    return code;
}
