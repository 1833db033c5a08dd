/* session.c: see session.h. */
#include "session.h"

#include <stdlib.h>

const char *const page_type_names[] = {"f32", "f16", "bf16", "q8", NULL};

void session_option_table(session_options *options, cli_option *table)
{
    table[0] = cli_integer('t', "threads", &options->threads, 1, 1024, "threads; all the machine lets us use by default");
    table[1] = cli_choice(0, "page-type", &options->page_type, page_type_names, "numbers the history is kept in");
    table[2] = cli_bytes(0, "cache-bytes", &options->cache_bytes,
                         "most memory for histories; half of what the machine lets us use by default");
    table[3] = cli_integer(0, "chunk", &options->chunk, 1, SESSION_MAX_ROWS, "tokens descending side by side");
}

static int failed(const descent_status *status)
{
    cli_error("%s", status->message);
    return EXIT_FAILURE;
}

static int open_model(const char *path, const session_options *options, session *opened)
{
    descent_status status;
    *opened = (session){.page_type = (descent_page_type)options->page_type, .rows = (size_t)options->chunk};
    if (descent_model_open(path, &opened->model, &status) != DESCENT_OK) return failed(&status);
    opened->info = descent_model_describe(opened->model);
    opened->tokenizer = descent_model_tokenizer(opened->model);
    return EXIT_SUCCESS;
}

int session_open(const char *path, const session_options *options, session *opened)
{
    descent_status status;
    int exit_code = open_model(path, options, opened);
    if (exit_code != EXIT_SUCCESS) return exit_code;
    descent_cache_options cache = {.page_type = opened->page_type, .byte_limit = options->cache_bytes};
    if (descent_cache_create(opened->model, &cache, &opened->cache, &status) != DESCENT_OK) return failed(&status);
    descent_batch_options batch = {.max_rows = (uint32_t)options->chunk, .threads = (uint32_t)options->threads};
    if (descent_batch_create(opened->cache, &batch, &opened->batch, &status) != DESCENT_OK) return failed(&status);
    return EXIT_SUCCESS;
}

int session_open_scheduler(const char *path, const session_options *options, uint32_t running, session *opened)
{
    const uint32_t most = 16384; /* tokens of prompts that a scheduler takes on at once */
    descent_status status;
    int exit_code = open_model(path, options, opened);
    if (exit_code != EXIT_SUCCESS) return exit_code;
    descent_scheduler_options how = {.cache = {.page_type = opened->page_type, .byte_limit = options->cache_bytes},
                                     .threads = (uint32_t)options->threads,
                                     .chunk = (uint32_t)options->chunk < most ? (uint32_t)options->chunk : most,
                                     .max_running = running};
    if (descent_scheduler_create(opened->model, &how, &opened->scheduler, &status) != DESCENT_OK) return failed(&status);
    return EXIT_SUCCESS;
}

void session_close(session *opened)
{
    descent_scheduler_destroy(opened->scheduler);
    if (opened->batch) descent_batch_destroy(opened->batch);
    if (opened->cache) descent_cache_destroy(opened->cache);
    if (opened->model) descent_model_close(opened->model);
    *opened = (session){.model = NULL};
}

int session_encode(const session *opened, const char *what, const char *text, size_t bytes, int flags, uint32_t **tokens,
                   size_t *count)
{
    descent_status status;
    if (!opened->tokenizer) {
        cli_error("model %s has no tokenizer, so it cannot read a text", opened->info->name);
        return EXIT_FAILURE;
    }
    flags |= DESCENT_ADD_SPECIAL;
    if (descent_tokenizer_encode(opened->tokenizer, text, bytes, flags, tokens, count, &status) == DESCENT_OK)
        return EXIT_SUCCESS;
    cli_error("%s: %s", what, status.message);
    return EXIT_FAILURE;
}
