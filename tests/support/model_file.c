/* model_file.c: a test_model written with the tests' GGUF writer and read back with the engine's reader; the directory
 * such files lie in. */
#include "model_file.h"

#include "gguf.h"
#include "gguf_writer.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint32_t writer_types[] = {[TEST_F32] = GGUF_WRITER_F32,
                                        [TEST_F16] = GGUF_WRITER_F16,
                                        [TEST_BF16] = GGUF_WRITER_BF16,
                                        [TEST_Q8_0] = GGUF_WRITER_Q8_0,
                                        [TEST_Q4_0] = GGUF_WRITER_Q4_0};
static const uint32_t file_types[] = {[TEST_F32] = 0, [TEST_F16] = 1, [TEST_BF16] = 32, [TEST_Q8_0] = 7, [TEST_Q4_0] = 2};

static const char *key_of(const test_model *model, const char *name)
{
    static char key[8][96];
    static unsigned next;
    char *text = key[next++ % 8];
    (void)snprintf(text, sizeof key[0], "%s.%s", test_family_name(model->family), name);
    return text;
}

static void write_tensor(gguf_writer *writer, const test_model *model, const test_tensor *tensor)
{
    uint32_t type = tensor->matrix ? writer_types[model->weight] : (uint32_t)GGUF_WRITER_F32;
    bool blocks = type == GGUF_WRITER_Q8_0 || type == GGUF_WRITER_Q4_0;
    size_t padded = blocks ? (tensor->columns + 31) / 32 * 32 : tensor->columns;
    float *values = test_alloc(tensor->rows * padded, sizeof *values);
    for (size_t r = 0; r < tensor->rows; r++)
        for (size_t c = 0; c < tensor->columns; c++) values[r * padded + c] = (float)tensor->values[r * tensor->columns + c];
    uint64_t dims[2] = {padded, tensor->rows};
    gguf_writer_tensor(writer, tensor->name, type, (uint32_t)tensor->n_dims, dims, values);
    free(values);
}

/* What a file says of sub-layers that are not CEM's, and of those that are. */
static void write_layers(gguf_writer *writer, const test_model *model)
{
    bool attention = test_has_energy(model->family, 0), mlp = test_has_energy(model->family, 1);
    if (!attention) gguf_writer_string(writer, key_of(model, "attention.kind"), test_sublayer(model->family, 0));
    if (!mlp) gguf_writer_string(writer, key_of(model, "mlp.kind"), test_sublayer(model->family, 1));
    if (attention) gguf_writer_u32(writer, key_of(model, "steps.attention"), model->steps[0]);
    if (mlp) gguf_writer_u32(writer, key_of(model, "steps.mlp"), model->steps[1]);
    if (attention) gguf_writer_string(writer, key_of(model, "attention.diagonal"), model->diagonal);
    if (mlp) gguf_writer_string(writer, key_of(model, "activation"), model->activation);
    if (attention || mlp) gguf_writer_i32(writer, key_of(model, "preconditioner.rank"), model->rank);
    gguf_writer_f32(writer, key_of(model, "rope.freq_base"), (float)model->rope_base);
}

void write_model(const test_model *model, const char *path)
{
    write_model_with(model, path, NULL);
}

void write_model_with(const test_model *model, const char *path, void (*add)(gguf_writer *writer))
{
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_string(writer, "general.architecture", test_family_name(model->family));
    gguf_writer_string(writer, "general.name", "test");
    gguf_writer_u32(writer, "general.file_type", file_types[model->weight]);
    if (model->weight >= TEST_Q8_0) gguf_writer_u32(writer, "general.quantization_version", 2);
    gguf_writer_u32(writer, "descent.format_version", 1);
    gguf_writer_u32(writer, key_of(model, "vocab_size"), (uint32_t)model->vocab);
    gguf_writer_u32(writer, key_of(model, "context_length"), (uint32_t)model->context);
    gguf_writer_u32(writer, key_of(model, "embedding_length"), (uint32_t)model->width);
    gguf_writer_u32(writer, key_of(model, "block_count"), (uint32_t)model->layers);
    gguf_writer_u32(writer, key_of(model, "attention.head_count"), (uint32_t)model->heads);
    gguf_writer_u32(writer, key_of(model, "feed_forward_length"), (uint32_t)model->hidden);
    gguf_writer_f32(writer, key_of(model, "norm_epsilon"), (float)model->norm_epsilon);
    if (test_sublayer(model->family, 0)) {
        write_layers(writer, model);
    } else if (model->family == TEST_GPT_REC) {
        gguf_writer_u32(writer, key_of(model, "steps"), model->steps[0]);
    } else if (model->family == TEST_NRGPT) {
        gguf_writer_u32(writer, key_of(model, "steps"), model->steps[0]);
        gguf_writer_string(writer, key_of(model, "feed_forward"), model->feed_forward);
        gguf_writer_string(writer, key_of(model, "attention.mask"), model->strict ? "strict" : "causal");
        gguf_writer_string(writer, key_of(model, "norm"), model->rms ? "rmsnorm" : "layernorm");
        gguf_writer_string(writer, key_of(model, "rate"), model->rate);
        gguf_writer_f32(writer, key_of(model, "attention.beta"), (float)model->beta);
    }
    if (add) add(writer);
    for (size_t i = 0; i < model->n_tensors; i++) write_tensor(writer, model, &model->tensors[i]);
    gguf_writer_save(writer, path);
    gguf_writer_destroy(writer);
}

/* ---- Reading --------------------------------------------------------------------------------------------------- */

static void require(descent_code code, const char *path, const descent_status *status)
{
    if (code == DESCENT_OK) return;
    fprintf(stderr, "%s: %s\n", path, status->message);
    exit(1);
}

