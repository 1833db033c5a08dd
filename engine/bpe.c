/* bpe.c: merging a chain of symbols, and the table of merges.
 *
 * Every symbol knows the rank of the pair it makes with its neighbour, so an entry of the heap (rank, symbol) that the
 * symbol no longer agrees with is stale and dropped when it comes up. A short chain, as almost every pre-token is, is
 * looked through for its best pair each time instead: nothing is quicker there, and the order is the same.
 *
 * Called by tokenizer_bpe.c, tokenizer_merges.c and tokenizer_spm.c. */
#include "bpe.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

#define SHORT_CHAIN 24

/* Of what a merge makes, in the file's spelling: far longer than any vocabulary learns. */
#define MAX_MERGED_BYTES 4096

/* ---- The chain --------------------------------------------------------------------------------------------------- */

void bpe_chain_free(bpe_chain *chain)
{
    free(chain->symbols);
    free(chain->heap);
}

void bpe_chain_clear(bpe_chain *chain)
{
    chain->count = 0;
}

descent_code bpe_chain_add(bpe_chain *chain, uint32_t start, uint32_t bytes, uint32_t id, bool frozen, descent_status *status)
{
    if (chain->count == chain->room) {
        size_t room = chain->room ? 2 * chain->room : 64;
        bpe_symbol *grown = realloc(chain->symbols, room * sizeof *grown);
        if (!grown) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu symbols", room);
        chain->symbols = grown;
        chain->room = room;
    }
    uint32_t self = (uint32_t)chain->count++;
    chain->symbols[self] = (bpe_symbol){start, bytes, self == 0 ? BPE_END : self - 1, BPE_END, id, BPE_NO_RANK, 0, frozen};
    if (self > 0) chain->symbols[self - 1].after = self;
    return DESCENT_OK;
}

/* What a symbol makes with its neighbour, when either has changed. */
static uint32_t rate(bpe_chain *chain, uint32_t self, bpe_pair pair, void *work)
{
    bpe_symbol *left = &chain->symbols[self];
    const bpe_symbol *right = &chain->symbols[left->after];
    left->rank = left->after == BPE_END || left->frozen || right->frozen ? BPE_NO_RANK : pair(work, left, right, &left->merged);
    return left->rank;
}

/* Takes the next symbol into this one. */
static void join(bpe_chain *chain, uint32_t self)
{
    bpe_symbol *left = &chain->symbols[self], *right = &chain->symbols[left->after];
    left->bytes += right->bytes;
    left->id = left->merged;
    left->after = right->after;
    if (right->after != BPE_END) chain->symbols[right->after].before = self;
    right->bytes = 0;
    right->rank = BPE_NO_RANK;
}

static void merge_short(bpe_chain *chain, bpe_pair pair, void *work)
{
    for (uint32_t i = 0; i < chain->count; i++) (void)rate(chain, i, pair, work);
    for (;;) {
        uint32_t best = 0;
        for (uint32_t i = 0; i != BPE_END; i = chain->symbols[i].after)
            if (chain->symbols[i].rank < chain->symbols[best].rank) best = i;
        if (chain->symbols[best].rank == BPE_NO_RANK) return;
        join(chain, best);
        (void)rate(chain, best, pair, work);
        if (best > 0) (void)rate(chain, chain->symbols[best].before, pair, work);
    }
}

/* ---- The heap ---------------------------------------------------------------------------------------------------- */

static descent_code push(bpe_chain *chain, uint32_t rank, uint32_t self, descent_status *status)
{
    if (chain->n_pairs == chain->pair_room) {
        size_t room = chain->pair_room ? 2 * chain->pair_room : 64;
        uint64_t *grown = realloc(chain->heap, room * sizeof *grown);
        if (!grown) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu pairs of symbols", room);
        chain->heap = grown;
        chain->pair_room = room;
    }
    uint64_t entry = (uint64_t)rank << 32 | self;
    size_t at = chain->n_pairs++;
    for (; at > 0 && entry < chain->heap[(at - 1) / 2]; at = (at - 1) / 2) chain->heap[at] = chain->heap[(at - 1) / 2];
    chain->heap[at] = entry;
    return DESCENT_OK;
}

static uint64_t pop(bpe_chain *chain)
{
    uint64_t top = chain->heap[0], last = chain->heap[--chain->n_pairs];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < chain->n_pairs; at = child) {
        if (child + 1 < chain->n_pairs && chain->heap[child + 1] < chain->heap[child]) child++;
        if (last < chain->heap[child]) break;
        chain->heap[at] = chain->heap[child];
    }
    chain->heap[at] = last;
    return top;
}

static descent_code consider(bpe_chain *chain, uint32_t self, bpe_pair pair, void *work, descent_status *status)
{
    if (self == BPE_END) return DESCENT_OK;
    uint32_t rank = rate(chain, self, pair, work);
    return rank == BPE_NO_RANK ? DESCENT_OK : push(chain, rank, self, status);
}

