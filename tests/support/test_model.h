/* test_model.h: a model as the tests hold it: its hyper-parameters, and its tensors in double under their GGUF names
 * (docs/format.md). The references compute from it, write_model puts it into a file for the engine, and a test may change a
 * number in between. Values are already rounded to the type they have in the file, so both sides see the same weights.
 *
 * Shapes: C width, V vocab, F hidden. A tensor of two dimensions is `rows` rows of `columns` numbers, one of one
 * dimension has 1 row. */
#ifndef TEST_MODEL_H
#define TEST_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum test_weight { TEST_F32 = 0, TEST_F16, TEST_BF16, TEST_Q8_0, TEST_Q4_0 } test_weight;

typedef enum test_family {
    TEST_NRGPT = 0,
    TEST_CEM,
    TEST_GPT,
    TEST_GPT_REC,
    TEST_LLAMA,      /* a CEM file of Llama layers */
    TEST_CEM_SWIGLU, /* CEM attention, SwiGLU MLP */
    TEST_LLAMA_CEM,  /* Llama attention, CEM MLP */
    TEST_FAMILIES
} test_family;

/* general.architecture of the family's files. */
const char *test_family_name(test_family family);
/* What a file of architecture cem calls its attention (0) or MLP (1): "cem", "llama", "swiglu". NULL: it is no such file. */
const char *test_sublayer(test_family family, size_t kind);
/* Kinds of sub-layer of its layers; 1: it is one block. */
size_t test_kinds(test_family family);
/* Whether sub-layers of a kind have a T of their own, and an energy. */
bool test_has_depth(test_family family, size_t kind);
bool test_has_energy(test_family family, size_t kind);
/* Whether it descends at all: has steps of some rate. */
bool test_descends(test_family family);
/* Tokens computed at one T serve as they are at others. */
bool test_deepens(test_family family);
/* Rounds of a test take the families in turn. */
test_family family_of(size_t round);

typedef struct test_tensor {
    char name[64];
    size_t n_dims, rows, columns;
    bool matrix;    /* takes the model's weight type; otherwise F32 */
    double *values; /* [rows][columns] */
} test_tensor;

typedef struct test_model {
    test_family family;
    test_weight weight;
    size_t width, vocab, context, heads, hidden, layers;
    double norm_epsilon;
    unsigned steps[2]; /* trained depth: block; or attention, MLP */

    const char *feed_forward; /* NRGPT: "ff1", "ff2", "ff2w" */
    bool strict, rms;
    const char *rate; /* "matrix", "diag", "scalar" */
    bool alpha;
    double beta;

    const char *diagonal; /* CEM, where it has such a sub-layer: "none", "shared", "per_head" */
    int rank;
    const char *activation; /* "silu", "gelu" */
    double rope_base;
    bool tied;
    size_t eta_entries;

    test_tensor *tensors;
    size_t n_tensors;
} test_model;

/* Adds a tensor of zeros; a later addition may move the array of tensors, never the values. rows 0: one dimension. */
test_tensor *test_model_add(test_model *model, size_t rows, size_t columns, bool matrix, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The values of a tensor by name; NULL where the model has none. */
double *test_model_find(const test_model *model, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A copy that owns its own tensors. */
test_model test_model_copy(const test_model *model);
void test_model_free(test_model *model);
/* One line that says which variant and shape it is, for failure messages. Valid until the next call. */
const char *test_model_words(const test_model *model);

/* The numbers every weight becomes in a file of this type. Rows are rounded in blocks of 32 where the type has blocks. */
void test_model_round(test_model *model);
double round_to_f16(double value);  /* nearest, ties to even; overflow to infinity */
double round_to_bf16(double value); /* nearest, ties to even */
double round_to_f32(double value);

/* calloc that ends the test program when memory runs out. */
void *test_alloc(size_t count, size_t size);

#endif
