/* tokenizer_chars.c: the `chars` kind, a vocabulary of single Unicode characters (nanoGPT's character models). A text is
 * taken apart into its characters and each must be a token: there is no unknown, so what the vocabulary lacks is an error
 * that names it. Control tokens may be spelled by any number of characters. */
#include "tokenizer.h"

#include "status.h"

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

static descent_code encode(const descent_tokenizer *t, const char *text, size_t bytes, bool parse_special, token_list *list,
                           descent_status *status)
{
    size_t at = 0;
    while (at < bytes) {
        uint32_t character;
        uint32_t id = parse_special ? token_prefixes_longest(&t->special, text + at, bytes - at) : TOKENIZER_NONE;
        if (id != TOKENIZER_NONE) {
            at += t->spellings[id].bytes;
        } else {
            size_t length = utf8_read(text + at, bytes - at, &character);
            if (length == 0)
                return descent_fail(status, DESCENT_BAD_ARGUMENT, "the text is not valid UTF-8: byte 0x%02x at offset %zu",
                                    (unsigned)(unsigned char)text[at], at);
            id = token_index_find(&t->index, text + at, length);
            if (id == TOKENIZER_NONE || t->types[id] == TOKEN_CONTROL) {
                char shown[16];
                return descent_fail(status, DESCENT_BAD_ARGUMENT,
                                    "the vocabulary has no character \"%s\" (U+%04X), which stands at byte %zu of the text",
                                    utf8_printable(text + at, length, shown, sizeof shown), (unsigned)character, at);
            }
            at += length;
        }
        descent_code code = token_list_add(list, id, status);
        if (code) return code;
    }
    return DESCENT_OK;
}

const tokenizer_kind tokenizer_chars = {
    .name = "chars", .replacement = UTF8_PER_SUBPART, .load = load, .unload = unload, .spell = spell, .encode = encode};
