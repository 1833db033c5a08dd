/* bpe.h: byte-pair encoding as such: a chain of symbols in which the best pair of neighbours becomes one symbol until none
 * is left. What a pair makes, and how good that is, its caller says: SentencePiece by the score of the token both spell,
 * everybody else by a table of merges, which is here too. */
#ifndef DESCENT_BPE_H
#define DESCENT_BPE_H

#include "tokenizer.h"

#define BPE_END UINT32_MAX     /* no symbol */
#define BPE_NO_RANK UINT32_MAX /* no pair */

typedef struct bpe_symbol {
    uint32_t start, bytes;  /* in the text; 0 bytes once merged into the one before */
    uint32_t before, after; /* in the chain, or BPE_END */
    uint32_t id;            /* TOKENIZER_NONE: no token */
    uint32_t rank, merged;  /* of the pair it makes with the one after it: its rank and the id it becomes */
    bool frozen;            /* never merges */
} bpe_symbol;

/* One call's memory. Starts as {0}, is used again and again, and is released with bpe_chain_free. */
typedef struct bpe_chain {
    bpe_symbol *symbols; /* [count] in the order of the text, the first always the chain's first */
    size_t count, room;
    uint64_t *heap; /* pairs, rank << 32 | symbol, the smallest on top */
    size_t n_pairs, pair_room;
} bpe_chain;

/* The rank of the pair, smaller being better, and in *merged the id it becomes; BPE_NO_RANK where it makes no token. */
typedef uint32_t (*bpe_pair)(void *work, const bpe_symbol *left, const bpe_symbol *right, uint32_t *merged);

void bpe_chain_free(bpe_chain *chain);
void bpe_chain_clear(bpe_chain *chain);
/* Appends a symbol, at most 2^32 - 1 of them. */
descent_code bpe_chain_add(bpe_chain *chain, uint32_t start, uint32_t bytes, uint32_t id, bool frozen, descent_status *status);

/* Merges the pair of the best rank, the leftmost among equals, until no two neighbours make one. n symbols take
 * O(n log n) steps. Those left have bytes > 0. */
descent_code bpe_merge(bpe_chain *chain, bpe_pair pair, void *work, descent_status *status);

/* ---- Merges ------------------------------------------------------------------------------------------------------ */

typedef struct bpe_rule {
    uint32_t left, right; /* ids; left is TOKENIZER_NONE in an empty slot */
    uint32_t id, rank;
} bpe_rule;

/* A hash table with open addressing, at most half full. */
typedef struct bpe_merges {
    bpe_rule *slots;
    uint32_t mask;
} bpe_merges;

#define BPE_MERGES_KEY "tokenizer.ggml.merges"
#define BPE_MAX_MERGES ((uint32_t)1 << 24)

/* Reads the merges of a tokenizer whose spellings, types and index are loaded: "left right", best first. Each must name
 * two tokens that together spell a third, all three of a type in `types` (bits 1 << token_type), and none may come twice.
 * What was read before a failure is released by bpe_merges_free, which takes a zeroed one too. */
descent_code bpe_merges_load(bpe_merges *merges, const descent_tokenizer *t, unsigned types, const gguf_file *file,
                             descent_status *status);
void bpe_merges_free(bpe_merges *merges);

static inline uint32_t bpe_merges_slot(uint32_t left, uint32_t right)
{
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(hash >> 32) ^ (uint32_t)hash >> 15;
}

static inline uint32_t bpe_merges_find(const bpe_merges *merges, uint32_t left, uint32_t right, uint32_t *id)
{
    for (uint32_t slot = bpe_merges_slot(left, right) & merges->mask;; slot = (slot + 1) & merges->mask) {
        const bpe_rule *rule = &merges->slots[slot];
        if (rule->left == left && rule->right == right) {
            *id = rule->id;
            return rule->rank;
        }
        if (rule->left == TOKENIZER_NONE) return BPE_NO_RANK;
    }
}

/* A bpe_pair by a table of merges: `work` is the bpe_merges. */
uint32_t bpe_merges_pair(void *work, const bpe_symbol *left, const bpe_symbol *right, uint32_t *merged);

#endif
