/* trial.c: a matrix of made-up weights and vectors to multiply it with, by themselves: what the kernels can do, for whoever
 * measures that. See "Products on their own" in descent.h. Weights are 32 rows of normal numbers, encoded as a file would have
 * them (blocks.c), again and again: how fast a product is does not depend on them. W is [rows][cols], its vectors lie as those
 * of a tile do (batch.h): [vectors][vector_stride]. */
#include "blocks.h"
#include "kernels/packed.h"
#include "random.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    gguf_type stored;
    number_type number;
} types[] = {
    [DESCENT_WEIGHT_Q4_0] = {GGUF_Q4_0, NUMBER_Q4_0}, [DESCENT_WEIGHT_Q4_K] = {GGUF_Q4_K, NUMBER_Q4_K},
    [DESCENT_WEIGHT_Q6_K] = {GGUF_Q6_K, NUMBER_Q6_K}, [DESCENT_WEIGHT_Q8_0] = {GGUF_Q8_0, NUMBER_Q8_0},
    [DESCENT_WEIGHT_BF16] = {GGUF_BF16, NUMBER_BF16}, [DESCENT_WEIGHT_F16] = {GGUF_F16, NUMBER_F16},
    [DESCENT_WEIGHT_F32] = {GGUF_F32, NUMBER_F32},
};
enum { MOST_NUMBERS = 1 << 30 };

struct descent_trial {
    matrix w;
    packed *packed; /* w's, or NULL */
    void *data;     /* otherwise w's */
    uint32_t vectors;
    float *x, *u; /* of cols and of rows numbers */
    float *z, *y; /* W^T u and W x */
};

static descent_code check(const descent_trial_options *o, descent_status *status)
{
    if (!descent_weight_type_name(o->type))
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "type %d is none that weights are written in", (int)o->type);
    if (o->rows == 0 || o->cols == 0 || o->rows % 32 != 0 || o->cols % 256 != 0 || o->rows > MOST_NUMBERS / o->cols)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "%zu x %zu weights; expected multiples of 32 and 256, and at most %d in all", o->rows, o->cols,
                            MOST_NUMBERS);
    if (o->vectors == 0 || o->vectors > MOST_NUMBERS / o->rows || o->vectors > MOST_NUMBERS / o->cols)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "%u vectors for %zu x %zu weights; expected 1 to as many as have %d numbers", o->vectors, o->rows,
                            o->cols, MOST_NUMBERS);
    return DESCENT_OK;
}

static bool made_up(float *numbers, size_t count, uint32_t which)
{
    double *normal = descent_alloc(count, sizeof *normal);
    if (!normal) return false;
    descent_random_normals(1, (noise_place){.position = which}, normal, count);
    for (size_t i = 0; i < count; i++) numbers[i] = (float)normal[i];
    free(normal);
    return true;
}

/* BLOCK_BAND rows of the file's bytes. */
static bool encode_band(const descent_trial_options *o, unsigned char *band)
{
    size_t widest = o->cols > BLOCK_BAND ? o->cols : BLOCK_BAND;
    float *numbers = descent_alloc(BLOCK_BAND * o->cols, sizeof *numbers), *ones = descent_alloc(widest, sizeof *ones);
    bool made = numbers && ones && made_up(numbers, BLOCK_BAND * o->cols, 0);
    for (size_t i = 0; made && i < widest; i++) ones[i] = 1;
    if (made) block_encode(types[o->type].stored, o->tiled, numbers, BLOCK_BAND, o->cols, ones, ones, band);
    free(numbers);
    free(ones);
    return made;
}

static bool make_weights(descent_trial *t, const descent_trial_options *o)
{
    const gguf_type_info *stored = gguf_type_find(types[o->type].stored);
    size_t band = BLOCK_BAND * (o->cols / stored->block * stored->block_bytes);
    t->w = (matrix){.type = types[o->type].number, .rows = o->rows, .cols = o->cols, .stride = band / BLOCK_BAND};
    unsigned char *bytes = descent_alloc(o->rows / BLOCK_BAND, band);
    t->data = bytes;
    if (!bytes || !encode_band(o, bytes)) return false;
    for (size_t k = 1; k < o->rows / BLOCK_BAND; k++) memcpy(bytes + k * band, bytes, band);
    if (t->w.type < NUMBER_Q8_0) {
        t->w.data = t->data;
        return true;
    }
    t->packed = packed_create(t->w.type, t->data, o->rows, o->cols, true);
    free(t->data);
    t->data = NULL;
    t->w.packed = t->packed;
    return t->packed != NULL;
}

descent_code descent_trial_create(const descent_trial_options *o, descent_trial **out, descent_status *status)
{
    if (!o || !out) return descent_fail(status, DESCENT_BAD_ARGUMENT, "a trial needs options and a place to be put");
    descent_code code = check(o, status);
    if (code != DESCENT_OK) return code;
    descent_trial *t = calloc(1, sizeof *t);
    size_t narrow = o->vectors * vector_stride(o->cols), tall = o->vectors * vector_stride(o->rows);
    bool made = t && make_weights(t, o);
    if (made) {
        t->vectors = o->vectors;
        t->x = descent_alloc(narrow, sizeof(float));
        t->z = descent_alloc(narrow, sizeof(float));
        t->u = descent_alloc(tall, sizeof(float));
        t->y = descent_alloc(tall, sizeof(float));
        made = t->x && t->z && t->u && t->y && made_up(t->x, narrow, 1) && made_up(t->u, tall, 2);
    }
    if (made) {
        *out = t;
        return descent_ok(status);
    }
    descent_trial_destroy(t);
    return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu x %zu weights and their vectors", o->rows, o->cols);
}

void descent_trial_destroy(descent_trial *t)
{
    if (!t) return;
    packed_destroy(t->packed);
    free(t->data);
    free(t->x);
    free(t->u);
    free(t->y);
    free(t->z);
    free(t);
}

uint64_t descent_trial_bytes(const descent_trial *t)
{
    return t->packed ? packed_bytes(t->packed) : t->w.rows * t->w.stride;
}

uint64_t descent_trial_weights(const descent_trial *t)
{
    return (uint64_t)t->w.rows * t->w.cols;
}

const float *descent_trial_run(descent_trial *t, bool back, uint32_t vectors, uint64_t times)
{
    size_t count = vectors < t->vectors ? vectors : t->vectors;
    size_t cols = vector_stride(t->w.cols), rows = vector_stride(t->w.rows);
    product p =
        back ? product_whole(&t->w, t->u, rows, count, t->z, cols) : product_whole(&t->w, t->x, cols, count, t->y, rows);
    for (uint64_t i = 0; i < times; i++) (back ? kernels_get()->project_back : kernels_get()->project)(&p);
    return p.out + (count ? count - 1 : 0) * p.out_stride;
}
