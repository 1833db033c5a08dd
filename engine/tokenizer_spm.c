/* tokenizer_spm.c: the `llama` kind, SentencePiece's byte-pair encoding, id for id as the sentencepiece library encodes.
 *
 * A normalized text (spm_normalizer.h) starts as a chain of symbols, its characters and user-defined tokens. Of all pairs
 * of neighbours that together spell a token, the one with the best score, the leftmost among equals, becomes one symbol,
 * until none is left (bpe.h); where words are apart (spm_vocabulary.h) in one word after the other. Frozen (user-defined)
 * symbols never merge. A symbol that ended as an *unused* token is taken apart again the way it was put together, and counts as
 * no token where it cannot be (so version 0.2.3 of the library; earlier ones gave the unused id). What is no token is left to
 * spm_vocabulary.h, with all that SentencePiece's algorithms share.
 *
 * tokenizer.c drives it; `encoding` below is one call's memory. */
#include "bpe.h"
#include "spm_vocabulary.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

typedef struct spm {
    spm_vocabulary vocabulary; /* first: spm_vocabulary.h */
    uint32_t *ranks;           /* [count] 0 for the best score, the same for equal ones */
    bool any_unused;
} spm;

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

typedef struct scored {
    float score;
    uint32_t id;
} scored;

static int compare_scores(const void *a, const void *b)
{
    float left = ((const scored *)a)->score, right = ((const scored *)b)->score;
    return (left < right) - (left > right);
}

static descent_code rank_scores(const descent_tokenizer *t, spm *s, descent_status *status)
{
    scored *order = malloc(t->count * sizeof *order);
    s->ranks = malloc(t->count * sizeof *s->ranks);
    if (!order || !s->ranks) {
        free(order);
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory to order %u scores", t->count);
    }
    for (uint32_t id = 0; id < t->count; id++) order[id] = (scored){s->vocabulary.scores[id], id};
    qsort(order, t->count, sizeof *order, compare_scores);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        if (i > 0 && order[i].score < order[i - 1].score) rank++;
        s->ranks[order[i].id] = rank;
    }
    free(order);
    return DESCENT_OK;
}

static descent_code find_words(const descent_tokenizer *t, spm *s, descent_status *status);

static descent_code load(descent_tokenizer *t, const gguf_file *file, descent_status *status)
{
    spm *s = calloc(1, sizeof *s);
    if (!s) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a tokenizer");
    t->own = s;
    descent_code code = spm_vocabulary_load(&s->vocabulary, t, file, status);
    if (!code) code = rank_scores(t, s, status);
    s->any_unused = memchr(t->types, TOKEN_UNUSED, t->count) != NULL;
    if (!code && !s->any_unused) code = find_words(t, s, status); /* what an unused token was made of depends on all words */
    /* llama.cpp's default, for files that do not say. */
    if (!code && !gguf_has(file, "tokenizer.ggml.add_bos_token")) t->info.adds_bos = t->info.bos >= 0;
    return code;
}

static void unload(descent_tokenizer *t)
{
    spm *s = t->own;
    if (!s) return;
    spm_vocabulary_free(&s->vocabulary);
    free(s->ranks);
    free(s);
}

/* ---- Byte-pair encoding ------------------------------------------------------------------------------------------ */

/* One call's memory. */
typedef struct encoding {
    const descent_tokenizer *t;
    const spm *s;
    text_buffer normalized;
    const char *text;    /* that symbols lie in */
    token_matches found; /* user-defined tokens in it */
    bpe_chain chain;
    uint32_t *split; /* [count] of an unused token: bytes of the left symbol it was last seen made of */
    uint32_t *stack; /* [longest spelling + 1] for taking unused tokens apart */
} encoding;

static void encoding_free(encoding *e)
{
    free(e->normalized.bytes);
    free(e->found.list);
    bpe_chain_free(&e->chain);
    free(e->split);
    free(e->stack);
}

static uint32_t find_text_token(const descent_tokenizer *t, const char *text, size_t bytes)
{
    if (bytes > t->longest_spelling) return TOKENIZER_NONE;
    uint32_t id = token_index_find(&t->index, text, bytes);
    return id != TOKENIZER_NONE && spm_is_text(t, id) ? id : TOKENIZER_NONE;
}

/* Two neighbours make the token that both spell. */
static uint32_t find_pair(void *work, const bpe_symbol *left, const bpe_symbol *right, uint32_t *merged)
{
    encoding *e = work;
    *merged = find_text_token(e->t, e->text + left->start, (size_t)left->bytes + right->bytes);
    if (*merged == TOKENIZER_NONE) return BPE_NO_RANK;
    if (e->t->types[*merged] == TOKEN_UNUSED) e->split[*merged] = left->bytes;
    return e->s->ranks[*merged];
}

/* Starts on a normalized text. */
static descent_code start(encoding *e, const char *text, size_t bytes, descent_status *status)
{
    e->text = text;
    return token_search_all(&e->s->vocabulary.user_defined, text, bytes, &e->found, status);
}

