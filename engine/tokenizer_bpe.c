/* tokenizer_bpe.c: the `gpt2` kind, byte-level BPE, id for id as Hugging Face's tokenizers encode.
 *
 * What is left of a text when added tokens are out (added_tokens.h) is cut into pre-tokens (pretokenizer.h). A pre-token
 * starts as the chain of its bytes' tokens, and merges apply, best first (bpe.h). Most pre-tokens are a token, and of most
 * tokens that is what their bytes merge into: which those are is worked out when the vocabulary is loaded, so that one look-up
 * encodes them. Where the file says ignore_merges every normal token counts as such.
 *
 * A normal token's spelling has one character for each byte (GPT-2's byte alphabet); all other tokens are spelled in plain
 * text. Bytes that are no UTF-8 make pre-tokens of their own, so every text can be encoded and comes back byte for byte.
 *
 * tokenizer.c drives it; `encoding` below is one call's memory. */
#include "added_tokens.h"
#include "bpe.h"
#include "nfc.h"
#include "pretokenizer.h"
#include "tokenizer.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

#define MERGING_TYPES (1u << TOKEN_NORMAL | 1u << TOKEN_USER_DEFINED)

typedef struct byte_bpe {
    token_string *texts; /* [count] bytes of the tokens that merging may give, empty for all others */
    char *text_bytes;
    token_index by_text;
    uint8_t *whole; /* [count] 1: a pre-token of these bytes is this token */
    uint32_t byte_tokens[256];
    bpe_merges merges;
    added_tokens added;
    pretokenizer *pre;
    bool nfc, add_space_prefix, ignore_merges;
} byte_bpe;

/* One call's memory. */
typedef struct encoding {
    const byte_bpe *b;
    bpe_chain chain;
    pretokenizer_work *pre;
    nfc_work nfc;
    text_buffer normalized, prefixed;
    token_list *list;
} encoding;

/* ---- The byte alphabet ------------------------------------------------------------------------------------------- */

#define ALPHABET_END 0x144 /* past its last character */

/* Bytes that are printable Latin-1 stand for themselves; the others, in order, are U+0100 and up. */
static bool stands_for_itself(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

/* byte_of[character] is its byte, -1 where it is none. */
static void fill_alphabet(int16_t byte_of[ALPHABET_END])
{
    uint32_t next = 0x100;
    memset(byte_of, 0xFF, ALPHABET_END * sizeof *byte_of);
    for (uint32_t byte = 0; byte < 256; byte++) byte_of[stands_for_itself(byte) ? byte : next++] = (int16_t)byte;
}

/* Writes the bytes a spelling stands for and returns their number; 0 where it holds another character. */
static uint32_t read_alphabet(const int16_t byte_of[ALPHABET_END], token_string spelling, char *out)
{
    uint32_t count = 0;
    for (size_t at = 0; at < spelling.bytes;) {
        uint32_t c;
        at += utf8_read(spelling.text + at, spelling.bytes - at, &c);
        if (c >= ALPHABET_END || byte_of[c] < 0) return 0;
        out[count++] = (char)byte_of[c];
    }
    return count;
}

static bool is_plain_ascii(token_string spelling)
{
    for (uint32_t i = 0; i < spelling.bytes; i++)
        if (spelling.text[i] < 0x21 || spelling.text[i] > 0x7E) return false;
    return true;
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static const char TYPES_KEY[] = "tokenizer.ggml.token_type", TOKENS_KEY[] = "tokenizer.ggml.tokens";

static descent_code check_type(const descent_tokenizer *t, uint32_t id, descent_status *status)
{
    if (t->types[id] != TOKEN_BYTE) return DESCENT_OK;
    return descent_fail(status, DESCENT_BAD_FILE, "%s: token %u has type 6, which the \"gpt2\" tokenizer does not have",
                        TYPES_KEY, id);
}

/* A user-defined token is spelled in plain text, so it can only be made of bytes where both spellings are the same. */
static descent_code load_texts(const descent_tokenizer *t, byte_bpe *b, descent_status *status)
{
    int16_t byte_of[ALPHABET_END];
    size_t total = 0;
    fill_alphabet(byte_of);
    for (uint32_t id = 0; id < t->count; id++) total += t->spellings[id].bytes;
    b->texts = calloc(t->count, sizeof *b->texts);
    b->text_bytes = malloc(total);
    if (!b->texts || !b->text_bytes)
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory for the bytes of %u tokens", t->count);
    char *next = b->text_bytes;
    for (uint32_t id = 0; id < t->count; id++) {
        descent_code code = check_type(t, id, status);
        if (code) return code;
        token_string spelling = t->spellings[id];
        bool plain = t->types[id] == TOKEN_USER_DEFINED && is_plain_ascii(spelling);
        if (t->types[id] != TOKEN_NORMAL && !plain) continue;
        uint32_t bytes = read_alphabet(byte_of, spelling, next);
        char shown[64];
        if (bytes == 0)
            return descent_fail(status, DESCENT_BAD_FILE,
                                "%s: token %u is \"%s\", expected characters of GPT-2's byte alphabet", TOKENS_KEY, id,
                                utf8_printable(spelling.text, spelling.bytes, shown, sizeof shown));
        b->texts[id] = (token_string){next, bytes};
        next += bytes;
    }
    return token_index_build(&b->by_text, b->texts, t->count, status);
}

/* A byte that never came when the vocabulary was learnt may have no token: it is the unknown one. */
static descent_code load_byte_tokens(const descent_tokenizer *t, byte_bpe *b, descent_status *status)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        b->byte_tokens[byte] = token_index_find(&b->by_text, &text, 1);
        if (b->byte_tokens[byte] != TOKENIZER_NONE) continue;
        if (t->info.unknown < 0)
            return descent_fail(status, DESCENT_BAD_FILE,
                                "%s: the token of byte 0x%02X is missing, expected all 256 or an unknown token", TOKENS_KEY,
                                byte);
        b->byte_tokens[byte] = (uint32_t)t->info.unknown;
    }
    return DESCENT_OK;
}

