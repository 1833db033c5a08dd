/* models.h: the models one process serves, each with its scheduler. Filled at start, then constant: any thread may read. */
#ifndef DESCENT_SERVER_MODELS_H
#define DESCENT_SERVER_MODELS_H

#include "chat_template.h"
#include "descent.h"

#include <time.h>

typedef struct served_model {
    const char *id; /* as requests name it: the file's base name without .gguf, or NAME of NAME=FILE */
    const char *path;
    const descent_model_info *info;
    const descent_tokenizer *tokenizer; /* NULL: the file has none; prompts must be tokens then */
    chat_template template;             /* CHAT_NONE: chat is refused */
    descent_model *model;
    descent_scheduler *scheduler;
    descent_page_type page_type;
    time_t created;       /* the file's modification time */
    char fingerprint[24]; /* system_fingerprint: "fp_" and a hash of build, model file, ISA path and page type */
} served_model;

typedef struct model_set {
    served_model *items;
    size_t count;
} model_set;

typedef struct model_options {
    descent_scheduler_options scheduler;
    const char *chat_template; /* --chat-template: for models whose file names none; NULL: none */
} model_options;

/* Opens each of `arguments` ("FILE" or "NAME=FILE"), one after the other; `loaded` (may be NULL) is called after each. On false
 * a message in *status names the file, and nothing stays open. Two models of one name are an error. */
bool models_open(const char *const *arguments, size_t count, const model_options *options, model_set *out,
                 void (*loaded)(void *user, const served_model *model), void *user, descent_status *status);
/* After every generation has ended. */
void models_close(model_set *models);
/* The model of exactly that id, or NULL. */
served_model *models_find(const model_set *models, const char *id, size_t bytes);

#endif
