/* tokenizer.h: what a kind of tokenizer is, for the files that implement one and for tokenizer.c, which drives them all.
 *
 * A tokenizer is a vocabulary read from a model file: for each id a *spelling* (the token as the file has it), a type,
 * and a *piece* (the bytes it appends to a text). What is common to all kinds is read, checked and held here; a kind adds
 * how text becomes ids, how a spelling becomes a piece, and whatever it needs for that. To add one: write
 * tokenizer_NAME.c with a tokenizer_kind and enter it into the table in tokenizer.c.
 *
 * Everything is immutable once loaded: encode and the decoder keep their work in memory of their own. */
#ifndef DESCENT_TOKENIZER_H
#define DESCENT_TOKENIZER_H

#include "descent.h"
#include "gguf.h"
#include "utf8.h"

#define TOKENIZER_MAX_TOKENS ((uint32_t)1 << 22)
#define TOKENIZER_MAX_TOKEN_BYTES ((size_t)65535)

#define TOKENIZER_NONE UINT32_MAX

/* tokenizer.ggml.token_type, by llama.cpp's numbers. */
typedef enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
} token_type;

typedef struct token_string {
    const char *text; /* not NUL-terminated */
    uint32_t bytes;
} token_string;

/* ---- Sets of spellings (tokenizer_sets.c) ------------------------------------------------------------------------ */

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

/* Some of the spellings, ordered byte by byte, to find the longest that a text begins with. */
typedef struct token_prefixes {
    const token_string *tokens; /* borrowed */
    uint32_t *ids;              /* sorted by spelling */
    uint32_t count;
} token_prefixes;

/* Takes the ids whose bit 1 << type is set in `types_wanted`. */
descent_code token_prefixes_build(token_prefixes *prefixes, const token_string *tokens, const uint8_t *types, uint32_t count,
                                  unsigned types_wanted, descent_status *status);
void token_prefixes_free(token_prefixes *prefixes);
/* The longest spelling in the set that text begins with, or TOKENIZER_NONE. */
uint32_t token_prefixes_longest(const token_prefixes *prefixes, const char *text, size_t bytes);

/* Ids in the order of a text, growing. Starts as {0}; `ids` is released with free(). */
typedef struct token_list {
    uint32_t *ids;
    size_t count, room;
    uint64_t steps; /* of merging, counted by the kinds that merge: what tests of linearity look at */
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

/* ---- Kinds ------------------------------------------------------------------------------------------------------- */

typedef struct tokenizer_kind {
    const char *name; /* tokenizer.ggml.model */
    utf8_replacement replacement;

    /* Reads and checks what this kind needs beyond the common part, into tokenizer->own. On failure `unload` cleans up. */
    descent_code (*load)(descent_tokenizer *tokenizer, const gguf_file *file, descent_status *status);
    void (*unload)(descent_tokenizer *tokenizer);

    /* Writes the piece of a token that has text, and returns its length; `out` may be NULL to ask for the length. */
    size_t (*spell)(const descent_tokenizer *tokenizer, uint32_t id, char *out);

    /* Appends the ids of a text to list, special tokens by their spelling where `parse_special`. BOS and EOS are not its
     * business. May leave ids in the list when it fails. */
    descent_code (*encode)(const descent_tokenizer *tokenizer, const char *text, size_t bytes, bool parse_special,
                           token_list *list, descent_status *status);

    /* Where a kind leaves out bytes at the start of a decoded text: how many of this token's piece, called while
     * *leading, which it sets to false once the text has begun. NULL: none. */
    size_t (*trim_leading)(const descent_tokenizer *tokenizer, uint32_t id, bool *leading);
} tokenizer_kind;

extern const tokenizer_kind tokenizer_chars;
extern const tokenizer_kind tokenizer_words;
extern const tokenizer_kind tokenizer_spm;
extern const tokenizer_kind tokenizer_merges; /* `llama` in files that have merges */
extern const tokenizer_kind tokenizer_bpe;
extern const tokenizer_kind tokenizer_unigram;

struct descent_tokenizer {
    const tokenizer_kind *kind;
    descent_tokenizer_info info;
    uint32_t count; /* tokens in the file; ids from here to info.vocab have neither spelling nor text */
    size_t longest_spelling, longest_piece;
    token_string *spellings; /* [count] valid UTF-8, none empty */
    token_string *pieces;    /* [count] empty where the token has no text */
    uint8_t *types;          /* [count] token_type; BOS, EOS and padding are control tokens whatever the file says */
    char *spelling_bytes, *piece_bytes;
    token_index index;      /* every spelling */
    token_prefixes special; /* control and unknown tokens: what parse_special finds */
    void *own;              /* the kind's */
};

/* Reads the tokenizer of a model whose vocabulary is `vocab`. *tokenizer is NULL, and the result DESCENT_OK, when the file
 * carries none. Nothing of the file is kept. */
descent_code tokenizer_load(const gguf_file *file, uint32_t vocab, descent_tokenizer **tokenizer, descent_status *status);
void tokenizer_free(descent_tokenizer *tokenizer);

/* For kinds whose special tokens may stand anywhere in a text: the first place from `from` where one is spelled, the
 * longest that begins there, and its id; `bytes` and TOKENIZER_NONE when there is none. */
size_t tokenizer_find_special(const descent_tokenizer *tokenizer, const char *text, size_t bytes, size_t from, uint32_t *id);

#endif
