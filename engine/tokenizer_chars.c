/* tokenizer_chars.c: the `chars` kind, a vocabulary of single Unicode characters (nanoGPT's character models). A text is
 * taken apart into its characters and each must be a token: there is no unknown, so what the vocabulary lacks is an error
 * that names it. Control tokens may be spelled by any number of characters. */
#include "tokenizer.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

static descent_code load(descent_tokenizer *t, const gguf_file *file, descent_status *status)
{
    (void)file;
    for (uint32_t id = 0; id < t->count; id++) {
        uint32_t code;
        char shown[48];
        token_string spelling = t->spellings[id];
        if (t->types[id] == TOKEN_CONTROL || utf8_read(spelling.text, spelling.bytes, &code) == spelling.bytes) continue;
        return descent_fail(status, DESCENT_BAD_FILE, "tokenizer.ggml.tokens: token %u is \"%s\", expected one character", id,
                            utf8_printable(spelling.text, spelling.bytes, shown, sizeof shown));
    }
    return DESCENT_OK;
}

static void unload(descent_tokenizer *t)
{
    (void)t;
}

static size_t spell(const descent_tokenizer *t, uint32_t id, char *out)
{
    token_string spelling = t->spellings[id];
    if (out) memcpy(out, spelling.text, spelling.bytes);
    return spelling.bytes;
}

/* The token of the character at `at`, and its length. */
static descent_code find_character(const descent_tokenizer *t, const char *text, size_t bytes, size_t at, uint32_t *id,
                                   size_t *length, descent_status *status)
{
    uint32_t character;
    *length = utf8_read(text + at, bytes - at, &character);
    if (*length == 0)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "the text is not valid UTF-8: byte 0x%02x at offset %zu",
                            (unsigned)(unsigned char)text[at], at);
    *id = token_index_find(&t->index, text + at, *length);
    if (*id != TOKENIZER_NONE && t->types[*id] != TOKEN_CONTROL) return DESCENT_OK;
    char shown[16];
    return descent_fail(status, DESCENT_BAD_ARGUMENT,
                        "the vocabulary has no character \"%s\" (U+%04X), which stands at byte %zu of the text",
                        utf8_printable(text + at, *length, shown, sizeof shown), (unsigned)character, at);
}

static descent_code encode(const descent_tokenizer *t, const char *text, size_t bytes, const special_ranges *special,
                           token_list *list, descent_status *status)
{
    token_matches found = {0};
    descent_code code = tokenizer_find_special(t, text, bytes, special, &found, status);
    for (size_t at = 0, length; at < bytes && !code; at += length) {
        const token_match *match = token_matches_at(&found, at);
        uint32_t id = match ? match->id : TOKENIZER_NONE;
        length = match ? match->bytes : 0;
        if (!match) code = find_character(t, text, bytes, at, &id, &length, status);
        if (!code) code = token_list_add(list, id, status);
    }
    free(found.list);
    return code;
}

const tokenizer_kind tokenizer_chars = {
    .name = "chars", .replacement = UTF8_PER_SUBPART, .load = load, .unload = unload, .spell = spell, .encode = encode};
