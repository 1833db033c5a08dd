/* tokenizer_checks.h: tokenizers made of a few metadata keys, and what they must do, as cmocka assertions. Writers that are
 * passed in are destroyed. */
#ifndef TEST_TOKENIZER_CHECKS_H
#define TEST_TOKENIZER_CHECKS_H

#include "gguf_writer.h"
#include "tokenizer.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* A file with a tokenizer of this kind and nothing else yet. */
gguf_writer *writer_of(const char *model);
void add_tokens(gguf_writer *w, const char *const *tokens, size_t count);

/* Loads the tokenizer of what the writer holds. */
descent_code load_tokenizer(gguf_writer *w, uint32_t vocab, descent_tokenizer **t, descent_status *status);
/* The same, which must succeed; of a model whose vocabulary is no larger than the file's. */
descent_tokenizer *loaded(gguf_writer *w);
/* Loading fails with this code and a message that holds `part`. */
void refused(gguf_writer *w, descent_code code, const char *part);

void encodes_bytes(const descent_tokenizer *t, const char *text, size_t bytes, int flags, const uint32_t *ids, size_t count);
#define ENCODES(t, text, flags, ...)                                                                                           \
    encodes_bytes(t, text, strlen(text), flags, (const uint32_t[]){__VA_ARGS__}, COUNT(((const uint32_t[]){__VA_ARGS__})))
#define ENCODES_NOTHING(t, text) encodes_bytes(t, text, strlen(text), 0, NULL, 0)
/* Encoding fails as a bad argument with exactly this message. */
void fails(const descent_tokenizer *t, const char *text, size_t bytes, int flags, const char *message);

/* Everything the decoder gives for the ids, in `out`, which is returned. */
const char *decoded(const descent_tokenizer *t, const uint32_t *ids, size_t count, char *out);
#define DECODES(t, expected, ...)                                                                                              \
    do {                                                                                                                       \
        char out_[512];                                                                                                        \
        const uint32_t ids_[] = {__VA_ARGS__};                                                                                 \
        assert_string_equal(decoded(t, ids_, COUNT(ids_), out_), expected);                                                    \
    } while (0)

/* With some bytes changed, in many ways: the file loads, or the error says something, and what loads works. */
void survives_damage(gguf_writer *w, uint64_t seed);

void piece_is(const descent_tokenizer *t, uint32_t id, const char *text, bool has_text);

#endif
