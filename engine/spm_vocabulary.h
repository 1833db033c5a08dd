/* spm_vocabulary.h: what SentencePiece's algorithms share beyond the normalizer: scores, byte fallback, how a piece reads
 * in a text, and how a text is cut at special tokens. */
#ifndef DESCENT_SPM_VOCABULARY_H
#define DESCENT_SPM_VOCABULARY_H

#include "spm_normalizer.h"
#include "tokenizer.h"

/* What `own` of a kind that uses the functions below starts with. */
typedef struct spm_vocabulary {
    spm_normalizer normalizer;
    token_search user_defined;
    float *scores; /* [count], finite */
    bool byte_fallback;
    uint32_t byte_tokens[256]; /* where byte_fallback */
    uint8_t *whole;            /* [count] see spm_find_words; NULL: texts are not cut into words */
} spm_vocabulary;

/* Reads the normalizer's keys, scores and byte tokens of a tokenizer whose spellings and types are loaded. What was read
 * before a failure is released by spm_vocabulary_free, which takes a zeroed one too. */
descent_code spm_vocabulary_load(spm_vocabulary *v, const descent_tokenizer *t, const gguf_file *file, descent_status *status);
void spm_vocabulary_free(spm_vocabulary *v);

/* Normal, user-defined and unused tokens: of the others the spelling is no text. */
bool spm_is_text(const descent_tokenizer *t, uint32_t id);

/* tokenizer_kind's `spell` and `trim_leading`. */
size_t spm_spell(const descent_tokenizer *t, uint32_t id, char *out);
size_t spm_trim_leading(const descent_tokenizer *t, uint32_t id, bool *leading);

/* Appends one piece of a normalized text. Where `id` is TOKENIZER_NONE it is unknown: its bytes where the vocabulary has
 * byte tokens, otherwise the unknown token, one for a run of them. *after_unknown starts as false and is kept between the
 * pieces of one text. */
descent_code spm_emit(const descent_tokenizer *t, const char *text, size_t bytes, uint32_t id, bool *after_unknown,
                      token_list *list, descent_status *status);

/* ---- Words ---- Where no token holds U+2581 after another character, as in almost every vocabulary, no merge reaches over
 * the start of a word, and byte-pair encoding may take one word after the other: the same ids from chains that are short. */

/* Merges the text of a token; returns the id where it becomes one symbol, otherwise TOKENIZER_NONE. */
typedef descent_code (*spm_merge_token)(void *work, const char *text, size_t bytes, uint32_t *id, descent_status *status);

/* Makes v->whole where words are apart: whether a token's own text merges into it, so that a word spelled so is that token
 * without a look at its merges. `t` has no token that is taken apart again after merging. */
descent_code spm_find_words(spm_vocabulary *v, const descent_tokenizer *t, spm_merge_token merge, void *work,
                            descent_status *status);
/* Where the word that begins at `from` < bytes ends; `bytes` where texts are not cut into words. */
size_t spm_word_end(const spm_vocabulary *v, const char *text, size_t bytes, size_t from);
/* The token that the word is whole, or TOKENIZER_NONE: it has to be merged. */
uint32_t spm_whole_word(const descent_tokenizer *t, const char *word, size_t bytes);

/* Encodes a text without special tokens; `work` is the caller's. */
typedef descent_code (*spm_encode_part)(void *work, const char *text, size_t bytes, token_list *list, descent_status *status);

/* Encodes a text: where special tokens are parsed, what stands between them part by part, each like a text of its own, a
 * space in front included: what the library gives for the parts, as models trained on such prompts were fed. */
descent_code spm_encode(const descent_tokenizer *t, const char *text, size_t bytes, const special_ranges *special,
                        spm_encode_part part, void *work, token_list *list, descent_status *status);

#endif
