/* text_stream.h: from chosen tokens to text that may be sent: whole UTF-8 characters only, nothing that may yet turn out to be
 * the beginning of a stop string, nothing at or after one. Tokens whose text is held back are held back with it.
 *
 * One text_stream is one choice of one prompt. Any one thread at a time. Knows nothing of requests: the command line's texts go
 * through one too.
 */
#ifndef DESCENT_SERVER_TEXT_STREAM_H
#define DESCENT_SERVER_TEXT_STREAM_H

#include "descent.h"

typedef struct stop_string {
    char *text; /* may hold NULs */
    size_t bytes;
} stop_string;

typedef struct text_stream text_stream;

/* What may be sent after a push or the end: `bytes` of text (valid UTF-8, NUL-terminated, may hold NULs), and how many of the
 * tokens pushed, not released before, go with it. Owned by the stream until its next call. */
typedef struct text_release {
    const char *text;
    size_t bytes;
    size_t tokens;
    bool stopped; /* a stop string was found: the text before it is all there is; tokens that hold it, or come after, are not
                     released */
} text_release;

/* Stop strings are kept by reference; each is valid UTF-8 of 1 byte at least. The text stops at the first one that is complete,
 * however it came in tokens; of those complete at the same byte, at the longest. DESCENT_NO_MEMORY. */
descent_code text_stream_create(const descent_tokenizer *tokenizer, const stop_string *stop, size_t n_stop,
                                text_stream **stream, descent_status *status);
void text_stream_destroy(text_stream *stream);
/* The text goes on behind these tokens, the last ones of its prompt: what a token adds depends on what came before it (no space
 * is left out at the start, half a character is completed). Before the first push; releases nothing. */
void text_stream_follow(text_stream *stream, const uint32_t *tokens, size_t count);
/* A token that has no text (EOS) releases with what stands before it. After a stop nothing comes out any more. When memory runs
 * out, here or at the end, the stream can only be destroyed. */
descent_code text_stream_push(text_stream *stream, uint32_t token, text_release *release, descent_status *status);
/* No token follows: all that was held back comes out, unfinished characters as U+FFFD. */
descent_code text_stream_finish(text_stream *stream, text_release *release, descent_status *status);

#endif