/* Merges see ids only: each must be of a token that has bytes. */
static descent_code check_merges(const descent_tokenizer *t, const byte_bpe *b, descent_status *status)
{
    for (uint32_t slot = 0; slot <= b->merges.mask; slot++) {
        bpe_rule rule = b->merges.slots[slot];
        if (rule.left == TOKENIZER_NONE) continue;
        const uint32_t ids[] = {rule.left, rule.right, rule.id};
        char shown[64];
        for (size_t i = 0; i < 3; i++)
            if (b->texts[ids[i]].bytes == 0)
                return descent_fail(status, DESCENT_BAD_FILE,
                                    "%s: merge %u needs \"%s\", a user-defined token that is not printable ASCII",
                                    BPE_MERGES_KEY, rule.rank,
                                    utf8_printable(t->spellings[ids[i]].text, t->spellings[ids[i]].bytes, shown, sizeof shown));
    }
    return DESCENT_OK;
}

static descent_code load_pattern(byte_bpe *b, const gguf_file *file, descent_status *status)
{
    gguf_string name;
    descent_code code = gguf_get_string(file, "tokenizer.ggml.pre", &name, status);
    return code ? code : pretokenizer_create(name, &b->pre, status);
}

static descent_code load_normalizer(byte_bpe *b, const gguf_file *file, descent_status *status)
{
    static const char key[] = "tokenizer.descent.normalizer";
    gguf_string name;
    char shown[64];
    if (!gguf_has(file, key)) return DESCENT_OK;
    descent_code code = gguf_get_string(file, key, &name, status);
    if (code) return code;
    b->nfc = gguf_string_is(name, "nfc");
    if (b->nfc || gguf_string_is(name, "none")) return DESCENT_OK;
    return descent_fail(status, DESCENT_UNSUPPORTED, "%s is \"%s\"; this version has: none, nfc", key,
                        utf8_printable(name.text, name.bytes, shown, sizeof shown));
}

static descent_code load_options(byte_bpe *b, const gguf_file *file, descent_status *status)
{
    static const char prefix_key[] = "tokenizer.ggml.add_space_prefix";
    static const char ignore_key[] = "tokenizer.descent.ignore_merges";
    descent_code code = load_pattern(b, file, status);
    if (!code) code = load_normalizer(b, file, status);
    if (!code && gguf_has(file, prefix_key)) code = gguf_get_bool(file, prefix_key, &b->add_space_prefix, status);
    if (!code && gguf_has(file, ignore_key)) code = gguf_get_bool(file, ignore_key, &b->ignore_merges, status);
    return code;
}

/* ---- Encoding ---------------------------------------------------------------------------------------------------- */

/* Makes the chain of a pre-token's bytes, merged as far as it goes. */
static descent_code merge_bytes(encoding *e, const char *text, size_t bytes, descent_status *status)
{
    descent_code code = DESCENT_OK;
    bpe_chain_clear(&e->chain);
    for (uint32_t i = 0; i < bytes && !code; i++)
        code = bpe_chain_add(&e->chain, i, 1, e->b->byte_tokens[(unsigned char)text[i]], false, status);
    if (!code) code = bpe_merge(&e->chain, bpe_merges_pair, (void *)&e->b->merges, status);
    return code;
}

static descent_code take_pretoken(void *context, const char *text, size_t bytes, descent_status *status)
{
    encoding *e = context;
    uint32_t id = token_index_find(&e->b->by_text, text, bytes);
    if (id != TOKENIZER_NONE && e->b->whole[id]) return token_list_add(e->list, id, status);
    descent_code code = merge_bytes(e, text, bytes, status);
    for (uint32_t i = 0; i != BPE_END && !code; i = e->chain.symbols[i].after)
        code = token_list_add(e->list, e->chain.symbols[i].id, status);
    return code;
}

/* Where the first character that is one begins; `bytes` when there is none. */
static size_t skip_broken(const char *text, size_t bytes)
{
    size_t at = 0, broken;
    while (at < bytes && utf8_scan(text + at, bytes - at, &broken) != UTF8_CHARACTER) at += broken;
    return at;
}

