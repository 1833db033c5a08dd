/* tokenizer_spm.c: the `llama` kind, SentencePiece's byte-pair encoding, id for id as the sentencepiece library encodes.
 *
 * A normalized text (spm_normalizer.h) starts as a chain of symbols, its characters and user-defined tokens. Of all pairs
 * of neighbours that together spell a token, the one with the best score, the leftmost among equals, becomes one symbol,
 * until none is left; a heap holds the pairs, so n characters take O(n log n). Frozen (user-defined) symbols never merge.
 * A symbol that ended as an *unused* token is taken apart again the way it was put together, and counts as no token where
 * it cannot be (so version 0.2.3 of the library; earlier ones gave the unused id). What is no token becomes its bytes
 * where the vocabulary has the 256 byte tokens, otherwise unknown, one for a run of them.
 *
 * With special tokens parsed, the texts between them are each encoded like a text of its own, a space in front included:
 * what the library gives for the parts, as models trained on such prompts were fed.
 *
 * tokenizer.c drives it; `bpe` below is one call's memory. */
#include "spm_normalizer.h"
#include "tokenizer.h"

#include "status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_PIECE " \xE2\x81\x87 " /* what the library decodes an unknown to */

typedef struct spm {
    spm_normalizer normalizer;
    token_prefixes user_defined;
    float *scores; /* [count] */
    bool byte_fallback;
    bool any_unused;
    uint32_t byte_tokens[256]; /* where byte_fallback */
} spm;

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static descent_code load_scores(const descent_tokenizer *t, spm *s, const gguf_file *file, descent_status *status)
{
    static const char key[] = "tokenizer.ggml.scores";
    gguf_array array;
    descent_code code = gguf_get_f32_array(file, key, &array, status);
    if (code) return code;
    if (array.count != t->count)
        return descent_fail(status, DESCENT_BAD_FILE, "%s has %zu entries, expected one for each of the %u tokens", key,
                            array.count, t->count);
    s->scores = malloc(t->count * sizeof *s->scores);
    if (!s->scores) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %u scores", t->count);
    for (uint32_t id = 0; id < t->count; id++) {
        s->scores[id] = gguf_f32_at(&array, id);
        if (!isfinite(s->scores[id]))
            return descent_fail(status, DESCENT_BAD_FILE, "%s: the score of token %u is not finite", key, id);
    }
    return DESCENT_OK;
}

/* All 256 of <0x00>..<0xFF>, or none. */
static descent_code load_byte_tokens(const descent_tokenizer *t, spm *s, descent_status *status)
{
    unsigned found = 0;
    uint32_t missing = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        char spelling[8];
        int bytes = snprintf(spelling, sizeof spelling, "<0x%02X>", (unsigned)byte);
        s->byte_tokens[byte] = token_index_find(&t->index, spelling, (size_t)bytes);
        if (s->byte_tokens[byte] != TOKENIZER_NONE && t->types[s->byte_tokens[byte]] == TOKEN_BYTE) {
            found++;
        } else {
            missing = byte;
        }
    }
    unsigned typed = 0;
    for (uint32_t id = 0; id < t->count; id++) {
        typed += t->types[id] == TOKEN_BYTE;
        if (t->types[id] == TOKEN_UNUSED) s->any_unused = true;
    }
    if (typed > found)
        return descent_fail(status, DESCENT_BAD_FILE,
                            "tokenizer.ggml.token_type: %u tokens are bytes, but only %u of them are spelled <0x00>..<0xFF>",
                            typed, found);
    if (found > 0 && found < 256)
        return descent_fail(status, DESCENT_BAD_FILE,
                            "tokenizer.ggml.tokens: the byte token <0x%02X> is missing, expected all 256 or none",
                            (unsigned)missing);
    s->byte_fallback = found == 256;
    return DESCENT_OK;
}

