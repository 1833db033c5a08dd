/* added_tokens.h: tokens that are found in a text before anything else is done with it, and the order in which Hugging
 * Face's tokenizers take a text apart: added tokens, normalization, added tokens that are looked for in normalized text,
 * and what is left to the model. */
#ifndef DESCENT_ADDED_TOKENS_H
#define DESCENT_ADDED_TOKENS_H

#include "token_search.h"
#include "tokenizer.h"

#define ADDED_FLAGS_KEY "tokenizer.descent.token_flags"

/* Bits of tokenizer.descent.token_flags. */
enum {
    ADDED_LSTRIP = 1,      /* takes the white space before it with it */
    ADDED_RSTRIP = 2,      /* and after it */
    ADDED_SINGLE_WORD = 4, /* not beside a letter, mark, digit or underscore */
    ADDED_NORMALIZED = 8,  /* looked for in normalized text, normalized itself */
    ADDED_OUTSIDE = 16     /* no token of the vocabulary that merges are of: never found but as an added one */
};

/* Tokens of types unknown, control and user defined. Immutable once loaded. */
typedef struct added_tokens {
    token_search as_is, normalized;
    uint8_t *flags; /* [count of tokens] */
} added_tokens;

/* What a kind does with the texts between added tokens. */
typedef struct added_steps {
    /* Turns *text, *bytes into the normalized text, kept in `work` until the next call. NULL: none. */
    descent_code (*normalize)(void *work, const char **text, size_t *bytes, descent_status *status);
    /* Appends the ids of a text, never empty, without added tokens; `first` where it begins the whole. */
    descent_code (*encode)(void *work, const char *text, size_t bytes, bool first, token_list *list, descent_status *status);
} added_steps;

/* Reads tokenizer.descent.token_flags of a tokenizer whose spellings and types are loaded; `work` is what
 * steps->normalize needs. What was read before a failure is released by added_tokens_free, which takes a zeroed one too. */
descent_code added_tokens_load(added_tokens *added, const descent_tokenizer *t, const gguf_file *file, const added_steps *steps,
                               void *work, descent_status *status);
void added_tokens_free(added_tokens *added);

/* Encodes a text. What spells a control or unknown token where `special` has none is text, in which no other added token is
 * looked for. */
descent_code added_tokens_encode(const added_tokens *added, const descent_tokenizer *t, const added_steps *steps, void *work,
                                 const char *text, size_t bytes, const special_ranges *special, token_list *list,
                                 descent_status *status);

#endif
