/* nfc.c: decomposition, canonical order and composition of the parts of a text that need them. Most text needs none: below
 * U+0300 every character is its own form C and combines with nothing before it.
 *
 * The library's own ordering of combining marks takes time with the square of their number, which a text may choose, so it
 * is done here: a run of marks is sorted by counting. The library then finds them in order.
 *
 * Called by tokenizer_bpe.c. */
#include "nfc.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define FIRST_COMBINING_BYTE 0xCC /* of U+0300 */
#define MAX_DECOMPOSED 18         /* code points of one, canonical or not */

void nfc_work_free(nfc_work *work)
{
    free(work->points);
    free(work->sorted);
}

static descent_code reserve(nfc_work *w, size_t more, descent_status *status)
{
    if (w->room - w->count >= more) return DESCENT_OK;
    size_t room = 2 * (w->room + more);
    int32_t *points = realloc(w->points, room * sizeof *points);
    if (points) w->points = points;
    int32_t *sorted = realloc(w->sorted, room * sizeof *sorted);
    if (sorted) w->sorted = sorted;
    if (!points || !sorted) return descent_fail(status, DESCENT_NO_MEMORY, "no memory to normalize %zu characters", room);
    w->room = room;
    return DESCENT_OK;
}

static descent_code decompose(nfc_work *w, const char *text, size_t bytes, descent_status *status)
{
    descent_code code = DESCENT_OK;
    w->count = 0;
    for (size_t at = 0; at < bytes && !code;) {
        uint32_t point;
        int boundary = 0;
        at += utf8_read(text + at, bytes - at, &point);
        code = reserve(w, MAX_DECOMPOSED, status);
        if (code) break;
        utf8proc_ssize_t made = utf8proc_decompose_char((utf8proc_int32_t)point, w->points + w->count, MAX_DECOMPOSED,
                                                        UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
        if (made < 0 || made > MAX_DECOMPOSED)
            return descent_fail(status, DESCENT_UNSUPPORTED, "the utf8proc library does not decompose U+%04X", (unsigned)point);
        w->count += (size_t)made;
    }
    return code;
}

static unsigned combining_class(int32_t point)
{
    return (unsigned)utf8proc_get_property(point)->combining_class & 0xFF;
}

/* Orders points[start..end-1], all of a class other than 0, by their class; equals stay in order. */
static void sort_marks(nfc_work *w, size_t start, size_t end)
{
    size_t places[257] = {0};
    for (size_t i = start; i < end; i++) places[combining_class(w->points[i]) + 1]++;
    for (size_t c = 1; c < 257; c++) places[c] += places[c - 1];
    for (size_t i = start; i < end; i++) w->sorted[places[combining_class(w->points[i])]++] = w->points[i];
    memcpy(w->points + start, w->sorted, (end - start) * sizeof *w->points);
}

static void order(nfc_work *w)
{
    for (size_t start = 0; start < w->count;) {
        size_t end = start;
        unsigned before = 0, class;
        bool ordered = true;
        for (; end < w->count && (class = combining_class(w->points[end])) > 0; end++) {
            ordered = ordered && before <= class;
            before = class;
        }
        if (!ordered) sort_marks(w, start, end);
        start = end + 1;
    }
}

static descent_code append(text_buffer *out, const char *text, size_t bytes, descent_status *status)
{
    descent_code code = text_buffer_reserve(out, bytes, status);
    if (code || bytes == 0) return code;
    memcpy(out->bytes + out->count, text, bytes);
    out->count += bytes;
    return DESCENT_OK;
}

/* Hangul's trailing consonants begin after this one, which belongs to no syllable. Version 2.8 of the library and those before
 * take it into the one before it, so that it would be lost. */
#define BEFORE_TRAILING_CONSONANTS 0x11A7

/* Composes the points, each stretch up to the next of those that compose with nothing by itself. */
static descent_code compose(nfc_work *w, text_buffer *out, descent_status *status)
{
    descent_code code = DESCENT_OK;
    for (size_t start = 0, end; start < w->count && !code; start = end) {
        end = start + 1;
        while (end < w->count && w->points[end] != BEFORE_TRAILING_CONSONANTS) end++;
        int32_t *points = w->points + start;
        utf8proc_ssize_t count =
            utf8proc_normalize_utf32(points, (utf8proc_ssize_t)(end - start), UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        if (count < 0) return descent_fail(status, DESCENT_UNSUPPORTED, "the utf8proc library does not compose a text");
        code = text_buffer_reserve(out, 4 * (size_t)count, status);
        for (utf8proc_ssize_t i = 0; i < count && !code; i++)
            out->count += (size_t)utf8proc_encode_char(points[i], (utf8proc_uint8_t *)out->bytes + out->count);
    }
    return code;
}

/* A stretch of valid UTF-8. */
static descent_code normalize_valid(nfc_work *w, const char *text, size_t bytes, text_buffer *out, descent_status *status)
{
    bool simple = true;
    for (size_t i = 0; i < bytes && simple; i++) simple = (unsigned char)text[i] < FIRST_COMBINING_BYTE;
    if (simple) return append(out, text, bytes, status);
    descent_code code = decompose(w, text, bytes, status);
    if (code) return code;
    order(w);
    return compose(w, out, status);
}

descent_code nfc_normalize(nfc_work *work, const char *text, size_t bytes, text_buffer *out, descent_status *status)
{
    descent_code code = DESCENT_OK;
    out->count = 0;
    for (size_t at = 0; at < bytes && !code;) {
        size_t valid = utf8_first_invalid(text + at, bytes - at);
        code = normalize_valid(work, text + at, valid, out, status);
        at += valid;
        size_t broken;
        while (at < bytes && !code && utf8_scan(text + at, bytes - at, &broken) != UTF8_CHARACTER) {
            code = append(out, text + at, broken, status);
            at += broken;
        }
    }
    return code;
}