static descent_code load(descent_tokenizer *t, const gguf_file *file, descent_status *status)
{
    spm *s = calloc(1, sizeof *s);
    if (!s) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a tokenizer");
    t->own = s;
    if (!gguf_has(file, "tokenizer.ggml.token_type"))
        return descent_fail(status, DESCENT_BAD_FILE,
                            "tokenizer.ggml.token_type is missing, which the \"llama\" tokenizer needs");
    descent_code code = load_scores(t, s, file, status);
    if (!code) code = load_byte_tokens(t, s, status);
    if (!code)
        code = token_prefixes_build(&s->user_defined, t->spellings, t->types, t->count, 1u << TOKEN_USER_DEFINED, status);
    if (!code) code = spm_normalizer_load(&s->normalizer, file, &s->user_defined, status);
    if (!code && !s->byte_fallback && t->info.unknown < 0)
        code = descent_fail(status, DESCENT_BAD_FILE,
                            "tokenizer.ggml.tokens has neither byte tokens nor an unknown token, expected one of them");
    /* llama.cpp's default, for files that do not say. */
    if (!code && !gguf_has(file, "tokenizer.ggml.add_bos_token")) t->info.adds_bos = t->info.bos >= 0;
    return code;
}

static void unload(descent_tokenizer *t)
{
    spm *s = t->own;
    if (!s) return;
    spm_normalizer_free(&s->normalizer);
    token_prefixes_free(&s->user_defined);
    free(s->scores);
    free(s);
}

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

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

static size_t spell(const descent_tokenizer *t, uint32_t id, char *out)
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
static size_t trim_leading(const descent_tokenizer *t, uint32_t id, bool *leading)
{
    const spm_normalizer *n = &((const spm *)t->own)->normalizer;
    bool space = t->types[id] != TOKEN_BYTE && !is_unknown(t, id) && begins_with_space(t->spellings[id]);
    bool trims = space && (n->add_space_prefix || n->remove_extra_whitespaces);
    *leading = trims && n->remove_extra_whitespaces && t->pieces[id].bytes == 1;
    return trims;
}

/* ---- Byte-pair encoding ------------------------------------------------------------------------------------------ */

#define END UINT32_MAX

typedef struct symbol {
    uint32_t start, bytes; /* in the normalized text; 0 bytes once merged into the one before */
    uint32_t before, after;
    uint32_t id; /* TOKENIZER_NONE: no token */
    bool frozen;
} symbol;

/* Two neighbours that together spell token `id`. */
typedef struct pair {
    float score;
    uint32_t left, right, id;
} pair;

typedef struct bpe {
    const descent_tokenizer *t;
    const spm *s;
    spm_buffer text; /* normalized */
    symbol *symbols;
    size_t n_symbols, symbol_room;
    pair *heap; /* best on top */
    size_t n_pairs, pair_room;
    uint32_t *split; /* [count] of an unused token: bytes of the left symbol it was last seen made of */
    uint32_t *stack; /* [longest spelling + 1] for taking unused tokens apart */
} bpe;

static void bpe_free(bpe *b)
{
    free(b->text.bytes);
    free(b->symbols);
    free(b->heap);
    free(b->split);
    free(b->stack);
}

static bool better(pair a, pair b)
{
    return a.score > b.score || (a.score == b.score && a.left < b.left);
}

static descent_code push_pair(bpe *b, pair p, descent_status *status)
{
    if (b->n_pairs == b->pair_room) {
        size_t room = b->pair_room ? 2 * b->pair_room : 64;
        pair *grown = realloc(b->heap, room * sizeof *grown);
        if (!grown) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu pairs of symbols", room);
        b->heap = grown;
        b->pair_room = room;
    }
    size_t at = b->n_pairs++;
    while (at > 0 && better(p, b->heap[(at - 1) / 2])) {
        b->heap[at] = b->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    b->heap[at] = p;
    return DESCENT_OK;
}

static pair pop_pair(bpe *b)
{
    pair top = b->heap[0], last = b->heap[--b->n_pairs];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < b->n_pairs; at = child) {
        if (child + 1 < b->n_pairs && better(b->heap[child + 1], b->heap[child])) child++;
        if (!better(b->heap[child], last)) break;
        b->heap[at] = b->heap[child];
    }
    b->heap[at] = last;
    return top;
}

