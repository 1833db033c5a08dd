/* session.h: what a command works with, a model with a cache and a batch over it, or with a scheduler that has its own, opened
 * from the options that every command with a model shares. */
#ifndef DESCENT_TOOLS_SESSION_H
#define DESCENT_TOOLS_SESSION_H

#include "cli.h"

#include "descent.h"

typedef struct session_options {
    int64_t threads; /* 0: as many as the process may use */
    int64_t chunk;   /* rows in flight at once */
    int page_type;
    uint64_t cache_bytes;
} session_options;

enum { SESSION_OPTIONS = 4, SESSION_MAX_ROWS = 65536 };

extern const char *const page_type_names[]; /* indexed by descent_page_type, NULL-terminated */

/* Fills table[0..SESSION_OPTIONS-1]. */
void session_option_table(session_options *options, cli_option *table);

typedef struct session {
    descent_model *model;
    descent_cache *cache;
    descent_batch *batch;
    descent_scheduler *scheduler;
    const descent_model_info *info;
    const descent_tokenizer *tokenizer; /* NULL: none in the file */
    descent_page_type page_type;
    size_t rows;             /* the batch holds */
    descent_exit exit;       /* of sequences made in it; none when it is opened */
    descent_motion motion;   /* the same; as the model says */
    descent_solver solver;   /* the same; plain */
    descent_history history; /* the same; own */
} session;

/* EXIT_SUCCESS, or the exit code after a message. *opened may be closed in either case. The second opens a scheduler, neither
 * cache nor batch, that runs at most `running` generations side by side, 0: 64. */
int session_open(const char *path, const session_options *options, session *opened);
int session_open_scheduler(const char *path, const session_options *options, uint32_t running, session *opened);
void session_close(session *opened);

/* Encodes a text, BOS included where the tokenizer adds one. The caller releases *tokens with descent_free. */
int session_encode(const session *opened, const char *what, const char *text, size_t bytes, int flags, uint32_t **tokens,
                   size_t *count);

#endif