typedef struct reading {
    gguf_file *file;
    const char *path;
    test_model *model;
} reading;

static uint32_t get_u32(const reading *from, const char *name)
{
    descent_status status;
    uint32_t value = 0;
    require(gguf_get_u32(from->file, key_of(from->model, name), 0, UINT32_MAX, &value, &status), from->path, &status);
    return value;
}

static double get_f32(const reading *from, const char *name)
{
    descent_status status;
    float value = 0;
    require(gguf_get_f32(from->file, key_of(from->model, name), &value, &status), from->path, &status);
    return (double)value;
}

/* The one of `words` (ended by NULL) the key holds. */
static const char *get_word(const reading *from, const char *name, const char *const *words)
{
    descent_status status;
    gguf_string value = {NULL, 0};
    require(gguf_get_string(from->file, key_of(from->model, name), &value, &status), from->path, &status);
    for (; *words; words++)
        if (gguf_string_is(value, *words)) return *words;
    fprintf(stderr, "%s: %s is a word the tests do not know\n", from->path, name);
    exit(1);
}

static void read_tensors(const reading *from)
{
    for (size_t i = 0; i < gguf_tensor_count(from->file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(from->file, i);
        if (tensor->type != GGUF_F32) {
            fprintf(stderr, "%s: %s is not F32\n", from->path, tensor->name);
            exit(1);
        }
        test_tensor *to = test_model_add(from->model, tensor->n_dims > 1 ? (size_t)tensor->dims[1] : 0, (size_t)tensor->dims[0],
                                         tensor->n_dims > 1, "%s", tensor->name);
        const float *values = tensor->data;
        for (size_t j = 0; j < to->rows * to->columns; j++) to->values[j] = (double)values[j];
    }
}

static void read_family(const reading *from)
{
    test_model *model = from->model;
    if (model->family == TEST_CEM) {
        descent_status status;
        int32_t rank = -1;
        model->steps[0] = get_u32(from, "steps.attention");
        model->steps[1] = get_u32(from, "steps.mlp");
        model->diagonal = get_word(from, "attention.diagonal", (const char *const[]){"none", "shared", "per_head", NULL});
        model->activation = get_word(from, "activation", (const char *const[]){"silu", "gelu", NULL});
        model->rope_base = get_f32(from, "rope.freq_base");
        require(gguf_get_i32(from->file, key_of(model, "preconditioner.rank"), -1, 1 << 20, &rank, &status), from->path,
                &status);
        model->rank = rank;
        model->tied = !test_model_find(model, "output.weight");
        for (size_t i = 0; i < model->n_tensors; i++)
            if (!strcmp(model->tensors[i].name, "blk.0.attn_eta.weight")) model->eta_entries = model->tensors[i].columns;
    } else if (model->family == TEST_GPT_REC) {
        model->steps[0] = get_u32(from, "steps");
    } else if (model->family == TEST_NRGPT) {
        model->steps[0] = get_u32(from, "steps");
        model->feed_forward = get_word(from, "feed_forward", (const char *const[]){"ff1", "ff2", "ff2w", NULL});
        model->strict = !strcmp(get_word(from, "attention.mask", (const char *const[]){"causal", "strict", NULL}), "strict");
        model->rms = !strcmp(get_word(from, "norm", (const char *const[]){"layernorm", "rmsnorm", NULL}), "rmsnorm");
        model->rate = get_word(from, "rate", (const char *const[]){"matrix", "diag", "scalar", NULL});
        model->beta = get_f32(from, "attention.beta");
        model->alpha = test_model_find(model, "blk.0.attn_alpha.weight") != NULL;
    }
}

test_model read_model(const char *path)
{
    descent_status status;
    gguf_string architecture = {NULL, 0};
    test_model model = {.weight = TEST_F32};
    reading from = {.path = path, .model = &model};
    require(gguf_open(path, &from.file, &status), path, &status);
    require(gguf_get_string(from.file, "general.architecture", &architecture, &status), path, &status);
    while (model.family < TEST_FAMILIES && !gguf_string_is(architecture, test_family_name(model.family))) model.family++;
    if (model.family == TEST_FAMILIES) {
        fprintf(stderr, "%s: of a family the tests do not know\n", path);
        exit(1);
    }
    model.vocab = get_u32(&from, "vocab_size");
    model.context = get_u32(&from, "context_length");
    model.width = get_u32(&from, "embedding_length");
    model.layers = get_u32(&from, "block_count");
    model.heads = get_u32(&from, "attention.head_count");
    model.hidden = get_u32(&from, "feed_forward_length");
    model.norm_epsilon = get_f32(&from, "norm_epsilon");
    read_tensors(&from);
    read_family(&from);
    gguf_close(from.file);
    return model;
}

/* ---- Scratch files --------------------------------------------------------------------------------------------- */

static char scratch[160];

static void remove_scratch(void)
{
    DIR *directory = opendir(scratch);
    if (!directory) return;
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
        if (entry->d_name[0] != '.') (void)unlinkat(dirfd(directory), entry->d_name, 0);
    (void)closedir(directory);
    (void)rmdir(scratch);
}

const char *scratch_path(const char *name)
{
    static char paths[8][256];
    static unsigned next;
    if (!scratch[0]) {
        const char *parent = getenv("TMPDIR");
        (void)snprintf(scratch, sizeof scratch, "%s/descent-test-XXXXXX", parent && *parent ? parent : P_tmpdir);
        if (!mkdtemp(scratch)) {
            perror(scratch);
            exit(1);
        }
        (void)atexit(remove_scratch);
    }
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}