static descent_code encode_text(void *work, const char *text, size_t bytes, bool first, token_list *list,
                                descent_status *status)
{
    (void)first;
    (void)list; /* the encoding's own */
    encoding *e = work;
    descent_code code = DESCENT_OK;
    if (e->b->add_space_prefix && text[0] != ' ') {
        e->prefixed.count = 0;
        code = text_buffer_reserve(&e->prefixed, bytes + 1, status);
        if (code) return code;
        e->prefixed.bytes[0] = ' ';
        memcpy(e->prefixed.bytes + 1, text, bytes);
        text = e->prefixed.bytes;
        bytes++;
    }
    for (size_t at = 0; at < bytes && !code;) {
        size_t valid = utf8_first_invalid(text + at, bytes - at);
        if (valid > 0) code = pretokenizer_cut(e->pre, text + at, valid, take_pretoken, e, status);
        at += valid;
        size_t broken = skip_broken(text + at, bytes - at);
        if (broken > 0 && !code) code = take_pretoken(e, text + at, broken, status);
        at += broken;
    }
    return code;
}

static descent_code normalize(void *work, const char **text, size_t *bytes, descent_status *status)
{
    encoding *e = work;
    if (!e->b->nfc) return DESCENT_OK;
    descent_code code = nfc_normalize(&e->nfc, *text, *bytes, &e->normalized, status);
    *text = e->normalized.bytes;
    *bytes = e->normalized.count;
    return code;
}

static const added_steps steps = {.normalize = normalize, .encode = encode_text};

static void encoding_free(encoding *e)
{
    bpe_chain_free(&e->chain);
    pretokenizer_work_destroy(e->pre);
    nfc_work_free(&e->nfc);
    free(e->normalized.bytes);
    free(e->prefixed.bytes);
}

static descent_code encode(const descent_tokenizer *t, const char *text, size_t bytes, const special_ranges *special,
                           token_list *list, descent_status *status)
{
    encoding e = {.b = t->own, .list = list};
    descent_code code = pretokenizer_work_create(e.b->pre, &e.pre, status);
    if (!code) code = added_tokens_encode(&e.b->added, t, &steps, &e, text, bytes, special, list, status);
    encoding_free(&e);
    return code;
}

/* ---- The kind ---------------------------------------------------------------------------------------------------- */

/* Which tokens their own bytes merge into. */
static descent_code find_whole(const descent_tokenizer *t, byte_bpe *b, descent_status *status)
{
    b->whole = calloc(t->count, 1);
    if (!b->whole) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a vocabulary of %u tokens", t->count);
    encoding e = {.b = b};
    descent_code code = DESCENT_OK;
    for (uint32_t id = 0; id < t->count && !code; id++) {
        if (b->texts[id].bytes == 0) continue;
        b->whole[id] = b->ignore_merges && t->types[id] == TOKEN_NORMAL;
        if (b->whole[id]) continue;
        code = merge_bytes(&e, b->texts[id].text, b->texts[id].bytes, status);
        if (!code) b->whole[id] = e.chain.symbols[0].id == id && e.chain.symbols[0].after == BPE_END;
    }
    encoding_free(&e);
    return code;
}

static descent_code load(descent_tokenizer *t, const gguf_file *file, descent_status *status)
{
    byte_bpe *b = calloc(1, sizeof *b);
    if (!b) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a tokenizer");
    t->own = b;
    if (!gguf_has(file, TYPES_KEY))
        return descent_fail(status, DESCENT_BAD_FILE, "%s is missing, which the \"gpt2\" tokenizer needs", TYPES_KEY);
    descent_code code = load_options(b, file, status);
    if (!code) code = load_texts(t, b, status);
    if (!code) code = load_byte_tokens(t, b, status);
    if (!code) code = bpe_merges_load(&b->merges, t, MERGING_TYPES, file, status);
    if (!code) code = check_merges(t, b, status);
    if (!code) code = find_whole(t, b, status);
    encoding e = {.b = b};
    if (!code) code = added_tokens_load(&b->added, t, file, &steps, &e, status);
    encoding_free(&e);
    return code;
}

static void unload(descent_tokenizer *t)
{
    byte_bpe *b = t->own;
    if (!b) return;
    added_tokens_free(&b->added);
    bpe_merges_free(&b->merges);
    pretokenizer_destroy(b->pre);
    token_index_free(&b->by_text);
    free(b->texts);
    free(b->text_bytes);
    free(b->whole);
    free(b);
}

static size_t spell(const descent_tokenizer *t, uint32_t id, char *out)
{
    const byte_bpe *b = t->own;
    token_string text = b->texts[id].bytes > 0 ? b->texts[id] : t->spellings[id];
    if (out) memcpy(out, text.text, text.bytes);
    return text.bytes;
}

const tokenizer_kind tokenizer_bpe = {
    .name = "gpt2", .replacement = UTF8_PER_SUBPART, .load = load, .unload = unload, .spell = spell, .encode = encode};