/* Only these are found in plain text; of control, unknown and byte tokens the spelling is no text. */
static uint32_t find_text_token(const descent_tokenizer *t, const char *text, size_t bytes)
{
    if (bytes > t->longest_spelling) return TOKENIZER_NONE;
    uint32_t id = token_index_find(&t->index, text, bytes);
    if (id == TOKENIZER_NONE) return id;
    unsigned type = t->types[id];
    return type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED || type == TOKEN_UNUSED ? id : TOKENIZER_NONE;
}

static descent_code consider(bpe *b, uint32_t left, uint32_t right, descent_status *status)
{
    if (left == END || right == END) return DESCENT_OK;
    const symbol *l = &b->symbols[left], *r = &b->symbols[right];
    if (l->frozen || r->frozen) return DESCENT_OK;
    uint32_t id = find_text_token(b->t, b->text.bytes + l->start, (size_t)l->bytes + r->bytes);
    if (id == TOKENIZER_NONE) return DESCENT_OK;
    if (b->t->types[id] == TOKEN_UNUSED) b->split[id] = l->bytes;
    return push_pair(b, (pair){b->s->scores[id], left, right, id}, status);
}

/* Cuts the normalized text into its characters and user-defined tokens. */
static descent_code cut(bpe *b, descent_status *status)
{
    b->n_symbols = 0;
    for (uint32_t at = 0; at < b->text.count;) {
        if (b->n_symbols == b->symbol_room) {
            size_t room = b->symbol_room ? 2 * b->symbol_room : 64;
            symbol *grown = realloc(b->symbols, room * sizeof *grown);
            if (!grown) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu symbols", room);
            b->symbols = grown;
            b->symbol_room = room;
        }
        const char *rest = b->text.bytes + at;
        size_t rest_bytes = b->text.count - at, length;
        uint32_t id = token_prefixes_longest(&b->s->user_defined, rest, rest_bytes);
        bool frozen = id != TOKENIZER_NONE;
        if (frozen) {
            length = b->t->spellings[id].bytes;
        } else {
            (void)utf8_scan(rest, rest_bytes, &length);
            id = find_text_token(b->t, rest, length);
        }
        uint32_t self = (uint32_t)b->n_symbols++;
        b->symbols[self] = (symbol){at, (uint32_t)length, self == 0 ? END : self - 1, self + 1, id, frozen};
        at += (uint32_t)length;
    }
    if (b->n_symbols > 0) b->symbols[b->n_symbols - 1].after = END;
    return DESCENT_OK;
}

static descent_code merge(bpe *b, descent_status *status)
{
    descent_code code = DESCENT_OK;
    b->n_pairs = 0;
    for (uint32_t i = 1; i < b->n_symbols && !code; i++) code = consider(b, i - 1, i, status);
    while (b->n_pairs > 0 && !code) {
        pair p = pop_pair(b);
        symbol *l = &b->symbols[p.left], *r = &b->symbols[p.right];
        /* Stale when either side has meanwhile merged with another: then the lengths no longer add up. */
        if (l->bytes == 0 || r->bytes == 0 || l->bytes + r->bytes != b->t->spellings[p.id].bytes) continue;
        l->bytes += r->bytes;
        l->id = p.id;
        l->after = r->after;
        if (r->after != END) b->symbols[r->after].before = p.left;
        r->bytes = 0;
        code = consider(b, l->before, p.left, status);
        if (!code) code = consider(b, p.left, l->after, status);
    }
    return code;
}

/* ---- From symbols to ids ----------------------------------------------------------------------------------------- */