/* Cuts from..end-1 of the text into characters and user-defined tokens, and merges these. */
static descent_code merge(encoding *e, size_t from, size_t end, descent_status *status)
{
    descent_code code = DESCENT_OK;
    bpe_chain_clear(&e->chain);
    for (size_t at = from, length; at < end && !code; at += length) {
        const token_match *match = token_matches_at(&e->found, at);
        if (match) {
            length = match->bytes;
        } else {
            (void)utf8_scan(e->text + at, end - at, &length);
        }
        uint32_t id = match ? match->id : find_text_token(e->t, e->text + at, length);
        code = bpe_chain_add(&e->chain, (uint32_t)at, (uint32_t)length, id, match != NULL, status);
    }
    return code ? code : bpe_merge(&e->chain, find_pair, e, status);
}

static descent_code merge_token(void *work, const char *text, size_t bytes, uint32_t *id, descent_status *status)
{
    encoding *e = work;
    descent_code code = start(e, text, bytes, status);
    if (!code) code = merge(e, 0, bytes, status);
    if (!code && e->chain.symbols[0].after == BPE_END) *id = e->chain.symbols[0].id;
    return code;
}

static descent_code find_words(const descent_tokenizer *t, spm *s, descent_status *status)
{
    encoding e = {.t = t, .s = s};
    descent_code code = spm_find_words(&s->vocabulary, t, merge_token, &e, status);
    encoding_free(&e);
    return code;
}

/* ---- From symbols to ids ----------------------------------------------------------------------------------------- */

/* Emits a symbol, an unused token as the two it was made of, and these likewise; one that was never merged is no token. A
 * token is made of shorter ones, so the stack, which holds the lengths still to come, never outgrows the spelling. */
static descent_code emit_symbol(const encoding *e, const bpe_symbol *s, bool *after_unknown, token_list *list,
                                descent_status *status)
{
    if (s->id == TOKENIZER_NONE || e->t->types[s->id] != TOKEN_UNUSED)
        return spm_emit(e->t, e->text + s->start, s->bytes, s->id, after_unknown, list, status);
    const char *text = e->text + s->start;
    size_t depth = 0;
    descent_code code = DESCENT_OK;
    e->stack[depth++] = s->bytes;
    while (depth > 0 && !code) {
        uint32_t bytes = e->stack[--depth];
        uint32_t id = find_text_token(e->t, text, bytes);
        bool unused = id != TOKENIZER_NONE && e->t->types[id] == TOKEN_UNUSED;
        uint32_t left = unused ? e->split[id] : 0;
        if (left > 0) {
            e->stack[depth++] = bytes - left;
            e->stack[depth++] = left;
        } else {
            code = spm_emit(e->t, text, bytes, unused ? TOKENIZER_NONE : id, after_unknown, list, status);
            text += bytes;
        }
    }
    return code;
}

static descent_code encode_word(encoding *e, size_t from, size_t end, bool *after_unknown, token_list *list,
                                descent_status *status)
{
    uint32_t whole = spm_whole_word(e->t, e->text + from, end - from);
    if (whole != TOKENIZER_NONE) {
        *after_unknown = false;
        return token_list_add(list, whole, status);
    }
    descent_code code = merge(e, from, end, status);
    for (uint32_t i = 0; i != BPE_END && !code; i = e->chain.symbols[i].after)
        code = emit_symbol(e, &e->chain.symbols[i], after_unknown, list, status);
    return code;
}

/* One text without special tokens. */
static descent_code encode_part(void *work, const char *text, size_t bytes, token_list *list, descent_status *status)
{
    encoding *e = work;
    descent_code code = spm_normalize(&e->s->vocabulary.normalizer, text, bytes, &e->normalized, status);
    if (!code) code = start(e, e->normalized.bytes, e->normalized.count, status);
    bool after_unknown = false;
    for (size_t from = 0, end; from < e->normalized.count && !code; from = end) {
        end = spm_word_end(&e->s->vocabulary, e->text, e->normalized.count, from);
        code = encode_word(e, from, end, &after_unknown, list, status);
    }
    return code;
}

static descent_code encode(const descent_tokenizer *t, const char *text, size_t bytes, const special_ranges *special,
                           token_list *list, descent_status *status)
{
    encoding e = {.t = t, .s = t->own};
    descent_code code = DESCENT_OK;
    if (e.s->any_unused) {
        e.split = calloc(t->count, sizeof *e.split);
        e.stack = malloc((t->longest_spelling + 1) * sizeof *e.stack);
        if (!e.split || !e.stack) code = descent_fail(status, DESCENT_NO_MEMORY, "no memory to encode a text");
    }
    if (!code) code = spm_encode(t, text, bytes, special, encode_part, &e, list, status);
    encoding_free(&e);
    return code;
}

const tokenizer_kind tokenizer_spm = {.name = "llama",
                                      .replacement = UTF8_PER_BYTE,
                                      .load = load,
                                      .unload = unload,
                                      .spell = spm_spell,
                                      .encode = encode,
                                      .trim_leading = spm_trim_leading};
