/* pretokenizer.h: cutting a text into pre-tokens, across which byte-level BPE never merges, by the patterns of the
 * vocabularies there are. A model file names one of them; no pattern ever comes from a file. */
#ifndef DESCENT_PRETOKENIZER_H
#define DESCENT_PRETOKENIZER_H

#include "gguf.h"

/* Compiled patterns: immutable, for any number of threads. */
typedef struct pretokenizer pretokenizer;

/* The patterns llama.cpp calls `name`. DESCENT_UNSUPPORTED: none, the message lists those there are. */
descent_code pretokenizer_create(gguf_string name, pretokenizer **pre, descent_status *status);
/* NULL is allowed. */
void pretokenizer_destroy(pretokenizer *pre);

/* What one thread needs while it cuts texts. */
typedef struct pretokenizer_work pretokenizer_work;
descent_code pretokenizer_work_create(const pretokenizer *pre, pretokenizer_work **work, descent_status *status);
void pretokenizer_work_destroy(pretokenizer_work *work);

/* Takes a pre-token, never empty; what it returns other than DESCENT_OK ends the cutting. */
typedef descent_code (*pretokenizer_take)(void *context, const char *text, size_t bytes, descent_status *status);

/* Gives the pre-tokens of a text to `take`, in order and without gaps. The text must be valid UTF-8. Steps of the pattern
 * matcher are limited to a multiple of the text's length. */
descent_code pretokenizer_cut(pretokenizer_work *work, const char *text, size_t bytes, pretokenizer_take take, void *context,
                              descent_status *status);

#endif
