/* token_trie.h: spellings as a tree of bytes, to find every token that begins at a place of a text in one walk. */
#ifndef DESCENT_TOKEN_TRIE_H
#define DESCENT_TOKEN_TRIE_H

#include "tokenizer_sets.h"

#define TOKEN_TRIE_ROOT 0u

/* Node 0 is the root. Nodes are numbered level by level, so the children of node n are first[n]..first[n + 1]-1, ordered by
 * their byte. */
typedef struct token_trie {
    uint32_t *first; /* [count + 1] */
    uint32_t *ids;   /* [count] the token that ends at a node, or TOKENIZER_NONE */
    uint8_t *bytes;  /* [count] that lead to a node; the root's is 0 and means nothing */
    uint32_t count;
    uint32_t roots[256]; /* the root's child by byte, or TOKENIZER_NONE */
} token_trie;

/* Takes the ids that `prefixes` holds; keeps nothing of it. Linear in the bytes of their spellings. What was built before
 * a failure is released by token_trie_free, which takes a zeroed one too. */
descent_code token_trie_build(token_trie *trie, const token_prefixes *prefixes, descent_status *status);
void token_trie_free(token_trie *trie);

/* The child of `node` over `byte`, or TOKENIZER_NONE. */
static inline uint32_t token_trie_step(const token_trie *trie, uint32_t node, uint8_t byte)
{
    if (node == TOKEN_TRIE_ROOT) return trie->roots[byte];
    uint32_t end = trie->first[node + 1];
    for (uint32_t child = trie->first[node]; child < end; child++)
        if (trie->bytes[child] >= byte) return trie->bytes[child] == byte ? child : TOKENIZER_NONE;
    return TOKENIZER_NONE;
}

#endif
