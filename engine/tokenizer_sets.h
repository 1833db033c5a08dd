/* tokenizer_sets.h: what tokenizers keep spellings, ids and text in. */
#ifndef DESCENT_TOKENIZER_SETS_H
#define DESCENT_TOKENIZER_SETS_H

#include "descent.h"

#define TOKENIZER_NONE UINT32_MAX /* no token */

typedef struct token_string {
    const char *text; /* not NUL-terminated */
    uint32_t bytes;
} token_string;

/* Every spelling's id: a hash table with open addressing, at most half full. */
typedef struct token_index {
    const token_string *tokens; /* borrowed */
    uint32_t *slots;            /* id, or TOKENIZER_NONE */
    uint32_t mask;
} token_index;

/* Enters those of tokens[0..count-1] that are not empty. Two equal spellings are DESCENT_BAD_FILE: the second would never be
 * found. */
descent_code token_index_build(token_index *index, const token_string *tokens, uint32_t count, descent_status *status);
void token_index_free(token_index *index);
/* TOKENIZER_NONE when no token is spelled so. */
uint32_t token_index_find(const token_index *index, const char *text, size_t bytes);

/* Some of the spellings, ordered byte by byte, a prefix before what it begins. */
typedef struct token_prefixes {
    const token_string *tokens; /* borrowed */
    uint32_t *ids;              /* sorted by spelling */
    uint32_t count;
} token_prefixes;

/* Takes the ids whose bit 1 << type is set in `types_wanted`. */
descent_code token_prefixes_build(token_prefixes *prefixes, const token_string *tokens, const uint8_t *types, uint32_t count,
                                  unsigned types_wanted, descent_status *status);
void token_prefixes_free(token_prefixes *prefixes);

/* Ids in the order of a text, growing. Starts as {0}; `ids` is released with free(). */
typedef struct token_list {
    uint32_t *ids;
    size_t count, room;
} token_list;

descent_code token_list_add(token_list *list, uint32_t id, descent_status *status);

/* More than this a normalized text may not have, so that 32 bits hold every place in it. */
#define TOKENIZER_MAX_TEXT_BYTES ((size_t)1 << 28)

/* Bytes that grow. Starts as {0}; released with free(bytes). */
typedef struct text_buffer {
    char *bytes;
    size_t count, room;
} text_buffer;

/* Room for `more` bytes after the first `count`. DESCENT_LIMIT: more than TOKENIZER_MAX_TEXT_BYTES in all. */
descent_code text_buffer_reserve(text_buffer *buffer, size_t more, descent_status *status);

#endif
