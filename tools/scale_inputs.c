/* scale_inputs.c: texts cut into windows by models.md's rule, and questions, as inputs of an experiment. Window w of a text has
 * the inputs tokens[w * B .. w * B + B - 1], B the model's context, and predicts the token after each, so that every token of
 * the text but the first is predicted once. */
#include "scale.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_LIMIT = 1 << 30, MOST_TEXTS = 1 << 20 };

const char *const scale_kind_names[] = {"texts", "answers", "choices", NULL};

static int no_memory(void)
{
    cli_error("no memory left");
    return EXIT_FAILURE;
}

/* FNV-1a, over the numbers' bytes from the lowest on. */
static void hash_number(uint64_t *hash, uint64_t number)
{
    for (int i = 0; i < 8; i++, number >>= 8) *hash = (*hash ^ (number & 255)) * UINT64_C(1099511628211);
}

static void hash_bytes(uint64_t *hash, const char *bytes, size_t count)
{
    hash_number(hash, count);
    for (size_t i = 0; i < count; i++) *hash = (*hash ^ (unsigned char)bytes[i]) * UINT64_C(1099511628211);
}

static void hash_tokens(uint64_t *hash, const uint32_t *tokens, size_t count)
{
    hash_number(hash, count);
    for (size_t i = 0; i < count; i++) hash_number(hash, tokens[i]);
}

/* ---- Texts ------------------------------------------------------------------------------------------------------- */

/* The windows of one more text, whose tokens the data owns from here on. */
static int add_text(const session *with, const char *shown, uint32_t *tokens, size_t count, scale_data *data)
{
    const size_t context = with->info->context;
    if (count < 2) {
        descent_free(tokens);
        cli_error("%s: %s, so there is nothing to predict: at least two tokens are needed", shown,
                  count ? "only one token" : "no token");
        return EXIT_FAILURE;
    }
    uint32_t **texts = data->n_texts < MOST_TEXTS ? realloc(data->texts, (data->n_texts + 1) * sizeof *texts) : NULL;
    size_t windows = (count - 2) / context + 1;
    scale_input *inputs = texts ? realloc(data->inputs, (data->n_inputs + windows) * sizeof *inputs) : NULL;
    if (texts) data->texts = texts;
    if (inputs) data->inputs = inputs;
    if (!texts || !inputs) {
        descent_free(tokens);
        if (data->n_texts < MOST_TEXTS) return no_memory();
        cli_error("%s: more than %d texts", shown, MOST_TEXTS);
        return EXIT_FAILURE;
    }
    texts[data->n_texts++] = tokens;
    for (size_t w = 0; w < windows; w++) {
        size_t begin = w * context, left = count - begin;
        inputs[data->n_inputs++] = (scale_input){
            .tokens = tokens + begin, .count = left < context + 1 ? left : context + 1, .document = data->n_documents};
    }
    data->n_documents++;
    hash_tokens(&data->hash, tokens, count);
    return EXIT_SUCCESS;
}

static int encode_text(const session *with, const scale_files *files, const char *shown, const char *text, size_t bytes,
                       scale_data *data)
{
    uint32_t *tokens = NULL;
    size_t count = 0;
    int flags = files->parse_special ? DESCENT_PARSE_SPECIAL : 0;
    int exit_code = session_encode(with, shown, text, bytes, flags, &tokens, &count);
    return exit_code == EXIT_SUCCESS ? add_text(with, shown, tokens, count, data) : exit_code;
}

static int read_plain(const session *with, const scale_files *files, const char *path, scale_data *data)
{
    text_buffer text;
    int exit_code = read_text(path, TEXT_LIMIT, &text);
    if (exit_code == EXIT_SUCCESS) exit_code = encode_text(with, files, path, text.bytes, text.length, data);
    text_buffer_release(&text);
    return exit_code;
}

