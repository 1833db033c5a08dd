/* tokenizer_merges.c: the `llama` kind where the file has merges: BPE over characters with byte fallback, id for id as
 * Hugging Face's tokenizers encode Llama 2, Mistral and the like. (Without merges it is SentencePiece's, tokenizer_spm.c:
 * the vocabularies are the same, but what merges first need not be.)
 *
 * What is left of a text when added tokens are out (added_tokens.h) has its spaces turned into U+2581 and perhaps one put in
 * front: as a normalizer, before the tokens flagged as normalized are looked for, or as a pre-tokenizer, after. It starts
 * as the chain of its characters' tokens, those that are none as their bytes' tokens, and merges apply, best first
 * (bpe.h), where words are apart (spm_vocabulary.h) in one word after the other.
 *
 * tokenizer.c drives it; `encoding` below is one call's memory. */
#include "added_tokens.h"
#include "bpe.h"
#include "spm_vocabulary.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

#define MERGING_TYPES (1u << TOKEN_NORMAL | 1u << TOKEN_USER_DEFINED | 1u << TOKEN_BYTE)

/* tokenizer.descent.space_prefix */
typedef enum space_prefix { PREPEND, METASPACE, METASPACE_FIRST } space_prefix;

typedef struct merge_bpe {
    spm_vocabulary vocabulary; /* first: spm_vocabulary.h */
    bpe_merges merges;
    added_tokens added;
    space_prefix prefix;
} merge_bpe;

/* One call's memory. */
typedef struct encoding {
    const descent_tokenizer *t;
    const merge_bpe *m;
    bpe_chain chain;
    text_buffer text;
} encoding;

/* ---- Encoding ---------------------------------------------------------------------------------------------------- */

/* Replaces what is in *out by the text with its spaces as U+2581. */
static descent_code mark_spaces(const char *text, size_t bytes, bool prefix, text_buffer *out, descent_status *status)
{
    out->count = 0;
    size_t spaces = prefix;
    for (size_t i = 0; i < bytes; i++) spaces += text[i] == ' ';
    descent_code code = text_buffer_reserve(out, bytes + SPM_SPACE_BYTES * spaces, status);
    if (code) return code;
    char *next = out->bytes;
    if (prefix) memcpy(next, SPM_SPACE, SPM_SPACE_BYTES), next += SPM_SPACE_BYTES;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == ' ') {
            memcpy(next, SPM_SPACE, SPM_SPACE_BYTES);
            next += SPM_SPACE_BYTES;
        } else {
            *next++ = text[i];
        }
    }
    out->count = (size_t)(next - out->bytes);
    return DESCENT_OK;
}

static descent_code normalize(void *work, const char **text, size_t *bytes, descent_status *status)
{
    encoding *e = work;
    if (e->m->prefix != PREPEND || *bytes == 0) return DESCENT_OK;
    descent_code code = mark_spaces(*text, *bytes, e->m->vocabulary.normalizer.add_space_prefix, &e->text, status);
    *text = e->text.bytes;
    *bytes = e->text.count;
    return code;
}

static bool wants_prefix(const merge_bpe *m, const char *text, size_t bytes, bool first)
{
    if (!m->vocabulary.normalizer.add_space_prefix || (m->prefix == METASPACE_FIRST && !first)) return false;
    bool space = text[0] == ' ' || (bytes >= SPM_SPACE_BYTES && memcmp(text, SPM_SPACE, SPM_SPACE_BYTES) == 0);
    return !space;
}

static uint32_t find_character(const encoding *e, const char *text, size_t bytes)
{
    uint32_t id = token_index_find(&e->t->index, text, bytes);
    if (id == TOKENIZER_NONE || e->m->added.flags[id] & ADDED_OUTSIDE) return TOKENIZER_NONE;
    return MERGING_TYPES >> e->t->types[id] & 1 ? id : TOKENIZER_NONE;
}

/* Makes the chain of a text's characters, merged as far as it goes. */
static descent_code merge(encoding *e, const char *text, size_t bytes, descent_status *status)
{
    const spm_vocabulary *v = &e->m->vocabulary;
    descent_code code = DESCENT_OK;
    bpe_chain_clear(&e->chain);
    for (size_t at = 0, length; at < bytes && !code; at += length) {
        bool whole = utf8_scan(text + at, bytes - at, &length) == UTF8_CHARACTER;
        uint32_t id = whole ? find_character(e, text + at, length) : TOKENIZER_NONE;
        if (id != TOKENIZER_NONE || !v->byte_fallback) {
            code = bpe_chain_add(&e->chain, (uint32_t)at, (uint32_t)length, id, false, status);
            continue;
        }
        for (size_t i = at; i < at + length && !code; i++)
            code = bpe_chain_add(&e->chain, (uint32_t)i, 1, v->byte_tokens[(unsigned char)text[i]], false, status);
    }
    return code ? code : bpe_merge(&e->chain, bpe_merges_pair, (void *)&e->m->merges, status);
}

