/* utf8.h: reading UTF-8 strictly (no overlong forms, no surrogates, nothing past U+10FFFF), and a stream that turns any
 * bytes into valid UTF-8 as they arrive. */
#ifndef DESCENT_UTF8_H
#define DESCENT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum utf8_scan_result {
    UTF8_CHARACTER,  /* one whole character */
    UTF8_UNFINISHED, /* all the bytes there are begin a character that needs more */
    UTF8_BROKEN      /* bytes that no character begins with */
} utf8_scan_result;

/* Looks at the start of `bytes` >= 1 bytes. *length: the character's bytes; or all of them; or, where broken, the longest
 * run that began like a character (Unicode's maximal subpart), 1 at least. */
utf8_scan_result utf8_scan(const char *text, size_t bytes, size_t *length);

/* The character at the start of text and its length in bytes; 0 when there is no whole one. */
size_t utf8_read(const char *text, size_t bytes, uint32_t *code);

bool utf8_valid(const char *text, size_t bytes);

/* Where the first byte that belongs to no character stands; `bytes` when all are valid. */
size_t utf8_first_invalid(const char *text, size_t bytes);

/* What a broken sequence becomes: the libraries that vocabularies come from differ. */
typedef enum utf8_replacement {
    UTF8_PER_SUBPART, /* one U+FFFD for each maximal subpart: Unicode's recommendation, Python's errors="replace" */
    UTF8_PER_BYTE     /* one U+FFFD for each of its bytes: sentencepiece */
} utf8_replacement;

typedef struct utf8_stream {
    utf8_replacement replacement;
    unsigned held_bytes;
    char held[4]; /* an unfinished character */
} utf8_stream;

/* Most bytes a push of `bytes` bytes can write: every byte, those held included, may become U+FFFD. */
#define UTF8_STREAM_ROOM(bytes) (3 * ((bytes) + 3))

/* Both write to out what is certain now, valid UTF-8, and return its length. After finish the stream is empty. */
size_t utf8_stream_push(utf8_stream *stream, const char *text, size_t bytes, char *out);
size_t utf8_stream_finish(utf8_stream *stream, char *out);

/* Writes text as one printable line for a message: control characters and broken bytes as \xNN, cut between characters
 * and ended with "..." where it does not fit into size (at least 8) bytes with the NUL. Returns out. */
const char *utf8_printable(const char *text, size_t bytes, char *out, size_t size);

#endif
