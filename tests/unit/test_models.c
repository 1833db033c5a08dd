/* test_models.c: the models a server opens: their names, fingerprints and chat templates, and what it refuses to open. */
#include "model_file.h"
#include "models.h"
#include "random_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static void add_template(gguf_writer *w)
{
    gguf_writer_string(w, "descent.chat_template", "llama3");
}

static void add_wrong_template(gguf_writer *w)
{
    gguf_writer_string(w, "descent.chat_template", "alpaca");
}

/* A small model of this seed, and its path. */
static const char *written(const char *name, uint64_t seed, void (*add)(gguf_writer *w))
{
    rng r = rng_seeded(seed);
    test_model model = random_model(&r, TEST_NRGPT, 16);
    const char *path = scratch_path(name);
    write_model_with(&model, path, add);
    test_model_free(&model);
    return path;
}

static model_options options_of(descent_page_type page_type, const char *named)
{
    return (model_options){.scheduler = {.cache = {.page_type = page_type}, .threads = 1}, .chat_template = named};
}

static void count_loaded(void *user, const served_model *model)
{
    assert_non_null(model->scheduler);
    ++*(size_t *)user;
}

static model_set opened(const char *const *arguments, size_t count, const model_options *options)
{
    model_set set;
    size_t loaded = 0;
    descent_status status;
    if (!models_open(arguments, count, options, &set, count_loaded, &loaded, &status)) fail_msg("%s", status.message);
    assert_int_equal(loaded, count);
    assert_int_equal(set.count, count);
    return set;
}

static void names(void **state)
{
    (void)state;
    const char *one = written("one.gguf", 1, add_template), *odd = written("a@b=c.gguf", 2, NULL),
               *bare = written("bare", 3, NULL);
    char named[256], model_at[256];
    (void)snprintf(named, sizeof named, "other name=%s", odd);
    (void)snprintf(model_at, sizeof model_at, "x@12=%s", bare);
    model_options options = options_of(DESCENT_PAGE_F16, "plain");
    model_set set = opened((const char *const[]){one, odd, bare, named, model_at}, 5, &options);

    static const char *const ids[] = {"one", "a@b=c", "bare", "other name", "x@12"};
    struct stat file;
    assert_int_equal(stat(one, &file), 0);
    for (size_t i = 0; i < 5; i++) {
        served_model *model = models_find(&set, ids[i], strlen(ids[i]));
        assert_ptr_equal(model, &set.items[i]);
        assert_string_equal(model->id, ids[i]);
        assert_int_equal(model->page_type, DESCENT_PAGE_F16);
        assert_ptr_equal(model->info, descent_model_describe(model->model));
        assert_null(model->tokenizer);
        assert_int_equal(model->template, i == 0 ? CHAT_LLAMA3 : CHAT_PLAIN);
    }
    assert_string_equal(set.items[0].path, one);
    assert_true(set.items[0].created == file.st_mtime);
    assert_null(models_find(&set, "on", 2));
    assert_null(models_find(&set, "one.gguf", 8));
    assert_ptr_equal(models_find(&set, "one@2", 3), &set.items[0]);
    models_close(&set);
    assert_null(set.items);
}

/* The hash of everything that decides a text's bits: another file or page type is another fingerprint, another name is not. */
static void fingerprints(void **state)
{
    (void)state;
    const char *one = written("one.gguf", 1, NULL), *two = written("two.gguf", 2, NULL);
    char copy[256];
    (void)snprintf(copy, sizeof copy, "copy=%s", one);
    model_options f32 = options_of(DESCENT_PAGE_F32, NULL), f16 = options_of(DESCENT_PAGE_F16, NULL);
    model_set first = opened((const char *const[]){one, two, copy}, 3, &f32), second = opened(&one, 1, &f16);
    const char *print = first.items[0].fingerprint;
    assert_int_equal(strlen(print), 19);
    assert_int_equal(strncmp(print, "fp_", 3), 0);
    assert_int_equal(strspn(print + 3, "0123456789abcdef"), 16);
    assert_string_equal(first.items[2].fingerprint, print);
    assert_string_not_equal(first.items[1].fingerprint, print);
    assert_string_not_equal(second.items[0].fingerprint, print);
    assert_int_equal(first.items[0].template, CHAT_NONE);
    models_close(&first);
    models_close(&second);
}

static void refuses(const char *const *arguments, size_t count, const model_options *options, descent_code code,
                    const char *part)
{
    model_set set = {.count = 77};
    descent_status status;
    assert_false(models_open(arguments, count, options, &set, NULL, NULL, &status));
    assert_int_equal(set.count, 77); /* left as it was */
    assert_int_equal(status.code, code);
    if (!strstr(status.message, part)) fail_msg("%s", status.message);
}

static void what_does_not_open(void **state)
{
    (void)state;
    const char *one = written("one.gguf", 1, NULL), *wrong = written("wrong.gguf", 1, add_wrong_template);
    char twice[256], empty[256], control[256], long_name[400];
    model_options options = options_of(DESCENT_PAGE_F32, NULL), alpaca = options_of(DESCENT_PAGE_F32, "alpaca");
    (void)snprintf(twice, sizeof twice, "one=%s", wrong);
    refuses((const char *const[]){one, twice}, 2, &options, DESCENT_BAD_ARGUMENT, "two models are named one, ");
    refuses((const char *const[]){one, one}, 2, &options, DESCENT_BAD_ARGUMENT, "two models are named one, ");
    (void)snprintf(empty, sizeof empty, "=%s", one);
    refuses((const char *const[]){empty}, 1, &options, DESCENT_BAD_ARGUMENT,
            "expected NAME=FILE with a name of 1 to 128 bytes");
    (void)snprintf(control, sizeof control, "a\nb=%s", one);
    refuses((const char *const[]){control}, 1, &options, DESCENT_BAD_ARGUMENT, "expected NAME=FILE");
    (void)snprintf(control, sizeof control, "\xff=%s", one);
    refuses((const char *const[]){control}, 1, &options, DESCENT_BAD_ARGUMENT, "expected NAME=FILE");
    (void)snprintf(long_name, sizeof long_name, "%0129d=%s", 0, one);
    refuses((const char *const[]){long_name}, 1, &options, DESCENT_BAD_ARGUMENT, "expected NAME=FILE");
    refuses((const char *const[]){""}, 1, &options, DESCENT_BAD_ARGUMENT, "expected NAME=FILE");
    refuses((const char *const[]){one, "no/such.gguf"}, 2, &options, DESCENT_IO, "no/such.gguf");
    refuses(&wrong, 1, &options, DESCENT_BAD_FILE,
            "wrong.gguf: descent.chat_template is alpaca: expected plain, chatml, llama2 or");
    refuses(&one, 1, &alpaca, DESCENT_BAD_ARGUMENT,
            "no chat template is named alpaca: expected plain, chatml, llama2 or llama3");
    options.scheduler.max_running = 5000;
    refuses(&one, 1, &options, DESCENT_BAD_ARGUMENT, "one.gguf: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(fingerprints),
        cmocka_unit_test(what_does_not_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
