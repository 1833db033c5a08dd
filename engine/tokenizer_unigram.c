/* tokenizer_unigram.c: the `t5` kind, SentencePiece's unigram model, id for id as the sentencepiece library encodes.
 *
 * Of all ways to cut a normalized text (spm_normalizer.h) into tokens, the one whose scores have the largest sum. For each
 * place of the text, from the left, every token that begins there (one walk down a tree of all spellings) offers the place
 * where it ends a better way to get there; then the best way is followed back from the end. A place where no token is one
 * character long offers that character as unknown, at 10 less than the lowest score. A user-defined token of n bytes
 * scores (n - 1) / 10, whatever the file says: more than any real token. Sums are 32-bit floats, added from the left, and
 * the way found first wins among equals: that is what makes the ids the same where scores tie (so version 0.2.3 of the
 * library; earlier ones compared sums before they were rounded).
 *
 * n bytes take n walks of at most the longest spelling, in memory of 12 bytes a byte. tokenizer.c drives it; `search`
 * below is one call's memory. */
#include "spm_vocabulary.h"
#include "token_trie.h"

#include "status.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_PENALTY 10.0f
#define SCORE_BOUND 100000.0f

typedef struct unigram {
    spm_vocabulary vocabulary; /* first: spm_vocabulary.h */
    token_trie trie;           /* normal and user-defined tokens */
    float unknown_score;
} unigram;

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static float lowest_score(const descent_tokenizer *t, const float *scores)
{
    float lowest = FLT_MAX;
    for (uint32_t id = 0; id < t->count; id++)
        if (t->types[id] == TOKEN_NORMAL && scores[id] < lowest) lowest = scores[id];
    return lowest;
}

static descent_code load(descent_tokenizer *t, const gguf_file *file, descent_status *status)
{
    unigram *u = calloc(1, sizeof *u);
    if (!u) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a tokenizer");
    t->own = u;
    descent_code code = spm_vocabulary_load(&u->vocabulary, t, file, status);
    if (code) return code;
    u->unknown_score = lowest_score(t, u->vocabulary.scores) - UNKNOWN_PENALTY;
    token_prefixes texts = {0};
    code =
        token_prefixes_build(&texts, t->spellings, t->types, t->count, 1u << TOKEN_NORMAL | 1u << TOKEN_USER_DEFINED, status);
    if (!code) code = token_trie_build(&u->trie, &texts, status);
    token_prefixes_free(&texts);
    /* llama.cpp's default, for files that do not say. */
    if (!code && !gguf_has(file, "tokenizer.ggml.add_eos_token")) t->info.adds_eos = t->info.eos >= 0;
    return code;
}

static void unload(descent_tokenizer *t)
{
    unigram *u = t->own;
    if (!u) return;
    spm_vocabulary_free(&u->vocabulary);
    token_trie_free(&u->trie);
    free(u);
}

/* ---- Encoding ---------------------------------------------------------------------------------------------------- */

#define UNREACHED UINT32_MAX

/* The best way found to a place of the normalized text. */
typedef struct way {
    float score;    /* of all tokens up to here */
    uint32_t start; /* of the last of them; UNREACHED: no way yet */
    uint32_t id;    /* TOKENIZER_NONE: unknown */
} way;

typedef struct search {
    const descent_tokenizer *t;
    const unigram *u;
    text_buffer text; /* normalized */
    way *ways;        /* [text.count + 1]; while the best is followed back, each start is turned into the end of its token */
    size_t way_room;
    uint32_t furthest; /* place that a way leads to */
} search;

static void offer(search *s, uint32_t end, float score, uint32_t start, uint32_t id)
{
    way *to = &s->ways[end];
    if (to->start == UNREACHED || score > to->score) *to = (way){score, start, id};
    if (end > s->furthest) s->furthest = end;
}

/* The score to go on from at `start`. In a long text sums grow until a float tells them apart no longer; past a bound, which
 * is the library's, all that matter from here on are counted from this place anew. */
