/* tokenizer_sets.c: sets of token spellings, lists of ids, and text that grows. token_index answers "which token is spelled
 * exactly so" in one hash, token_prefixes "which is the longest one here" by narrowing a sorted range byte by byte; neither
 * copies a spelling. Used by tokenizer.c and every kind. */
#include "tokenizer_sets.h"

#include "status.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

/* FNV-1a, its bits mixed once more because the table uses the low ones. */
static uint64_t hash_bytes(const char *text, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    hash ^= hash >> 32;
    hash *= 0xd6e8feb86659fd93u;
    return hash ^ hash >> 32;
}

static bool spelled(token_string token, const char *text, size_t bytes)
{
    return token.bytes == bytes && memcmp(token.text, text, bytes) == 0;
}

/* The slot that holds this spelling, or the empty one where it belongs. */
static uint32_t find_slot(const token_index *index, const char *text, size_t bytes)
{
    uint32_t slot = (uint32_t)hash_bytes(text, bytes) & index->mask;
    while (index->slots[slot] != TOKENIZER_NONE && !spelled(index->tokens[index->slots[slot]], text, bytes))
        slot = (slot + 1) & index->mask;
    return slot;
}

descent_code token_index_build(token_index *index, const token_string *tokens, uint32_t count, descent_status *status)
{
    uint32_t room = 16;
    while (room < 2 * count) room *= 2;
    index->slots = malloc(room * sizeof *index->slots);
    if (!index->slots) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for an index of %u tokens", count);
    memset(index->slots, 0xFF, room * sizeof *index->slots);
    index->tokens = tokens;
    index->mask = room - 1;
    for (uint32_t id = 0; id < count; id++) {
        if (tokens[id].bytes == 0) continue;
        uint32_t slot = find_slot(index, tokens[id].text, tokens[id].bytes);
        if (index->slots[slot] != TOKENIZER_NONE) {
            char shown[48];
            return descent_fail(status, DESCENT_BAD_FILE,
                                "tokenizer.ggml.tokens: %u and %u are both \"%s\", expected no token twice", index->slots[slot],
                                id, utf8_printable(tokens[id].text, tokens[id].bytes, shown, sizeof shown));
        }
        index->slots[slot] = id;
    }
    return DESCENT_OK;
}

void token_index_free(token_index *index)
{
    free(index->slots);
    index->slots = NULL;
}

uint32_t token_index_find(const token_index *index, const char *text, size_t bytes)
{
    return index->slots[find_slot(index, text, bytes)];
}

/* Byte order, a prefix before what it begins. */
static int compare_spellings(token_string a, token_string b)
{
    int order = memcmp(a.text, b.text, a.bytes < b.bytes ? a.bytes : b.bytes);
    return order ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

/* Moves ids[root] down until the heap of the first `count`, largest spelling on top, is in order again. */
static void sift_down(const token_prefixes *p, uint32_t root, uint32_t count)
{
    uint32_t moved = p->ids[root];
    for (uint32_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && compare_spellings(p->tokens[p->ids[child]], p->tokens[p->ids[child + 1]]) < 0) child++;
        if (compare_spellings(p->tokens[moved], p->tokens[p->ids[child]]) >= 0) break;
        p->ids[root] = p->ids[child];
    }
    p->ids[root] = moved;
}

/* A heap sort: qsort has no place for the table the ids point into. */
static void sort_by_spelling(const token_prefixes *p)
{
    for (uint32_t root = p->count / 2; root-- > 0;) sift_down(p, root, p->count);
    for (uint32_t end = p->count; end > 1;) {
        end--;
        uint32_t largest = p->ids[0];
        p->ids[0] = p->ids[end];
        p->ids[end] = largest;
        sift_down(p, 0, end);
    }
}

descent_code token_prefixes_build(token_prefixes *prefixes, const token_string *tokens, const uint8_t *types, uint32_t count,
                                  unsigned types_wanted, descent_status *status)
{
    uint32_t wanted = 0;
    for (uint32_t id = 0; id < count; id++) wanted += types_wanted >> types[id] & 1;
    prefixes->tokens = tokens;
    prefixes->ids = malloc((wanted ? wanted : 1) * sizeof *prefixes->ids);
    if (!prefixes->ids) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a list of %u tokens", wanted);
    for (uint32_t id = 0; id < count; id++)
        if (types_wanted >> types[id] & 1) prefixes->ids[prefixes->count++] = id;
    sort_by_spelling(prefixes);
    return DESCENT_OK;
}

void token_prefixes_free(token_prefixes *prefixes)
{
    free(prefixes->ids);
    prefixes->ids = NULL;
}

descent_code token_list_add(token_list *list, uint32_t id, descent_status *status)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        uint32_t *ids = room <= SIZE_MAX / sizeof *ids ? realloc(list->ids, room * sizeof *ids) : NULL;
        if (!ids) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu tokens", room);
        list->ids = ids;
        list->room = room;
    }
    list->ids[list->count++] = id;
    return DESCENT_OK;
}

descent_code text_buffer_reserve(text_buffer *buffer, size_t more, descent_status *status)
{
    if (buffer->room - buffer->count >= more) return DESCENT_OK;
    if (more > TOKENIZER_MAX_TEXT_BYTES || buffer->count + more > TOKENIZER_MAX_TEXT_BYTES)
        return descent_fail(status, DESCENT_LIMIT, "the text has more than %zu bytes after normalization",
                            TOKENIZER_MAX_TEXT_BYTES);
    size_t room = 2 * (buffer->room + more);
    char *grown = realloc(buffer->bytes, room);
    if (!grown) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu bytes of text", room);
    buffer->bytes = grown;
    buffer->room = room;
    return DESCENT_OK;
}
