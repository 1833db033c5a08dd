/* models.c: see models.h. Names are settled before any file is opened; what was opened is closed again where one fails. */
#include "models.h"

#include "status.h"
#include "utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MODEL_NAME_BYTES = 128 };

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* Splits "NAME=FILE"; an '=' behind a '/' belongs to the file's path. *name is not terminated. */
static void split_argument(const char *argument, const char **name, size_t *bytes, const char **path)
{
    const char *equals = strchr(argument, '='), *slash = strrchr(argument, '/');
    if (equals && (!slash || equals < strchr(argument, '/'))) {
        *name = argument;
        *bytes = (size_t)(equals - argument);
        *path = equals + 1;
        return;
    }
    *path = argument;
    *name = slash ? slash + 1 : argument;
    *bytes = strlen(*name);
    if (*bytes > 5 && !strcmp(*name + *bytes - 5, ".gguf")) *bytes -= 5;
}

/* A name stands in URLs, logs and labels of metrics. */
static bool is_name(const char *name, size_t bytes)
{
    if (bytes == 0 || bytes > MODEL_NAME_BYTES || !utf8_valid(name, bytes)) return false;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) return false;
    return true;
}

static descent_code name_model(served_model *model, const char *argument, descent_status *status)
{
    const char *name, *path;
    size_t bytes;
    split_argument(argument, &name, &bytes, &path);
    if (!is_name(name, bytes))
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "%s: expected NAME=FILE with a name of 1 to %d bytes of text, or a file with such a name", argument,
                            MODEL_NAME_BYTES);
    model->id = strndup(name, bytes);
    model->path = strdup(path);
    return model->id && model->path ? DESCENT_OK : descent_fail(status, DESCENT_NO_MEMORY, "no memory for a model's name");
}

static descent_code name_models(const char *const *arguments, model_set *set, descent_status *status)
{
    for (size_t i = 0; i < set->count; i++) {
        descent_code code = name_model(&set->items[i], arguments[i], status);
        if (code) return code;
        for (size_t k = 0; k < i; k++)
            if (!strcmp(set->items[k].id, set->items[i].id))
                return descent_fail(status, DESCENT_BAD_ARGUMENT,
                                    "two models are named %s, %s and %s: NAME=FILE gives one another name", set->items[i].id,
                                    set->items[k].path, set->items[i].path);
    }
    return DESCENT_OK;
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

/* 64 bits of FNV-1a over everything that decides which bits a text comes from. */
static void fingerprint(served_model *model)
{
    char all[256];
    uint64_t hash = 0xcbf29ce484222325;
    (void)snprintf(all, sizeof all, "%s|%s|%016llx|%s|%d", descent_version(), __VERSION__,
                   (unsigned long long)model->info->fingerprint, descent_isa(), (int)model->page_type);
    for (const char *c = all; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3;
    (void)snprintf(model->fingerprint, sizeof model->fingerprint, "fp_%016llx", (unsigned long long)hash);
}

/* What the file names, else what the option does. */
static descent_code choose_template(served_model *model, chat_template otherwise, descent_status *status)
{
    const char *key;
    char value[64];
    for (size_t i = 0; descent_model_metadata(model->model, i, &key, value, sizeof value); i++) {
        if (strcmp(key, "descent.chat_template") != 0) continue;
        model->template = chat_template_find(value);
        if (model->template != CHAT_NONE) return DESCENT_OK;
        return descent_fail(status, DESCENT_BAD_FILE, "descent.chat_template is %s: expected plain, chatml, llama2 or llama3",
                            value);
    }
    model->template = otherwise;
    return DESCENT_OK;
}

/* All that is made from an open model. */
static descent_code prepare_model(served_model *model, const model_options *options, descent_status *status)
{
    struct stat file;
    model->info = descent_model_describe(model->model);
    model->tokenizer = descent_model_tokenizer(model->model);
    model->page_type = options->scheduler.cache.page_type;
    model->created = stat(model->path, &file) == 0 ? file.st_mtime : 0;
    fingerprint(model);
    chat_template otherwise = options->chat_template ? chat_template_find(options->chat_template) : CHAT_NONE;
    descent_code code = choose_template(model, otherwise, status);
    return code ? code : descent_scheduler_create(model->model, &options->scheduler, &model->scheduler, status);
}

static descent_code open_model(served_model *model, const model_options *options, descent_status *status)
{
    descent_status why;
    descent_code code = descent_model_read(model->path, &model->model, status);
    if (code) return code;
    code = prepare_model(model, options, &why);
    return code ? descent_fail(status, code, "%s: %s", model->path, why.message) : DESCENT_OK;
}

bool models_open(const char *const *arguments, size_t count, const model_options *options, model_set *out,
                 void (*loaded)(void *user, const served_model *model), void *user, descent_status *status)
{
    model_set set = {.items = calloc(count ? count : 1, sizeof *set.items), .count = count};
    if (!set.items) {
        (void)descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu models", count);
        return false;
    }
    if (options->chat_template && chat_template_find(options->chat_template) == CHAT_NONE) {
        (void)descent_fail(status, DESCENT_BAD_ARGUMENT,
                           "no chat template is named %s: expected plain, chatml, llama2 or llama3", options->chat_template);
        free(set.items);
        return false;
    }
    descent_code code = name_models(arguments, &set, status);
    for (size_t i = 0; i < count && !code; i++) {
        code = open_model(&set.items[i], options, status);
        if (!code && loaded) loaded(user, &set.items[i]);
    }
    if (code) {
        models_close(&set);
        return false;
    }
    *out = set;
    return true;
}

void models_close(model_set *models)
{
    for (size_t i = 0; i < models->count; i++) {
        served_model *model = &models->items[i];
        if (model->scheduler) descent_scheduler_destroy(model->scheduler);
        if (model->model) descent_model_close(model->model);
        free((char *)model->id);
        free((char *)model->path);
    }
    free(models->items);
    *models = (model_set){.items = NULL};
}

served_model *models_find(const model_set *models, const char *id, size_t bytes)
{
    for (size_t i = 0; i < models->count; i++)
        if (strlen(models->items[i].id) == bytes && !memcmp(models->items[i].id, id, bytes)) return &models->items[i];
    return NULL;
}
