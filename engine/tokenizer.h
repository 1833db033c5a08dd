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
#include "token_search.h"
#include "tokenizer_sets.h"
#include "utf8.h"

#define TOKENIZER_MAX_TOKENS ((uint32_t)1 << 22)
#define TOKENIZER_MAX_TOKEN_BYTES ((size_t)65535)

/* tokenizer.ggml.token_type, by llama.cpp's numbers. */
typedef enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
} token_type;

/* ---- Kinds ------------------------------------------------------------------------------------------------------- */

/* Where in a text special tokens are found by their spelling: ranges in order, none touching the next. */
typedef struct special_ranges {
    const struct special_range {
        size_t start, end;
    } * list;
    size_t count;
} special_ranges;

/* Whether bytes start..end-1 of the text lie within a range. */
bool special_within(const special_ranges *where, size_t start, size_t end);

typedef struct tokenizer_kind {
    const char *name; /* tokenizer.ggml.model */
    utf8_replacement replacement;

    /* Reads and checks what this kind needs beyond the common part, into tokenizer->own. On failure `unload` cleans up. */
    descent_code (*load)(descent_tokenizer *tokenizer, const gguf_file *file, descent_status *status);
    void (*unload)(descent_tokenizer *tokenizer);

    /* Writes the piece of a token that has text, and returns its length; `out` may be NULL to ask for the length. */
    size_t (*spell)(const descent_tokenizer *tokenizer, uint32_t id, char *out);

    /* Appends the ids of a text to list, special tokens by their spelling where `special` has them. BOS and EOS are not
     * its business. May leave ids in the list when it fails. */
    descent_code (*encode)(const descent_tokenizer *tokenizer, const char *text, size_t bytes, const special_ranges *special,
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
    token_index index;    /* every spelling */
    token_search special; /* control and unknown tokens: what parse_special finds */
    void *own;            /* the kind's */
};

/* Reads the tokenizer of a model whose vocabulary is `vocab`. *tokenizer is NULL, and the result DESCENT_OK, when the file
 * carries none. Nothing of the file is kept. */
descent_code tokenizer_load(const gguf_file *file, uint32_t vocab, descent_tokenizer **tokenizer, descent_status *status);
void tokenizer_free(descent_tokenizer *tokenizer);

/* The control and unknown tokens that a text spells where it may, for kinds that look for them before all else. */
descent_code tokenizer_find_special(const descent_tokenizer *tokenizer, const char *text, size_t bytes,
                                    const special_ranges *special, token_matches *matches, descent_status *status);

#endif
