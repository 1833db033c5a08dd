/* spm_normalizer.h: what SentencePiece does to a text before it cuts it into pieces: characters replaced by the model's
 * own table (for instance a form of NFKC), superfluous spaces removed, a space put in front, spaces turned into U+2581.
 * Serves every SentencePiece algorithm. */
#ifndef DESCENT_SPM_NORMALIZER_H
#define DESCENT_SPM_NORMALIZER_H

#include "tokenizer.h"

#define SPM_SPACE "\xE2\x96\x81" /* U+2581 */
#define SPM_SPACE_BYTES 3

typedef struct spm_normalizer {
    bool add_space_prefix, remove_extra_whitespaces;
    const token_search *user_defined; /* borrowed; what it finds is passed through as it stands */
    uint32_t *units;                  /* [n_units] a double-array trie over the bytes to be replaced; NULL: no table */
    uint32_t n_units;
    char *pool; /* replacements, each ended by a NUL */
    size_t pool_bytes;
} spm_normalizer;

/* Reads tokenizer.ggml.add_space_prefix (absent: true), remove_extra_whitespaces (absent: false) and
 * precompiled_charsmap (absent or empty: no table). */
descent_code spm_normalizer_load(spm_normalizer *n, const gguf_file *file, const token_search *user_defined,
                                 descent_status *status);
void spm_normalizer_free(spm_normalizer *n);

/* Replaces what is in *out by the normalized text: valid UTF-8 as long as the table's replacements are. */
descent_code spm_normalize(const spm_normalizer *n, const char *text, size_t bytes, text_buffer *out, descent_status *status);

#endif
