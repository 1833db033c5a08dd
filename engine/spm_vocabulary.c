/* spm_vocabulary.c: the part of SentencePiece that does not depend on how a text is cut into pieces: reading scores and
 * byte tokens, what a token's piece is, unknown characters, and special tokens between texts.
 *
 * Called by tokenizer_spm.c (byte-pair encoding) and tokenizer_unigram.c. */
#include "spm_vocabulary.h"

#include "status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_PIECE " \xE2\x81\x87 " /* what the library decodes an unknown to */

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static descent_code load_scores(const descent_tokenizer *t, spm_vocabulary *v, const gguf_file *file, descent_status *status)
{
    static const char key[] = "tokenizer.ggml.scores";
    gguf_array array;
    descent_code code = gguf_get_f32_array(file, key, &array, status);
    if (code) return code;
    if (array.count != t->count)
        return descent_fail(status, DESCENT_BAD_FILE, "%s has %zu entries, expected one for each of the %u tokens", key,
                            array.count, t->count);
    v->scores = malloc(t->count * sizeof *v->scores);
    if (!v->scores) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %u scores", t->count);
    for (uint32_t id = 0; id < t->count; id++) {
        v->scores[id] = gguf_f32_at(&array, id);
        if (!isfinite(v->scores[id]))
            return descent_fail(status, DESCENT_BAD_FILE, "%s: the score of token %u is not finite", key, id);
    }
    return DESCENT_OK;
}

/* All 256 of <0x00>..<0xFF>, or none. */
static descent_code load_byte_tokens(const descent_tokenizer *t, spm_vocabulary *v, descent_status *status)
{
    unsigned found = 0;
    uint32_t missing = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        char spelling[8];
        int bytes = snprintf(spelling, sizeof spelling, "<0x%02X>", (unsigned)byte);
        v->byte_tokens[byte] = token_index_find(&t->index, spelling, (size_t)bytes);
        if (v->byte_tokens[byte] != TOKENIZER_NONE && t->types[v->byte_tokens[byte]] == TOKEN_BYTE) {
            found++;
        } else {
            missing = byte;
        }
    }
    unsigned typed = 0;
    for (uint32_t id = 0; id < t->count; id++) typed += t->types[id] == TOKEN_BYTE;
    if (typed > found)
        return descent_fail(status, DESCENT_BAD_FILE,
                            "tokenizer.ggml.token_type: %u tokens are bytes, but only %u of them are spelled <0x00>..<0xFF>",
                            typed, found);
    if (found > 0 && found < 256)
        return descent_fail(status, DESCENT_BAD_FILE,
                            "tokenizer.ggml.tokens: the byte token <0x%02X> is missing, expected all 256 or none",
                            (unsigned)missing);
    v->byte_fallback = found == 256;
    return DESCENT_OK;
}

descent_code spm_vocabulary_load(spm_vocabulary *v, const descent_tokenizer *t, const gguf_file *file, descent_status *status)
{
    if (!gguf_has(file, "tokenizer.ggml.token_type"))
        return descent_fail(status, DESCENT_BAD_FILE, "tokenizer.ggml.token_type is missing, which the \"%s\" tokenizer needs",
                            t->kind->name);
    descent_code code = load_scores(t, v, file, status);
    if (!code) code = load_byte_tokens(t, v, status);
    if (!code) code = token_search_build(&v->user_defined, t->spellings, t->types, t->count, 1u << TOKEN_USER_DEFINED, status);
    if (!code) code = spm_normalizer_load(&v->normalizer, file, &v->user_defined, status);
    if (!code && !v->byte_fallback && t->info.unknown < 0)
        code = descent_fail(status, DESCENT_BAD_FILE,
                            "tokenizer.ggml.tokens has neither byte tokens nor an unknown token, expected one of them");
    return code;
}

void spm_vocabulary_free(spm_vocabulary *v)
{
    spm_normalizer_free(&v->normalizer);
    token_search_free(&v->user_defined);
    free(v->scores);
    free(v->whole);
}

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

bool spm_is_text(const descent_tokenizer *t, uint32_t id)
{
    unsigned type = t->types[id];
    return type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED || type == TOKEN_UNUSED;
}

static bool begins_with_space(token_string spelling)
{
    return spelling.bytes >= SPM_SPACE_BYTES && memcmp(spelling.text, SPM_SPACE, SPM_SPACE_BYTES) == 0;
}

static unsigned hex_digit(char c)
{
    return c <= '9' ? (unsigned)(c - '0') : (unsigned)(c - 'A') + 10;
}

static bool is_unknown(const descent_tokenizer *t, uint32_t id)
{
    return t->types[id] == TOKEN_UNKNOWN || id == t->info.unknown;
}

size_t spm_spell(const descent_tokenizer *t, uint32_t id, char *out)
{
    token_string spelling = t->spellings[id];
    if (is_unknown(t, id)) {
        if (out) memcpy(out, UNKNOWN_PIECE, sizeof UNKNOWN_PIECE - 1);
        return sizeof UNKNOWN_PIECE - 1;
    }
    if (t->types[id] == TOKEN_BYTE) {
        if (out) *out = (char)(hex_digit(spelling.text[3]) << 4 | hex_digit(spelling.text[4]));
        return 1;
    }
    size_t written = 0;
    for (uint32_t at = 0; at < spelling.bytes; written++) {
        token_string rest = {spelling.text + at, spelling.bytes - at};
        bool space = begins_with_space(rest);
        if (out) out[written] = space ? ' ' : *rest.text;
        at += space ? SPM_SPACE_BYTES : 1;
    }
    return written;
}

