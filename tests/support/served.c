/* served.c: see served.h. */
#include "served.h"

#include "model_file.h"
#include "random_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHARS_VOCAB = 100, BYTES_VOCAB = 259, CONTEXT = 64 };

static void add_chars(gguf_writer *w)
{
    static char ascii[95][2];
    const char *tokens[CHARS_VOCAB] = {"\n"};
    int32_t types[CHARS_VOCAB];
    for (size_t i = 0; i < 95; i++) {
        ascii[i][0] = (char)(' ' + i);
        tokens[1 + i] = ascii[i];
    }
    tokens[96] = "\xc3\xa4";
    tokens[97] = "\xe2\x82\xac";
    tokens[98] = "\xf0\x9f\x98\x80";
    tokens[99] = "<eos>";
    for (size_t i = 0; i < CHARS_VOCAB; i++) types[i] = i == 99 ? 3 : 1;
    gguf_writer_string(w, "tokenizer.ggml.model", "chars");
    gguf_writer_strings(w, "tokenizer.ggml.tokens", tokens, CHARS_VOCAB);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", types, CHARS_VOCAB);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 99);
    gguf_writer_string(w, "descent.chat_template", "plain");
}

static void add_bytes(gguf_writer *w, bool adds_bos)
{
    static char bytes[256][8];
    const char *tokens[BYTES_VOCAB] = {"<unk>", "<s>", "</s>"};
    float scores[BYTES_VOCAB] = {0};
    int32_t types[BYTES_VOCAB] = {2, 3, 3};
    for (size_t b = 0; b < 256; b++) {
        (void)snprintf(bytes[b], sizeof bytes[b], "<0x%02X>", (unsigned)b);
        tokens[3 + b] = bytes[b];
        types[3 + b] = 6;
    }
    gguf_writer_string(w, "tokenizer.ggml.model", "llama");
    gguf_writer_strings(w, "tokenizer.ggml.tokens", tokens, BYTES_VOCAB);
    gguf_writer_f32s(w, "tokenizer.ggml.scores", scores, BYTES_VOCAB);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", types, BYTES_VOCAB);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", adds_bos);
    gguf_writer_bool(w, "tokenizer.ggml.add_eos_token", false);
    gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", false);
}

static void add_bytes_and_bos(gguf_writer *w)
{
    add_bytes(w, true);
    gguf_writer_string(w, "descent.chat_template", "llama2");
}

static void add_bytes_alone(gguf_writer *w)
{
    add_bytes(w, false);
}

static void add_words(gguf_writer *w)
{
    static const char *const tokens[] = {"<eos>", "zero", "one", "two"};
    gguf_writer_string(w, "tokenizer.ggml.model", "words");
    gguf_writer_strings(w, "tokenizer.ggml.tokens", tokens, 4);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", (const int32_t[]){3, 1, 1, 1}, 4);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 0);
    gguf_writer_string(w, "tokenizer.descent.separator", ",");
}

static const struct {
    const char *id;
    test_family family;
    unsigned steps[2];
    size_t vocab;
    void (*add)(gguf_writer *w);
    chat_template template;
} kinds[] = {
    {"chars", TEST_NRGPT, {5, 0}, CHARS_VOCAB, add_chars, CHAT_PLAIN},
    {"pair", TEST_CEM, {3, 2}, BYTES_VOCAB, add_bytes_and_bos, CHAT_LLAMA2},
    {"a@b", TEST_LLAMA_CEM, {0, 4}, 200, add_bytes_alone, CHAT_NONE},
    {"flat", TEST_GPT, {0, 0}, 4, add_words, CHAT_NONE},
    {"bare", TEST_GPT_REC, {2, 0}, 7, NULL, CHAT_NONE},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void open_kind(size_t k, served_model *out)
{
    rng r = {.state = 1 + k};
    test_model model = random_shape(&r, kinds[k].family, CONTEXT);
    model.vocab = kinds[k].vocab;
    memcpy(model.steps, kinds[k].steps, sizeof model.steps);
    random_weights(&model, &r);
    const char *path = scratch_path(kinds[k].id);
    write_model_with(&model, path, kinds[k].add);
    test_model_free(&model);

    descent_status status;
    if (descent_model_open(path, &out->model, &status)) {
        fprintf(stderr, "%s\n", status.message);
        exit(1);
    }
    out->id = kinds[k].id;
    out->info = descent_model_describe(out->model);
    out->tokenizer = descent_model_tokenizer(out->model);
    out->template = kinds[k].template;
}

model_set served_open(void)
{
    model_set set = {.items = test_alloc(KINDS, sizeof *set.items), .count = KINDS};
    for (size_t k = 0; k < KINDS; k++) open_kind(k, &set.items[k]);
    return set;
}

void served_close(model_set *models)
{
    for (size_t k = 0; k < models->count; k++) descent_model_close(models->items[k].model);
    free(models->items);
}

model_set served_models;

int served_set_up(void **state)
{
    (void)state;
    served_models = served_open();
    return 0;
}

int served_tear_down(void **state)
{
    (void)state;
    served_close(&served_models);
    return 0;
}

served_model *served_find(const model_set *models, const char *id)
{
    return models_find(models, id, strlen(id));
}

bool served_read(request_kind kind, const char *body, const model_set *models, const request_limits *limits,
                 generation_request *out, api_error *error)
{
    size_t bytes = strlen(body);
    char *exact = test_alloc(bytes, 1);
    for (size_t i = 0; i < bytes; i++) exact[i] = body[i] == '\'' ? '"' : body[i];
    bool good = request_read(kind, exact, bytes, models, limits, SERVED_SEED, out, error);
    free(exact);
    return good;
}