/* One line {"text": ...} */
static int read_object(const session *with, const scale_files *files, const char *shown, const char *line, size_t length,
                       scale_data *data)
{
    json_error_t error;
    json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    const json_t *text = json_object_get(object, "text");
    int exit_code = EXIT_FAILURE;
    if (!object)
        cli_error("%s: no JSON object: %s", shown, error.text);
    else if (!json_is_string(text))
        cli_error("%s: expected an object with a string \"text\"", shown);
    else
        exit_code = encode_text(with, files, shown, json_string_value(text), json_string_length(text), data);
    json_decref(object);
    return exit_code;
}

static int read_list(const session *with, const scale_files *files, const char *path, scale_data *data)
{
    text_buffer text;
    size_t before = data->n_texts;
    int exit_code = read_text(path, TEXT_LIMIT, &text);
    for (text_line line = {.number = 0}; exit_code == EXIT_SUCCESS && text_next_line(&text, &line);) {
        char shown[300];
        snprintf(shown, sizeof shown, "%s, line %zu", path, line.number);
        exit_code = read_object(with, files, shown, line.bytes, line.length, data);
    }
    text_buffer_release(&text);
    if (exit_code != EXIT_SUCCESS || data->n_texts > before) return exit_code;
    cli_error("%s: no line with a text", path);
    return EXIT_FAILURE;
}

/* ---- Questions --------------------------------------------------------------------------------------------------- */

static void hash_question(uint64_t *hash, const question *of)
{
    hash_tokens(hash, of->prompt, of->prompt_count);
    if (of->answer) hash_bytes(hash, of->answer, of->answer_bytes);
    for (size_t i = 0; i < of->n_choices; i++) {
        hash_tokens(hash, of->choices[i].tokens, of->choices[i].count);
        hash_number(hash, of->choices[i].bytes);
    }
    hash_number(hash, of->right);
}

static int add_questions(const session *with, const char *path, scale_data *data)
{
    int exit_code = read_questions(with, path, &data->questions);
    if (exit_code != EXIT_SUCCESS) return exit_code;
    data->kind = data->questions.questions->choices ? SCALE_CHOICES : SCALE_ANSWERS;
    if (data->kind == SCALE_ANSWERS && !answers_can_end(with)) return EXIT_FAILURE;
    data->inputs = calloc(data->questions.count, sizeof *data->inputs);
    if (!data->inputs) return no_memory();
    for (; data->n_inputs < data->questions.count; data->n_inputs++) {
        const question *of = &data->questions.questions[data->n_inputs];
        data->inputs[data->n_inputs] = (scale_input){.question = of, .document = data->n_inputs};
        hash_question(&data->hash, of);
    }
    data->n_documents = data->n_inputs;
    return EXIT_SUCCESS;
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

static void name_data(const scale_files *files, scale_data *data)
{
    size_t n = files->texts.count + files->lists.count;
    const char *path = files->questions ? files->questions : files->texts.count ? files->texts.items[0] : files->lists.items[0];
    const char *slash = strrchr(path, '/');
    if (n > 1)
        snprintf(data->name, sizeof data->name, "%zu files", n);
    else
        snprintf(data->name, sizeof data->name, "%s", !strcmp(path, "-") ? "standard input" : slash ? slash + 1 : path);
}

int scale_read(const session *with, const scale_files *files, scale_data *data)
{
    *data = (scale_data){.kind = SCALE_TEXTS, .hash = UINT64_C(14695981039346656037)};
    name_data(files, data);
    if (files->questions) return add_questions(with, files->questions, data);
    int exit_code = EXIT_SUCCESS;
    for (size_t i = 0; i < files->texts.count && exit_code == EXIT_SUCCESS; i++)
        exit_code = read_plain(with, files, files->texts.items[i], data);
    for (size_t i = 0; i < files->lists.count && exit_code == EXIT_SUCCESS; i++)
        exit_code = read_list(with, files, files->lists.items[i], data);
    return exit_code;
}

void scale_data_release(scale_data *data)
{
    for (size_t i = 0; i < data->n_texts; i++) descent_free(data->texts[i]);
    free(data->texts);
    free(data->inputs);
    question_set_release(&data->questions);
    *data = (scale_data){.kind = SCALE_TEXTS};
}
