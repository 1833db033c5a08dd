/* json_text.h: JSON written straight into a growing text: answers and stream chunks, of which a fast model makes thousands a
 * second, and logprobs, which may be megabytes. Commas and brackets are the writer's. When memory runs out the text is
 * `failed`, and further writing does nothing: a writer checks once, at its end. One thread at a time.
 */
#ifndef DESCENT_SERVER_JSON_TEXT_H
#define DESCENT_SERVER_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct json_text {
    char *text; /* [bytes], not NUL-terminated; NULL at first */
    size_t bytes, room;
    bool failed;
} json_text;

void json_text_release(json_text *out);
void json_text_clear(json_text *out); /* empty again; its memory stays */

/* Has room for `count` bytes more. False without memory. */
bool json_text_reserve(json_text *out, size_t count);

/* Puts what `from` holds behind what is there; `from` is empty then. */
void json_text_move(json_text *out, json_text *from);

/* Here, since nearly all that is written is short texts that the compiler knows. */
static inline void json_text_bytes(json_text *out, const char *bytes, size_t count) /* as they are */
{
    bool fits = !out->failed && count <= out->room - out->bytes;
    if (count == 0 || (!fits && !json_text_reserve(out, count))) return;
    memcpy(out->text + out->bytes, bytes, count);
    out->bytes += count;
}

static inline void json_text_put(json_text *out, const char *text) /* as it is */
{
    json_text_bytes(out, text, strlen(text));
}

void json_text_string(json_text *out, const char *text, size_t bytes); /* quoted and escaped; the text is valid UTF-8 */
void json_text_integer(json_text *out, int64_t value);
void json_text_unsigned(json_text *out, uint64_t value);
/* Nine significant digits, enough to give a float back, and always a point or an exponent; null where it is not finite. */
void json_text_real(json_text *out, double value);

#endif
