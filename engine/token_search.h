/* token_search.h: finding every place of a text where one of some spellings stands, in one pass however many and however
 * long they are. */
#ifndef DESCENT_TOKEN_SEARCH_H
#define DESCENT_TOKEN_SEARCH_H

#include "token_trie.h"
#include "tokenizer_sets.h"

/* The spellings backwards as a tree, made an Aho-Corasick automaton: read from its end, a text brings it at each place to
 * the node of the longest path that begins there. Immutable once built; a zeroed one finds nothing. */
typedef struct token_search {
    token_trie trie;   /* of the spellings read backwards */
    uint32_t *shorter; /* [nodes] the longest other path that what was read last also is */
    uint32_t *longest; /* [nodes] the node of the longest spelling that begins here, or TOKENIZER_NONE */
    uint32_t *depths;  /* [nodes] */
    bool empty;
} token_search;

/* Takes texts[id] of the ids whose bit 1 << type is set in `types_wanted`; keeps nothing of them. None may be empty, and two
 * that are equal are DESCENT_BAD_FILE. What was built before a failure is released by token_search_free. */
descent_code token_search_build(token_search *search, const token_string *texts, const uint8_t *types, uint32_t count,
                                unsigned types_wanted, descent_status *status);
void token_search_free(token_search *search);

typedef struct token_match {
    uint32_t start, bytes;
    uint32_t id;
} token_match;

/* What a search found, to be read from the start of the text. Starts as {0}, may be used again; released with
 * free(list). */
typedef struct token_matches {
    token_match *list; /* the last in the text first */
    size_t count, room;
} token_matches;

/* Finds, for each place of a text where a spelling begins, the longest that does. DESCENT_LIMIT: more than 4 GiB of text. */
descent_code token_search_all(const token_search *search, const char *text, size_t bytes, token_matches *matches,
                              descent_status *status);

/* The first match that begins at `from` or later, or NULL. `from` must not decrease from call to call. */
static inline const token_match *token_matches_from(token_matches *matches, size_t from)
{
    while (matches->count > 0 && matches->list[matches->count - 1].start < from) matches->count--;
    return matches->count > 0 ? &matches->list[matches->count - 1] : NULL;
}

/* The match that begins at `at`, or NULL; likewise. */
static inline const token_match *token_matches_at(token_matches *matches, size_t at)
{
    const token_match *match = token_matches_from(matches, at);
    return match && match->start == at ? match : NULL;
}

#endif
