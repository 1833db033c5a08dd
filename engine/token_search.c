/* token_search.c: the automaton of token_search.h. Reading backwards is what makes it linear and simple: a step of Aho and
 * Corasick's automaton tells the longest spelling that *ends* at a place, and of a text read from its end that is the
 * longest that begins there. Reading forwards, the longest is only known some way further on, which has to be read again.
 *
 * Used for added and special tokens of every kind of tokenizer. */
#include "token_search.h"

#include "status.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

/* ---- Building ---------------------------------------------------------------------------------------------------- */

/* The wanted texts backwards, all in one block that *reversed_bytes owns. */
static descent_code reverse(const token_string *texts, const uint8_t *types, uint32_t count, unsigned types_wanted,
                            token_string **reversed, char **reversed_bytes, descent_status *status)
{
    size_t total = 0;
    for (uint32_t id = 0; id < count; id++)
        if (types_wanted >> types[id] & 1) total += texts[id].bytes;
    *reversed = calloc(count, sizeof **reversed);
    *reversed_bytes = malloc(total ? total : 1);
    if (!*reversed || !*reversed_bytes)
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu bytes of tokens", total);
    char *next = *reversed_bytes;
    for (uint32_t id = 0; id < count; id++) {
        if (!(types_wanted >> types[id] & 1)) continue;
        (*reversed)[id] = (token_string){next, texts[id].bytes};
        for (uint32_t i = texts[id].bytes; i > 0;) *next++ = texts[id].text[--i];
    }
    return DESCENT_OK;
}

static descent_code refuse_equal(const token_prefixes *p, const token_string *texts, descent_status *status)
{
    for (uint32_t i = 1; i < p->count; i++) {
        uint32_t one = p->ids[i - 1], two = p->ids[i];
        token_string a = texts[one], b = texts[two];
        char shown[64];
        if (a.bytes == b.bytes && memcmp(a.text, b.text, a.bytes) == 0)
            return descent_fail(status, DESCENT_BAD_FILE, "tokenizer.ggml.tokens: %u and %u are both found as \"%s\"",
                                one < two ? one : two, one < two ? two : one,
                                utf8_printable(a.text, a.bytes, shown, sizeof shown));
    }
    return DESCENT_OK;
}

/* From a node over a byte, to shorter paths where this one does not go on. */
static uint32_t go(const token_search *s, uint32_t node, uint8_t byte)
{
    uint32_t next = token_trie_step(&s->trie, node, byte);
    while (next == TOKENIZER_NONE && node != TOKEN_TRIE_ROOT) {
        node = s->shorter[node];
        next = token_trie_step(&s->trie, node, byte);
    }
    return next == TOKENIZER_NONE ? TOKEN_TRIE_ROOT : next;
}

/* A node's parent comes before it, and so does every shorter path. */
static descent_code link_nodes(token_search *s, descent_status *status)
{
    uint32_t count = s->trie.count;
    s->shorter = malloc(count * sizeof *s->shorter);
    s->longest = malloc(count * sizeof *s->longest);
    s->depths = malloc(count * sizeof *s->depths);
    if (!s->shorter || !s->longest || !s->depths)
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a search with %u nodes", count);
    s->shorter[TOKEN_TRIE_ROOT] = TOKEN_TRIE_ROOT;
    s->longest[TOKEN_TRIE_ROOT] = TOKENIZER_NONE;
    s->depths[TOKEN_TRIE_ROOT] = 0;
    for (uint32_t node = 0; node < count; node++)
        for (uint32_t child = s->trie.first[node]; child < s->trie.first[node + 1]; child++) {
            uint32_t shorter = node == TOKEN_TRIE_ROOT ? TOKEN_TRIE_ROOT : go(s, s->shorter[node], s->trie.bytes[child]);
            s->shorter[child] = shorter;
            s->longest[child] = s->trie.ids[child] != TOKENIZER_NONE ? child : s->longest[shorter];
            s->depths[child] = s->depths[node] + 1;
        }
    return DESCENT_OK;
}

descent_code token_search_build(token_search *search, const token_string *texts, const uint8_t *types, uint32_t count,
                                unsigned types_wanted, descent_status *status)
{
    token_string *reversed = NULL;
    char *reversed_bytes = NULL;
    token_prefixes sorted = {0};
    descent_code code = reverse(texts, types, count, types_wanted, &reversed, &reversed_bytes, status);
    if (!code) code = token_prefixes_build(&sorted, reversed, types, count, types_wanted, status);
    if (!code) code = refuse_equal(&sorted, texts, status);
    if (!code) code = token_trie_build(&search->trie, &sorted, status);
    if (!code) code = link_nodes(search, status);
    search->empty = sorted.count == 0;
    token_prefixes_free(&sorted);
    free(reversed);
    free(reversed_bytes);
    return code;
}

void token_search_free(token_search *search)
{
    token_trie_free(&search->trie);
    free(search->shorter);
    free(search->longest);
    free(search->depths);
}

/* ---- Searching --------------------------------------------------------------------------------------------------- */

static descent_code add_match(token_matches *matches, token_match match, descent_status *status)
{
    if (matches->count == matches->room) {
        size_t room = matches->room ? 2 * matches->room : 16;
        token_match *grown = realloc(matches->list, room * sizeof *grown);
        if (!grown) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu tokens found in a text", room);
        matches->list = grown;
        matches->room = room;
    }
    matches->list[matches->count++] = match;
    return DESCENT_OK;
}

descent_code token_search_all(const token_search *search, const char *text, size_t bytes, token_matches *matches,
                              descent_status *status)
{
    matches->count = 0;
    if (search->empty || !search->longest) return DESCENT_OK;
    if (bytes > UINT32_MAX)
        return descent_fail(status, DESCENT_LIMIT, "a text of %zu bytes, expected at most %u", bytes, UINT32_MAX);
    descent_code code = DESCENT_OK;
    uint32_t node = TOKEN_TRIE_ROOT;
    for (size_t at = bytes; at > 0 && !code;) {
        node = go(search, node, (uint8_t)text[--at]);
        uint32_t longest = search->longest[node];
        if (longest == TOKENIZER_NONE) continue;
        code = add_match(matches, (token_match){(uint32_t)at, search->depths[longest], search->trie.ids[longest]}, status);
    }
    return code;
}
