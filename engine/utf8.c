/* utf8.c: the one place that knows how UTF-8 is built. Everything rests on utf8_scan, which reads one character; the
 * stream holds at most three bytes back and is what makes streamed text valid at every moment. Stateless but for the
 * caller's utf8_stream. Called by the tokenizers, and for messages that quote a text. */
#include "utf8.h"

#include <stdio.h>
#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD"

/* Bytes of the character that starts with `lead`, and the range its second byte must lie in: that range alone excludes
 * overlong forms, surrogates and what is past U+10FFFF. 0 when no character starts so. */
static size_t lead_length(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    if (lead < 0xE0) return 2;
    if (lead == 0xE0) *low = 0xA0;
    if (lead == 0xED) *high = 0x9F;
    if (lead == 0xF0) *low = 0x90;
    if (lead == 0xF4) *high = 0x8F;
    return lead < 0xF0 ? 3 : 4;
}

utf8_scan_result utf8_scan(const char *text, size_t bytes, size_t *length)
{
    const unsigned char *b = (const unsigned char *)text;
    unsigned char low, high;
    size_t whole = lead_length(b[0], &low, &high);
    *length = 1;
    if (whole == 0) return UTF8_BROKEN;
    for (size_t i = 1; i < whole; i++) {
        *length = i;
        if (i == bytes) return UTF8_UNFINISHED;
        if (b[i] < low || b[i] > high) return UTF8_BROKEN;
        low = 0x80;
        high = 0xBF;
    }
    *length = whole;
    return UTF8_CHARACTER;
}

size_t utf8_read(const char *text, size_t bytes, uint32_t *code)
{
    static const unsigned char lead_bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    size_t length;
    if (bytes == 0 || utf8_scan(text, bytes, &length) != UTF8_CHARACTER) return 0;
    *code = (unsigned char)text[0] & lead_bits[length];
    for (size_t i = 1; i < length; i++) *code = *code << 6 | ((unsigned char)text[i] & 0x3F);
    return length;
}

size_t utf8_first_invalid(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        size_t length;
        if (utf8_scan(text + at, bytes - at, &length) != UTF8_CHARACTER) break;
        at += length;
    }
    return at;
}

bool utf8_valid(const char *text, size_t bytes)
{
    return utf8_first_invalid(text, bytes) == bytes;
}

/* Writes what `count` bytes of a broken or abandoned character become. */
static size_t replace(utf8_replacement replacement, size_t count, char *out)
{
    size_t times = replacement == UTF8_PER_BYTE ? count : 1;
    for (size_t i = 0; i < times; i++) memcpy(out + 3 * i, REPLACEMENT, 3);
    return 3 * times;
}

size_t utf8_stream_push(utf8_stream *stream, const char *text, size_t bytes, char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < bytes; i++) {
        stream->held[stream->held_bytes++] = text[i];
        /* A broken run is everything held but the byte just added, or that byte alone: at most two rounds. */
        while (stream->held_bytes > 0) {
            size_t length;
            utf8_scan_result result = utf8_scan(stream->held, stream->held_bytes, &length);
            if (result == UTF8_UNFINISHED) break;
            if (result == UTF8_CHARACTER) {
                memcpy(out + written, stream->held, length);
                written += length;
            } else {
                written += replace(stream->replacement, length, out + written);
            }
            stream->held_bytes -= (unsigned)length;
            memmove(stream->held, stream->held + length, stream->held_bytes);
        }
    }
    return written;
}

size_t utf8_stream_finish(utf8_stream *stream, char *out)
{
    size_t written = stream->held_bytes ? replace(stream->replacement, stream->held_bytes, out) : 0;
    stream->held_bytes = 0;
    return written;
}

const char *utf8_printable(const char *text, size_t bytes, char *out, size_t size)
{
    size_t written = 0, cut = 0; /* cut: where "..." and the NUL still fit */
    for (size_t at = 0; at < bytes;) {
        uint32_t code;
        char shown[8];
        size_t length = utf8_read(text + at, bytes - at, &code);
        if (length == 0 || code < 0x20 || (code >= 0x7F && code < 0xA0)) {
            length = 1;
            (void)snprintf(shown, sizeof shown, "\\x%02x", (unsigned)(unsigned char)text[at]);
        } else {
            memcpy(shown, text + at, length);
            shown[length] = '\0';
        }
        size_t shown_bytes = strlen(shown);
        if (written + shown_bytes + 1 > size) {
            memcpy(out + cut, "...", 4);
            return out;
        }
        memcpy(out + written, shown, shown_bytes);
        written += shown_bytes;
        at += length;
        if (written + 4 <= size) cut = written;
    }
    out[written] = '\0';
    return out;
}
