/* tokenizer_spm.c: the `llama` kind, SentencePiece's byte-pair encoding, id for id as the sentencepiece library encodes.
 *
 * A normalized text (spm_normalizer.h) starts as a chain of symbols, its characters and user-defined tokens. Of all pairs
 * of neighbours that together spell a token, the one with the best score, the leftmost among equals, becomes one symbol,
 * until none is left; a heap holds the pairs, so n characters take O(n log n). Frozen (user-defined) symbols never merge.
 * A symbol that ended as an *unused* token is taken apart again the way it was put together, and counts as no token where
 * it cannot be (so version 0.2.3 of the library; earlier ones gave the unused id). What is no token is left to
 * spm_vocabulary.h, with all that SentencePiece's algorithms share.
 *
 * tokenizer.c drives it; `bpe` below is one call's memory. */
#include "spm_vocabulary.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

typedef struct spm {
    spm_vocabulary vocabulary; /* first: spm_vocabulary.h */
    bool any_unused;
} spm;

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static descent_code load(descent_tokenizer *t, const gguf_file *file, descent_status *status)
{
    spm *s = calloc(1, sizeof *s);
    if (!s) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a tokenizer");
    t->own = s;
    descent_code code = spm_vocabulary_load(&s->vocabulary, t, file, status);
    s->any_unused = memchr(t->types, TOKEN_UNUSED, t->count) != NULL;
    /* llama.cpp's default, for files that do not say. */
    if (!code && !gguf_has(file, "tokenizer.ggml.add_bos_token")) t->info.adds_bos = t->info.bos >= 0;
    return code;
}

static void unload(descent_tokenizer *t)
{
    spm *s = t->own;
    if (!s) return;
    spm_vocabulary_free(&s->vocabulary);
    free(s);
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

static uint32_t find_text_token(const descent_tokenizer *t, const char *text, size_t bytes)
{
    if (bytes > t->longest_spelling) return TOKENIZER_NONE;
    uint32_t id = token_index_find(&t->index, text, bytes);
    return id != TOKENIZER_NONE && spm_is_text(t, id) ? id : TOKENIZER_NONE;
}

static descent_code consider(bpe *b, uint32_t left, uint32_t right, descent_status *status)
{
    if (left == END || right == END) return DESCENT_OK;
    const symbol *l = &b->symbols[left], *r = &b->symbols[right];
    if (l->frozen || r->frozen) return DESCENT_OK;
    uint32_t id = find_text_token(b->t, b->text.bytes + l->start, (size_t)l->bytes + r->bytes);
    if (id == TOKENIZER_NONE) return DESCENT_OK;
    if (b->t->types[id] == TOKEN_UNUSED) b->split[id] = l->bytes;
    return push_pair(b, (pair){b->s->vocabulary.scores[id], left, right, id}, status);
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
        uint32_t id = token_prefixes_longest(&b->s->vocabulary.user_defined, rest, rest_bytes);
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

/* Emits a symbol, an unused token as the two it was made of, and these likewise; one that was never merged is no token. A
 * token is made of shorter ones, so the stack, which holds the lengths still to come, never outgrows the spelling. */
static descent_code emit_symbol(const bpe *b, const symbol *s, bool *after_unknown, token_list *list, descent_status *status)
{
    if (s->id == TOKENIZER_NONE || b->t->types[s->id] != TOKEN_UNUSED)
        return spm_emit(b->t, b->text.bytes + s->start, s->bytes, s->id, after_unknown, list, status);
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
            code = spm_emit(b->t, text, bytes, unused ? TOKENIZER_NONE : id, after_unknown, list, status);
            text += bytes;
        }
    }
    return code;
}

/* One text without special tokens. */
static descent_code encode_part(void *work, const char *text, size_t bytes, token_list *list, descent_status *status)
{
    bpe *b = work;
    descent_code code = spm_normalize(&b->s->vocabulary.normalizer, text, bytes, &b->text, status);
    if (!code) code = cut(b, status);
    if (!code) code = merge(b, status);
    bool after_unknown = false;
    for (uint32_t i = 0; i < b->n_symbols && !code; i++)
        if (b->symbols[i].bytes > 0) code = emit_symbol(b, &b->symbols[i], &after_unknown, list, status);
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
    if (!code) code = spm_encode(t, text, bytes, parse_special, encode_part, &b, list, status);
    bpe_free(&b);
    return code;
}

const tokenizer_kind tokenizer_spm = {.name = "llama",
                                      .replacement = UTF8_PER_BYTE,
                                      .load = load,
                                      .unload = unload,
                                      .spell = spm_spell,
                                      .encode = encode,
                                      .trim_leading = spm_trim_leading};
