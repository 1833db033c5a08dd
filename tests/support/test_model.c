/* test_model.c: holding tensors by name, and rounding them to the types of a file. */
#include "test_model.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *test_alloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory) {
        fprintf(stderr, "the test needs %zu times %zu bytes and there are none\n", count, size);
        exit(1);
    }
    return memory;
}

static const struct {
    const char *architecture;
    size_t kinds;
    bool depth[2], energy[2], deepens;
    const char *sublayers[2];
} families[] = {
    [TEST_NRGPT] = {"nrgpt", 1, {true, false}, {true, false}, true, {NULL, NULL}},
    [TEST_CEM] = {"cem", 2, {true, true}, {true, true}, false, {"cem", "cem"}},
    [TEST_GPT] = {"gpt", 2, {false, false}, {false, false}, false, {NULL, NULL}},
    [TEST_GPT_REC] = {"gpt-rec-parallel", 1, {true, false}, {false, false}, true, {NULL, NULL}},
    [TEST_LLAMA] = {"cem", 2, {false, false}, {false, false}, false, {"llama", "swiglu"}},
    [TEST_CEM_SWIGLU] = {"cem", 2, {true, false}, {true, false}, false, {"cem", "swiglu"}},
    [TEST_LLAMA_CEM] = {"cem", 2, {false, true}, {false, true}, false, {"llama", "cem"}},
};

const char *test_family_name(test_family family)
{
    return families[family].architecture;
}

const char *test_sublayer(test_family family, size_t kind)
{
    return families[family].sublayers[kind];
}

size_t test_kinds(test_family family)
{
    return families[family].kinds;
}

bool test_has_depth(test_family family, size_t kind)
{
    return families[family].depth[kind];
}

bool test_has_energy(test_family family, size_t kind)
{
    return families[family].energy[kind];
}

bool test_descends(test_family family)
{
    return test_has_energy(family, 0) || test_has_energy(family, 1);
}

bool test_deepens(test_family family)
{
    return families[family].deepens;
}

test_family family_of(size_t round)
{
    return (test_family)(round % TEST_FAMILIES);
}

test_tensor *test_model_add(test_model *model, size_t rows, size_t columns, bool matrix, const char *format, ...)
{
    test_tensor *grown = test_alloc(model->n_tensors + 1, sizeof *grown);
    if (model->n_tensors) memcpy(grown, model->tensors, model->n_tensors * sizeof *grown);
    free(model->tensors);
    model->tensors = grown;
    test_tensor *tensor = &grown[model->n_tensors++];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(tensor->name, sizeof tensor->name, format, arguments);
    va_end(arguments);
    tensor->n_dims = rows ? 2 : 1;
    tensor->rows = rows ? rows : 1;
    tensor->columns = columns;
    tensor->matrix = matrix;
    tensor->values = test_alloc(tensor->rows * columns, sizeof(double));
    return tensor;
}

double *test_model_find(const test_model *model, const char *format, ...)
{
    char name[64];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    for (size_t i = 0; i < model->n_tensors; i++)
        if (!strcmp(model->tensors[i].name, name)) return model->tensors[i].values;
    return NULL;
}

test_model test_model_copy(const test_model *model)
{
    test_model copy = *model;
    copy.tensors = test_alloc(model->n_tensors, sizeof *copy.tensors);
    for (size_t i = 0; i < model->n_tensors; i++) {
        copy.tensors[i] = model->tensors[i];
        size_t numbers = model->tensors[i].rows * model->tensors[i].columns;
        copy.tensors[i].values = test_alloc(numbers, sizeof(double));
        memcpy(copy.tensors[i].values, model->tensors[i].values, numbers * sizeof(double));
    }
    return copy;
}

void test_model_free(test_model *model)
{
    for (size_t i = 0; i < model->n_tensors; i++) free(model->tensors[i].values);
    free(model->tensors);
    model->tensors = NULL;
    model->n_tensors = 0;
}

const char *test_model_words(const test_model *model)
{
    static char words[320];
    static const char *const types[] = {"F32", "F16", "BF16", "Q8_0", "Q4_0"};
    int n = snprintf(words, sizeof words, "%s %s C=%zu V=%zu context=%zu heads=%zu hidden=%zu layers=%zu T=%u,%u",
                     test_family_name(model->family), types[model->weight], model->width, model->vocab, model->context,
                     model->heads, model->hidden, model->layers, model->steps[0], model->steps[1]);
    if (n < 0 || (size_t)n >= sizeof words) return words;
    if (test_sublayer(model->family, 0))
        (void)snprintf(words + n, sizeof words - (size_t)n, " %s, %s, diagonal=%s rank=%d %s%s eta=%zu rope=%g",
                       test_sublayer(model->family, 0), test_sublayer(model->family, 1), model->diagonal, model->rank,
                       model->activation, model->tied ? " tied" : "", model->eta_entries, model->rope_base);
    else if (model->family == TEST_NRGPT)
        (void)snprintf(words + n, sizeof words - (size_t)n, " %s %s %s rate=%s%s beta=%g", model->feed_forward,
                       model->strict ? "strict" : "causal", model->rms ? "rmsnorm" : "layernorm", model->rate,
                       model->alpha ? " alpha" : "", model->beta);
    return words;
}

/* Nearest number of `bits` significant bits whose last place is not below 2^lowest; ties to even. */
static double round_to_bits(double value, int bits, int lowest)
{
    int exponent;
    if (value == 0.0 || !isfinite(value)) return value;
    (void)frexp(value, &exponent);
    int place = exponent - bits < lowest ? lowest : exponent - bits;
    return ldexp(nearbyint(ldexp(value, -place)), place);
}

double round_to_f16(double value)
{
    double rounded = round_to_bits(value, 11, -24);
    return fabs(rounded) > 65504.0 ? copysign(INFINITY, value) : rounded;
}

double round_to_f32(double value)
{
    return (double)(float)value;
}

double round_to_bf16(double value)
{
    return round_to_bits(round_to_f32(value), 8, -133);
}

/* 32 whole numbers times one f16 scale: Q8_0 of -127..127, Q4_0 of -7..7 (of the -8 it has too, no need). */
static void round_block(double *values, size_t count, double most)
{
    double largest = 0.0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs(values[i]));
    double scale = round_to_f16(largest / most);
    for (size_t i = 0; i < count; i++) values[i] = scale > 0.0 ? scale * nearbyint(values[i] / scale) : 0.0;
}

void test_model_round(test_model *model)
{
    for (size_t i = 0; i < model->n_tensors; i++) {
        const test_tensor *tensor = &model->tensors[i];
        test_weight type = tensor->matrix ? model->weight : TEST_F32;
        for (size_t r = 0; r < tensor->rows; r++) {
            double *row = tensor->values + r * tensor->columns;
            for (size_t c = 0; c < tensor->columns; c++) {
                if (type == TEST_F32) row[c] = round_to_f32(row[c]);
                if (type == TEST_F16) row[c] = round_to_f16(row[c]);
                if (type == TEST_BF16) row[c] = round_to_bf16(row[c]);
            }
            double most = type == TEST_Q8_0 ? 127 : type == TEST_Q4_0 ? 7 : 0;
            for (size_t c = 0; most > 0 && c < tensor->columns; c += 32)
                round_block(row + c, tensor->columns - c < 32 ? tensor->columns - c : 32, most);
        }
    }
}
