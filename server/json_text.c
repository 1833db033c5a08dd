/* json_text.c: see json_text.h. */
#include "json_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST_ROOM = 1024, DIGITS = 9 };

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

bool json_text_reserve(json_text *out, size_t count)
{
    if (out->failed) return false;
    if (count <= out->room - out->bytes) return true;
    size_t room = out->room ? out->room : FIRST_ROOM;
    while (room - out->bytes < count && room <= SIZE_MAX / 2) room *= 2;
    char *text = room - out->bytes >= count ? realloc(out->text, room) : NULL;
    if (!text) {
        out->failed = true;
        return false;
    }
    out->text = text;
    out->room = room;
    return true;
}

void json_text_move(json_text *out, json_text *from)
{
    if (from->bytes > 0 && out->bytes == 0 && !out->failed) {
        json_text moved = *from;
        *from = *out;
        *out = moved;
    } else {
        json_text_bytes(out, from->text, from->bytes);
        out->failed |= from->failed;
    }
    json_text_clear(from);
}

static void put_escaped(json_text *out, unsigned char c)
{
    static const char named[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\", digits[] = "0123456789abcdef";
    const char *which = c ? strchr(named, c) : NULL;
    if (which)
        json_text_bytes(out, (const char[]){'\\', letters[which - named]}, 2);
    else
        json_text_bytes(out, (const char[]){'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]}, 6);
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
    if (value < 0) json_text_bytes(out, "-", 1);
    json_text_unsigned(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void json_text_unsigned(json_text *out, uint64_t value)
{
    size_t count = 1;
    for (uint64_t rest = value / 10; rest > 0; rest /= 10) count++;
    if (!json_text_reserve(out, count)) return;
    out->bytes += count;
    for (char *to = out->text + out->bytes; count > 0; count--, value /= 10) *--to = (char)('0' + value % 10);
}

/* Where it has no exponent: printf takes five times as long. False, and nothing is written, where it has one or what stands
 * behind the ninth digit is so near to a tie that rounding the product may decide it. */
static bool put_plain(json_text *out, double value)
{
    static const double tens[] = {1e-4, 1e-3, 1e-2, 1e-1, 1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12};
    static const double *const ten_to = tens + 4;
    char digits[DIGITS];
    int before = -3, last = DIGITS; /* digits before the point; where negative, zeros behind it */
    double size = fabs(value);
    if (!(size >= 1e-4 && size < 1e8)) return false;
    while (size >= ten_to[before]) before++;
    double nine = size * ten_to[DIGITS - before];
    uint64_t number = (uint64_t)nine;
    double behind = nine - (double)number;
    if (fabs(behind - 0.5) < 1e-6) return false; /* the product is off by 1e-7 at most */
    number += behind > 0.5;
    if (number == 1000000000) {
        number /= 10;
        before++;
    }
    for (int i = DIGITS - 1; i >= 0; i--, number /= 10) digits[i] = (char)('0' + number % 10);
    while (last > 1 && last > before && digits[last - 1] == '0') last--;
    int split = before > 0 ? before : 0;
    if (value < 0) json_text_bytes(out, "-", 1);
    json_text_bytes(out, before > 0 ? digits : "0", before > 0 ? (size_t)before : 1);
    json_text_bytes(out, ".000", before < 0 ? (size_t)(1 - before) : 1);
    json_text_bytes(out, last > split ? digits + split : "0", last > split ? (size_t)(last - split) : 1);
    return true;
}

void json_text_real(json_text *out, double value)
{
    char digits[32];
    if (put_plain(out, value)) return;
    if (!isfinite(value)) {
        json_text_put(out, "null");
        return;
    }
    size_t length = (size_t)snprintf(digits, sizeof digits, "%.9g", value);
    json_text_bytes(out, digits, length);
    if (!memchr(digits, '.', length) && !memchr(digits, 'e', length)) json_text_put(out, ".0");
}