descent_code bpe_merge(bpe_chain *chain, bpe_pair pair, void *work, descent_status *status)
{
    if (chain->count < 2) return DESCENT_OK;
    if (chain->count <= SHORT_CHAIN) {
        merge_short(chain, pair, work);
        return DESCENT_OK;
    }
    descent_code code = DESCENT_OK;
    chain->n_pairs = 0;
    for (uint32_t i = 0; i < chain->count && !code; i++) code = consider(chain, i, pair, work, status);
    while (chain->n_pairs > 0 && !code) {
        uint64_t entry = pop(chain);
        uint32_t self = (uint32_t)entry;
        if (chain->symbols[self].rank != entry >> 32) continue; /* stale */
        join(chain, self);
        code = consider(chain, chain->symbols[self].before, pair, work, status);
        if (!code) code = consider(chain, self, pair, work, status);
    }
    return code;
}

/* ---- Merges ------------------------------------------------------------------------------------------------------ */

/* The token that `text` is, of a type that may merge. */
static descent_code find_part(const descent_tokenizer *t, unsigned types, const char *text, size_t bytes, size_t rank,
                              uint32_t *id, descent_status *status)
{
    char shown[64];
    *id = token_index_find(&t->index, text, bytes);
    if (*id == TOKENIZER_NONE)
        return descent_fail(status, DESCENT_BAD_FILE, "%s: merge %zu needs \"%s\", which is no token", BPE_MERGES_KEY, rank,
                            utf8_printable(text, bytes, shown, sizeof shown));
    if (!(types >> t->types[*id] & 1))
        return descent_fail(status, DESCENT_BAD_FILE, "%s: merge %zu needs \"%s\", token %u, whose type %u never merges",
                            BPE_MERGES_KEY, rank, utf8_printable(text, bytes, shown, sizeof shown), *id, t->types[*id]);
    return DESCENT_OK;
}

static descent_code read_rule(const descent_tokenizer *t, unsigned types, gguf_string merge, size_t rank, bpe_rule *rule,
                              descent_status *status)
{
    char shown[64];
    char both[MAX_MERGED_BYTES];
    const char *space = merge.bytes ? memchr(merge.text, ' ', merge.bytes) : NULL;
    size_t left = space ? (size_t)(space - merge.text) : 0, right = merge.bytes - left - 1;
    if (!space || left == 0 || right == 0 || memchr(space + 1, ' ', right))
        return descent_fail(status, DESCENT_BAD_FILE, "%s: merge %zu is \"%s\", expected two tokens and one space",
                            BPE_MERGES_KEY, rank, utf8_printable(merge.text, merge.bytes, shown, sizeof shown));
    if (left + right > sizeof both)
        return descent_fail(status, DESCENT_BAD_FILE, "%s: merge %zu has %zu bytes, expected at most %zu", BPE_MERGES_KEY, rank,
                            merge.bytes, sizeof both + 1);
    memcpy(both, merge.text, left);
    memcpy(both + left, space + 1, right);
    descent_code code = find_part(t, types, merge.text, left, rank, &rule->left, status);
    if (!code) code = find_part(t, types, space + 1, right, rank, &rule->right, status);
    if (!code) code = find_part(t, types, both, left + right, rank, &rule->id, status);
    rule->rank = (uint32_t)rank;
    return code;
}

static descent_code enter(bpe_merges *merges, bpe_rule rule, descent_status *status)
{
    uint32_t slot = bpe_merges_slot(rule.left, rule.right) & merges->mask;
    for (; merges->slots[slot].left != TOKENIZER_NONE; slot = (slot + 1) & merges->mask)
        if (merges->slots[slot].left == rule.left && merges->slots[slot].right == rule.right)
            return descent_fail(status, DESCENT_BAD_FILE, "%s: merges %u and %u are the same pair", BPE_MERGES_KEY,
                                merges->slots[slot].rank, rule.rank);
    merges->slots[slot] = rule;
    return DESCENT_OK;
}

descent_code bpe_merges_load(bpe_merges *merges, const descent_tokenizer *t, unsigned types, const gguf_file *file,
                             descent_status *status)
{
    gguf_array array;
    descent_code code = gguf_get_string_array(file, BPE_MERGES_KEY, &array, status);
    if (code) return code;
    if (array.count > BPE_MAX_MERGES)
        return descent_fail(status, DESCENT_BAD_FILE, "%s has %zu merges, expected at most %u", BPE_MERGES_KEY, array.count,
                            BPE_MAX_MERGES);
    uint32_t room = 16;
    while (room < 2 * array.count) room *= 2;
    merges->slots = malloc(room * sizeof *merges->slots);
    if (!merges->slots) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu merges", array.count);
    memset(merges->slots, 0xFF, room * sizeof *merges->slots);
    merges->mask = room - 1;
    for (size_t rank = 0; rank < array.count && !code; rank++) {
        bpe_rule rule;
        code = read_rule(t, types, gguf_string_at(&array, rank), rank, &rule, status);
        if (!code) code = enter(merges, rule, status);
    }
    return code;
}

void bpe_merges_free(bpe_merges *merges)
{
    free(merges->slots);
    merges->slots = NULL;
}

uint32_t bpe_merges_pair(void *work, const bpe_symbol *left, const bpe_symbol *right, uint32_t *merged)
{
    return bpe_merges_find(work, left->id, right->id, merged);
}