/* The space that normalization put in front goes; where it removed all leading spaces, so does one of every token until
 * some text has come. */
size_t spm_trim_leading(const descent_tokenizer *t, uint32_t id, bool *leading)
{
    const spm_normalizer *n = &((const spm_vocabulary *)t->own)->normalizer;
    bool space = t->types[id] != TOKEN_BYTE && !is_unknown(t, id) && begins_with_space(t->spellings[id]);
    bool trims = space && (n->add_space_prefix || n->remove_extra_whitespaces);
    *leading = trims && n->remove_extra_whitespaces && t->pieces[id].bytes == 1;
    return trims;
}

/* ---- Words ------------------------------------------------------------------------------------------------------- */

static bool runs_into_word(token_string spelling)
{
    bool after_space = true;
    for (uint32_t at = 0; at < spelling.bytes;) {
        bool space = begins_with_space((token_string){spelling.text + at, spelling.bytes - at});
        if (space && !after_space) return true;
        after_space = space;
        at += space ? SPM_SPACE_BYTES : 1;
    }
    return false;
}

static bool words_are_apart(const descent_tokenizer *t)
{
    /* Were U+2581 no token, its bytes might be merged with others. */
    uint32_t space = token_index_find(&t->index, SPM_SPACE, SPM_SPACE_BYTES);
    if (space == TOKENIZER_NONE || !spm_is_text(t, space) || t->types[space] == TOKEN_UNUSED) return false;
    for (uint32_t id = 0; id < t->count; id++)
        if (spm_is_text(t, id) && runs_into_word(t->spellings[id])) return false;
    return true;
}

descent_code spm_find_words(spm_vocabulary *v, const descent_tokenizer *t, spm_merge_token merge, void *work,
                            descent_status *status)
{
    if (!words_are_apart(t)) return DESCENT_OK;
    v->whole = calloc(t->count, 1);
    if (!v->whole) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a vocabulary of %u tokens", t->count);
    descent_code code = DESCENT_OK;
    for (uint32_t id = 0; id < t->count && !code; id++) {
        uint32_t merged = TOKENIZER_NONE;
        if (spm_is_text(t, id)) code = merge(work, t->spellings[id].text, t->spellings[id].bytes, &merged, status);
        v->whole[id] = merged == id;
    }
    return code;
}

size_t spm_word_end(const spm_vocabulary *v, const char *text, size_t bytes, size_t from)
{
    if (!v->whole) return bytes;
    size_t at = from;
    while (bytes - at >= SPM_SPACE_BYTES && memcmp(text + at, SPM_SPACE, SPM_SPACE_BYTES) == 0) at += SPM_SPACE_BYTES;
    while (bytes - at >= SPM_SPACE_BYTES) {
        const char *space = memchr(text + at, SPM_SPACE[0], bytes - at - SPM_SPACE_BYTES + 1);
        if (!space) break;
        if (memcmp(space, SPM_SPACE, SPM_SPACE_BYTES) == 0) return (size_t)(space - text);
        at = (size_t)(space - text) + 1;
    }
    return bytes;
}

uint32_t spm_whole_word(const descent_tokenizer *t, const char *word, size_t bytes)
{
    const spm_vocabulary *v = t->own;
    if (!v->whole || bytes > t->longest_spelling) return TOKENIZER_NONE;
    uint32_t id = token_index_find(&t->index, word, bytes);
    return id != TOKENIZER_NONE && v->whole[id] ? id : TOKENIZER_NONE;
}

/* ---- Encoding ---------------------------------------------------------------------------------------------------- */

descent_code spm_emit(const descent_tokenizer *t, const char *text, size_t bytes, uint32_t id, bool *after_unknown,
                      token_list *list, descent_status *status)
{
    const spm_vocabulary *v = t->own;
    bool unknown = id == TOKENIZER_NONE, repeated = unknown && *after_unknown;
    *after_unknown = unknown;
    if (!unknown) return token_list_add(list, id, status);
    if (!v->byte_fallback) return repeated ? DESCENT_OK : token_list_add(list, (uint32_t)t->info.unknown, status);
    descent_code code = DESCENT_OK;
    for (size_t i = 0; i < bytes && !code; i++) code = token_list_add(list, v->byte_tokens[(unsigned char)text[i]], status);
    return code;
}

descent_code spm_encode(const descent_tokenizer *t, const char *text, size_t bytes, const special_ranges *special,
                        spm_encode_part part, void *work, token_list *list, descent_status *status)
{
    token_matches found = {0};
    descent_code code = tokenizer_find_special(t, text, bytes, special, &found, status);
    for (size_t from = 0; from < bytes && !code;) {
        const token_match *match = token_matches_from(&found, from);
        size_t at = match ? match->start : bytes;
        if (at > from) code = part(work, text + from, at - from, list, status);
        if (match && !code) code = token_list_add(list, match->id, status);
        from = match ? at + match->bytes : bytes;
    }
    free(found.list);
    return code;
}
