/* tokenizer_words.c: the `words` kind, tokens joined by a separator: "add_10,(,3,4,),=," with the separator ",". Every
 * token is followed by one, so that texts can be joined; the last may lack it. There is no unknown: a word outside the
 * vocabulary is an error that names it. A control token (`<eos>`) is a word like any other where special tokens are
 * asked for, and refused in plain text. */
#include "tokenizer.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SEPARATOR_BYTES 16

static const char SEPARATOR_KEY[] = "tokenizer.descent.separator";

typedef struct separator {
    size_t bytes;
    char text[MAX_SEPARATOR_BYTES];
} separator;

/* Where the separator first stands; `bytes` when it does not. */
static size_t find_separator(const separator *s, const char *text, size_t bytes)
{
    for (size_t at = 0; at + s->bytes <= bytes; at++) {
        const char *first = memchr(text + at, s->text[0], bytes - s->bytes + 1 - at);
        if (!first) break;
        at = (size_t)(first - text);
        if (memcmp(first, s->text, s->bytes) == 0) return at;
    }
    return bytes;
}

/* A token must be what a text made of it and a separator is taken apart into. */
static descent_code check_spelling(const separator *s, token_string spelling, uint32_t id, descent_status *status)
{
    char shown[48];
    char followed[2 * MAX_SEPARATOR_BYTES]; /* the token's end and a separator */
    size_t tail = spelling.bytes < s->bytes ? spelling.bytes : s->bytes;
    memcpy(followed, spelling.text + spelling.bytes - tail, tail);
    memcpy(followed + tail, s->text, s->bytes);
    if (find_separator(s, spelling.text, spelling.bytes) == spelling.bytes &&
        find_separator(s, followed, tail + s->bytes) == tail)
        return DESCENT_OK;
    return descent_fail(status, DESCENT_BAD_FILE,
                        "tokenizer.ggml.tokens: token %u is \"%s\", expected none that holds or runs into the separator", id,
                        utf8_printable(spelling.text, spelling.bytes, shown, sizeof shown));
}

static descent_code load(descent_tokenizer *t, const gguf_file *file, descent_status *status)
{
    gguf_string text;
    descent_code code = gguf_get_string(file, SEPARATOR_KEY, &text, status);
    if (code) return code;
    if (text.bytes == 0 || text.bytes > MAX_SEPARATOR_BYTES)
        return descent_fail(status, DESCENT_BAD_FILE, "%s has %zu bytes, expected 1..%d", SEPARATOR_KEY, text.bytes,
                            MAX_SEPARATOR_BYTES);
    separator *s = calloc(1, sizeof *s);
    if (!s) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a separator");
    s->bytes = text.bytes;
    memcpy(s->text, text.text, text.bytes);
    t->own = s;
    for (uint32_t id = 0; id < t->count && !code; id++) code = check_spelling(s, t->spellings[id], id, status);
    return code;
}

static void unload(descent_tokenizer *t)
{
    free(t->own);
}

static size_t spell(const descent_tokenizer *t, uint32_t id, char *out)
{
    const separator *s = t->own;
    token_string spelling = t->spellings[id];
    if (out) {
        memcpy(out, spelling.text, spelling.bytes);
        memcpy(out + spelling.bytes, s->text, s->bytes);
    }
    return spelling.bytes + s->bytes;
}

static descent_code add_word(const descent_tokenizer *t, const char *word, size_t bytes, size_t offset,
                             const special_ranges *special, token_list *list, descent_status *status)
{
    char shown[64];
    if (bytes == 0)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "a word is missing at byte %zu of the text: two separators in a row",
                            offset);
    uint32_t id = token_index_find(&t->index, word, bytes);
    if (id == TOKENIZER_NONE)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "the vocabulary has no word \"%s\", which stands at byte %zu of the text",
                            utf8_printable(word, bytes, shown, sizeof shown), offset);
    if (t->types[id] == TOKEN_CONTROL && !special_within(special, offset, offset + bytes))
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "\"%s\" at byte %zu of the text is a special token, which plain text may not spell",
                            utf8_printable(word, bytes, shown, sizeof shown), offset);
    return token_list_add(list, id, status);
}

static descent_code encode(const descent_tokenizer *t, const char *text, size_t bytes, const special_ranges *special,
                           token_list *list, descent_status *status)
{
    const separator *s = t->own;
    descent_code code = DESCENT_OK;
    for (size_t at = 0; at < bytes && !code;) {
        size_t length = find_separator(s, text + at, bytes - at);
        code = add_word(t, text + at, length, at, special, list, status);
        at += length + s->bytes;
    }
    return code;
}

const tokenizer_kind tokenizer_words = {
    .name = "words", .replacement = UTF8_PER_SUBPART, .load = load, .unload = unload, .spell = spell, .encode = encode};