static descent_code emit(const bpe *b, const char *text, size_t bytes, uint32_t id, bool *after_unknown, token_list *list,
                         descent_status *status)
{
    bool unknown = id == TOKENIZER_NONE, repeated = unknown && *after_unknown;
    *after_unknown = unknown;
    if (!unknown) return token_list_add(list, id, status);
    if (!b->s->byte_fallback) return repeated ? DESCENT_OK : token_list_add(list, (uint32_t)b->t->info.unknown, status);
    descent_code code = DESCENT_OK;
    for (size_t i = 0; i < bytes && !code; i++) code = token_list_add(list, b->s->byte_tokens[(unsigned char)text[i]], status);
    return code;
}

/* Emits a symbol, an unused token as the two it was made of, and these likewise; one that was never merged is no token. A
 * token is made of shorter ones, so the stack, which holds the lengths still to come, never outgrows the spelling. */
static descent_code emit_symbol(const bpe *b, const symbol *s, bool *after_unknown, token_list *list, descent_status *status)
{
    if (s->id == TOKENIZER_NONE || b->t->types[s->id] != TOKEN_UNUSED)
        return emit(b, b->text.bytes + s->start, s->bytes, s->id, after_unknown, list, status);
    const char *text = b->text.bytes + s->start;
    size_t depth = 0;
    descent_code code = DESCENT_OK;
    b->stack[depth++] = s->bytes;
    while (depth > 0 && !code) {
        uint32_t bytes = b->stack[--depth];
        uint32_t id = find_text_token(b->t, text, bytes);
        bool unused = id != TOKENIZER_NONE && b->t->types[id] == TOKEN_UNUSED;
        uint32_t left = unused ? b->split[id] : 0;
        if (left > 0) {
            b->stack[depth++] = bytes - left;
            b->stack[depth++] = left;
        } else {
            code = emit(b, text, bytes, unused ? TOKENIZER_NONE : id, after_unknown, list, status);
            text += bytes;
        }
    }
    return code;
}

/* One text without special tokens. */
static descent_code encode_part(bpe *b, const char *text, size_t bytes, token_list *list, descent_status *status)
{
    descent_code code = spm_normalize(&b->s->normalizer, text, bytes, &b->text, status);
    if (!code) code = cut(b, status);
    if (!code) code = merge(b, status);
    bool after_unknown = false;
    for (uint32_t i = 0; i < b->n_symbols && !code; i++)
        if (b->symbols[i].bytes > 0) code = emit_symbol(b, &b->symbols[i], &after_unknown, list, status);
    return code;
}

static descent_code encode_parts(bpe *b, const char *text, size_t bytes, token_list *list, descent_status *status)
{
    descent_code code = DESCENT_OK;
    for (size_t from = 0; from < bytes && !code;) {
        uint32_t id;
        size_t at = tokenizer_find_special(b->t, text, bytes, from, &id);
        if (at > from) code = encode_part(b, text + from, at - from, list, status);
        from = at;
        if (id == TOKENIZER_NONE || code) continue;
        code = token_list_add(list, id, status);
        from += b->t->spellings[id].bytes;
    }
    return code;
}

static descent_code encode(const descent_tokenizer *t, const char *text, size_t bytes, bool parse_special, token_list *list,
                           descent_status *status)
{
    bpe b = {.t = t, .s = t->own};
    descent_code code = DESCENT_OK;
    if (b.s->any_unused) {
        b.split = calloc(t->count, sizeof *b.split);
        b.stack = malloc((t->longest_spelling + 1) * sizeof *b.stack);
        if (!b.split || !b.stack) code = descent_fail(status, DESCENT_NO_MEMORY, "no memory to encode a text");
    }
    if (!code) code = parse_special ? encode_parts(&b, text, bytes, list, status) : encode_part(&b, text, bytes, list, status);
    bpe_free(&b);
    return code;
}

const tokenizer_kind tokenizer_spm = {.name = "llama",
                                      .replacement = UTF8_PER_BYTE,
                                      .load = load,
                                      .unload = unload,
                                      .spell = spell,
                                      .encode = encode,
                                      .trim_leading = trim_leading};
