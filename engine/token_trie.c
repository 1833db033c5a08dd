/* token_trie.c: builds the tree from spellings in order. A node stands for the run of spellings that begin with its bytes,
 * so the tree grows level by level: each node's run is cut where the next byte changes. Called by tokenizers that need
 * every match and not only the longest (tokenizer_unigram.c). */
#include "token_trie.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

static token_string spelling_at(const token_prefixes *p, uint32_t place)
{
    return p->tokens[p->ids[place]];
}

/* The root and each byte of a spelling that it does not share with the one before. */
static size_t count_nodes(const token_prefixes *p)
{
    size_t nodes = 1;
    token_string before = {"", 0};
    for (uint32_t i = 0; i < p->count; i++) {
        token_string spelling = spelling_at(p, i);
        uint32_t shared = 0;
        while (shared < before.bytes && shared < spelling.bytes && before.text[shared] == spelling.text[shared]) shared++;
        nodes += spelling.bytes - shared;
        before = spelling;
    }
    return nodes;
}

/* The spellings start..end-1 go through one node. */
typedef struct run {
    uint32_t start, end, depth;
} run;

static void grow(token_trie *trie, const token_prefixes *p, run *runs)
{
    uint32_t made = 1;
    runs[0] = (run){0, p->count, 0};
    for (uint32_t node = 0; node < trie->count; node++) {
        run r = runs[node];
        trie->ids[node] = TOKENIZER_NONE;
        trie->first[node] = made;
        /* Spellings differ, so only the first of the run can end here; the others go on. */
        if (r.start < r.end && spelling_at(p, r.start).bytes == r.depth) trie->ids[node] = p->ids[r.start++];
        for (uint32_t at = r.start; at < r.end; made++) {
            uint32_t start = at;
            char byte = spelling_at(p, at).text[r.depth];
            while (at < r.end && spelling_at(p, at).text[r.depth] == byte) at++;
            runs[made] = (run){start, at, r.depth + 1};
            trie->bytes[made] = (uint8_t)byte;
        }
    }
    trie->first[trie->count] = made;
}

descent_code token_trie_build(token_trie *trie, const token_prefixes *prefixes, descent_status *status)
{
    size_t nodes = count_nodes(prefixes);
    if (nodes >= TOKENIZER_NONE)
        return descent_fail(status, DESCENT_LIMIT, "the tokens have %zu bytes, expected fewer than %u", nodes, TOKENIZER_NONE);
    trie->count = (uint32_t)nodes;
    trie->first = malloc((nodes + 1) * sizeof *trie->first);
    trie->ids = malloc(nodes * sizeof *trie->ids);
    trie->bytes = calloc(nodes, 1);
    run *runs = malloc(nodes * sizeof *runs);
    if (!trie->first || !trie->ids || !trie->bytes || !runs) {
        free(runs);
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a tree of %zu nodes", nodes);
    }
    grow(trie, prefixes, runs);
    free(runs);
    memset(trie->roots, 0xFF, sizeof trie->roots);
    for (uint32_t child = trie->first[0]; child < trie->first[1]; child++) trie->roots[trie->bytes[child]] = child;
    return DESCENT_OK;
}

void token_trie_free(token_trie *trie)
{
    free(trie->first);
    free(trie->ids);
    free(trie->bytes);
}