static float score_at(search *s, uint32_t start)
{
    float score = s->ways[start].score;
    if (score >= -SCORE_BOUND && score <= SCORE_BOUND) return score;
    for (uint32_t i = start + 1; i <= s->furthest; i++) s->ways[i].score -= score;
    s->ways[start].score = 0.0f;
    return 0.0f;
}

/* A character's bytes by what its first one says: the text is valid as long as the normalizer's table is. */
static uint32_t character_bytes(char first)
{
    unsigned byte = (unsigned char)first;
    return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/* Offers the ways that go on from `start` by one token. Returns where the next character begins. */
static uint32_t go_on(search *s, uint32_t start)
{
    const unigram *u = s->u;
    const float *scores = u->vocabulary.scores;
    uint32_t size = (uint32_t)s->text.count, node = TOKEN_TRIE_ROOT;
    uint32_t next = start + character_bytes(s->text.bytes[start]);
    if (next > size) next = size;
    float so_far = score_at(s, start);
    bool one_character = false;
    for (uint32_t end = start; end < size;) {
        node = token_trie_step(&u->trie, node, (uint8_t)s->text.bytes[end++]);
        if (node == TOKENIZER_NONE) break;
        uint32_t id = u->trie.ids[node];
        if (id == TOKENIZER_NONE) continue;
        float score = scores[id];
        if (s->t->types[id] == TOKEN_USER_DEFINED) score = (float)(0.1 * (double)(end - start - 1));
        offer(s, end, score + so_far, start, id);
        one_character |= end == next;
    }
    if (!one_character) offer(s, next, u->unknown_score + so_far, start, TOKENIZER_NONE);
    return next;
}

static descent_code make_room(search *s, descent_status *status)
{
    size_t wanted = s->text.count + 1;
    if (wanted > s->way_room) {
        way *grown = realloc(s->ways, wanted * sizeof *grown);
        if (!grown) return descent_fail(status, DESCENT_NO_MEMORY, "no memory to cut %zu bytes of text", s->text.count);
        s->ways = grown;
        s->way_room = wanted;
    }
    for (size_t i = 0; i < wanted; i++) s->ways[i] = (way){0.0f, UNREACHED, TOKENIZER_NONE};
    return DESCENT_OK;
}

/* Turns the links of the best way around: afterwards ways[0].start is where its first token ends, and so on from there. */
static void reverse_best(search *s)
{
    uint32_t end = (uint32_t)s->text.count, after = end;
    while (end > 0) {
        uint32_t start = s->ways[end].start;
        s->ways[end].start = after;
        after = end;
        end = start;
    }
    s->ways[0].start = after;
}

/* One text without special tokens. */
static descent_code encode_part(void *work, const char *text, size_t bytes, token_list *list, descent_status *status)
{
    search *s = work;
    descent_code code = spm_normalize(&s->u->vocabulary.normalizer, text, bytes, &s->text, status);
    if (code || s->text.count == 0) return code;
    code = make_room(s, status);
    if (code) return code;
    uint32_t size = (uint32_t)s->text.count;
    s->furthest = 0;
    for (uint32_t start = 0; start < size;) start = go_on(s, start);
    reverse_best(s);
    bool after_unknown = false;
    for (uint32_t start = 0; start < size && !code;) {
        uint32_t end = s->ways[start].start;
        code = spm_emit(s->t, s->text.bytes + start, end - start, s->ways[end].id, &after_unknown, list, status);
        start = end;
    }
    return code;
}

static descent_code encode(const descent_tokenizer *t, const char *text, size_t bytes, const special_ranges *special,
                           token_list *list, descent_status *status)
{
    search s = {.t = t, .u = t->own};
    descent_code code = spm_encode(t, text, bytes, special, encode_part, &s, list, status);
    free(s.text.bytes);
    free(s.ways);
    return code;
}

const tokenizer_kind tokenizer_unigram = {.name = "t5",
                                          .replacement = UTF8_PER_BYTE,
                                          .load = load,
                                          .unload = unload,
                                          .spell = spm_spell,
                                          .encode = encode,
                                          .trim_leading = spm_trim_leading};