static descent_code merge_token(void *work, const char *text, size_t bytes, uint32_t *id, descent_status *status)
{
    encoding *e = work;
    descent_code code = merge(e, text, bytes, status);
    if (!code && e->chain.symbols[0].after == BPE_END) *id = e->chain.symbols[0].id;
    return code;
}

static descent_code encode_word(encoding *e, const char *word, size_t bytes, bool *after_unknown, token_list *list,
                                descent_status *status)
{
    uint32_t whole = spm_whole_word(e->t, word, bytes);
    if (whole != TOKENIZER_NONE) {
        *after_unknown = false;
        return token_list_add(list, whole, status);
    }
    descent_code code = merge(e, word, bytes, status);
    for (uint32_t i = 0; i != BPE_END && !code; i = e->chain.symbols[i].after) {
        const bpe_symbol *s = &e->chain.symbols[i];
        code = spm_emit(e->t, word + s->start, s->bytes, s->id, after_unknown, list, status);
    }
    return code;
}

static descent_code encode_text(void *work, const char *text, size_t bytes, bool first, token_list *list,
                                descent_status *status)
{
    encoding *e = work;
    descent_code code = DESCENT_OK;
    if (e->m->prefix != PREPEND) {
        code = mark_spaces(text, bytes, wants_prefix(e->m, text, bytes, first), &e->text, status);
        text = e->text.bytes;
        bytes = e->text.count;
    }
    bool after_unknown = false;
    for (size_t from = 0, end; from < bytes && !code; from = end) {
        end = spm_word_end(&e->m->vocabulary, text, bytes, from);
        code = encode_word(e, text + from, end - from, &after_unknown, list, status);
    }
    return code;
}

static const added_steps steps = {.normalize = normalize, .encode = encode_text};

static void encoding_free(encoding *e)
{
    bpe_chain_free(&e->chain);
    free(e->text.bytes);
}

static descent_code encode(const descent_tokenizer *t, const char *text, size_t bytes, const special_ranges *special,
                           token_list *list, descent_status *status)
{
    encoding e = {.t = t, .m = t->own};
    descent_code code = added_tokens_encode(&e.m->added, t, &steps, &e, text, bytes, special, list, status);
    encoding_free(&e);
    return code;
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static descent_code load_prefix(merge_bpe *m, const gguf_file *file, descent_status *status)
{
    static const char key[] = "tokenizer.descent.space_prefix";
    static const char *const names[] = {
        [PREPEND] = "prepend", [METASPACE] = "metaspace", [METASPACE_FIRST] = "metaspace_first"};
    gguf_string name;
    char shown[64];
    if (!gguf_has(file, key)) return DESCENT_OK;
    descent_code code = gguf_get_string(file, key, &name, status);
    if (code) return code;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!gguf_string_is(name, names[i])) continue;
        m->prefix = (space_prefix)i;
        return DESCENT_OK;
    }
    return descent_fail(status, DESCENT_UNSUPPORTED, "%s is \"%s\"; this version has: prepend, metaspace, metaspace_first", key,
                        utf8_printable(name.text, name.bytes, shown, sizeof shown));
}

static descent_code load(descent_tokenizer *t, const gguf_file *file, descent_status *status)
{
    merge_bpe *m = calloc(1, sizeof *m);
    if (!m) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a tokenizer");
    t->own = m;
    descent_code code = spm_vocabulary_load(&m->vocabulary, t, file, status);
    if (!code && (m->vocabulary.normalizer.units || m->vocabulary.normalizer.remove_extra_whitespaces))
        code = descent_fail(status, DESCENT_UNSUPPORTED,
                            "%s beside tokenizer.ggml.precompiled_charsmap or remove_extra_whitespaces, expected only one",
                            BPE_MERGES_KEY);
    if (!code) code = load_prefix(m, file, status);
    if (!code) code = bpe_merges_load(&m->merges, t, MERGING_TYPES, file, status);
    encoding e = {.t = t, .m = m};
    if (!code) code = added_tokens_load(&m->added, t, file, &steps, &e, status);
    if (!code) code = spm_find_words(&m->vocabulary, t, merge_token, &e, status);
    encoding_free(&e);
    /* llama.cpp's default, for files that do not say. */
    if (!code && !gguf_has(file, "tokenizer.ggml.add_bos_token")) t->info.adds_bos = t->info.bos >= 0;
    return code;
}

static void unload(descent_tokenizer *t)
{
    merge_bpe *m = t->own;
    if (!m) return;
    spm_vocabulary_free(&m->vocabulary);
    bpe_merges_free(&m->merges);
    added_tokens_free(&m->added);
    free(m);
}

const tokenizer_kind tokenizer_merges = {.name = "llama",
                                         .replacement = UTF8_PER_BYTE,
                                         .load = load,
                                         .unload = unload,
                                         .spell = spm_spell,
                                         .encode = encode,
                                         .trim_leading = spm_trim_leading};
