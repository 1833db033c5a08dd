/* json_text.c: see json_text.h. */
#include "json_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 1024 };

void json_text_release(json_text *out)
{
    free(out->text);
    *out = (json_text){0};
}

void json_text_clear(json_text *out)
{
    out->bytes = 0;
    out->failed = false;
}

/* Where `count` more bytes may be written; NULL where there is no memory. */
static char *reserve(json_text *out, size_t count)
{
    if (out->failed) return NULL;
    if (count > out->room - out->bytes) {
        size_t room = out->room ? out->room : FIRST_ROOM;
        while (room - out->bytes < count && room <= SIZE_MAX / 2) room *= 2;
        char *text = room - out->bytes >= count ? realloc(out->text, room) : NULL;
        if (!text) {
            out->failed = true;
            return NULL;
        }
        out->text = text;
        out->room = room;
    }
    return out->text + out->bytes;
}

void json_text_bytes(json_text *out, const char *bytes, size_t count)
{
    char *to = reserve(out, count);
    if (!to || count == 0) return;
    memcpy(to, bytes, count);
    out->bytes += count;
}

void json_text_put(json_text *out, const char *text)
{
    json_text_bytes(out, text, strlen(text));
}

static void put_escaped(json_text *out, unsigned char c)
{
    static const char named[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    const char *which = c ? strchr(named, c) : NULL;
    char escape[8];
    int length =
        which ? snprintf(escape, sizeof escape, "\\%c", letters[which - named]) : snprintf(escape, sizeof escape, "\\u%04x", c);
    json_text_bytes(out, escape, (size_t)length);
}

void json_text_string(json_text *out, const char *text, size_t bytes)
{
    json_text_bytes(out, "\"", 1);
    size_t from = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        json_text_bytes(out, text + from, i - from);
        put_escaped(out, c);
        from = i + 1;
    }
    json_text_bytes(out, text + from, bytes - from);
    json_text_bytes(out, "\"", 1);
}

void json_text_integer(json_text *out, int64_t value)
{
    char digits[24];
    json_text_bytes(out, digits, (size_t)snprintf(digits, sizeof digits, "%" PRId64, value));
}

void json_text_unsigned(json_text *out, uint64_t value)
{
    char digits[24];
    json_text_bytes(out, digits, (size_t)snprintf(digits, sizeof digits, "%" PRIu64, value));
}

void json_text_real(json_text *out, double value)
{
    char digits[32];
    if (!isfinite(value)) {
        json_text_put(out, "null");
        return;
    }
    size_t length = (size_t)snprintf(digits, sizeof digits, "%.9g", value);
    json_text_bytes(out, digits, length);
    if (!memchr(digits, '.', length) && !memchr(digits, 'e', length)) json_text_put(out, ".0");
}
