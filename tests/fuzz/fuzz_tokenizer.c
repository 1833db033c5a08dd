/* fuzz_tokenizer.c: libFuzzer's entry to the tokenizers. The input is a u16, that many bytes of text, and a GGUF file: it
 * loads or fails with a message, and what loads encodes any text into ids of its vocabulary and decodes them into UTF-8.
 * Byte-level BPE that has a token for every byte and alters no text gives back every byte of it. */
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) abort();
}

static void decode(descent_decoder *decoder, const uint32_t *ids, size_t count)
{
    size_t bytes;
    for (size_t i = 0; i <= count; i++) {
        const char *text = i < count ? descent_decoder_push(decoder, ids[i], &bytes) : descent_decoder_finish(decoder, &bytes);
        require(text && utf8_valid(text, bytes) && text[bytes] == '\0');
    }
}

/* Byte-level BPE with nothing that alters a text. */
static bool is_lossless(const gguf_file *file)
{
    static const char *const altering[] = {"tokenizer.descent.normalizer", "tokenizer.ggml.add_space_prefix",
                                           "tokenizer.descent.token_flags"};
    gguf_string model;
    descent_status status;
    for (size_t i = 0; i < sizeof altering / sizeof altering[0]; i++)
        if (gguf_has(file, altering[i])) return false;
    return !gguf_get_string(file, "tokenizer.ggml.model", &model, &status) && gguf_string_is(model, "gpt2");
}

/* Without a token for unknown bytes a byte-level vocabulary that lacks one does not load; with one, that is what it becomes. */
static bool has_every_byte(const descent_tokenizer *t)
{
    return descent_tokenizer_describe(t)->unknown < 0;
}

static void gives_back(const descent_tokenizer *t, const uint32_t *ids, size_t count, const char *text, size_t bytes)
{
    size_t at = 0, length;
    for (size_t i = 0; i < count; i++, at += length) {
        const char *piece = descent_tokenizer_piece(t, ids[i], &length);
        require(length <= bytes - at && (length == 0 || memcmp(piece, text + at, length) == 0));
    }
    require(at == bytes);
}

static void use(const descent_tokenizer *t, bool lossless, const char *text, size_t bytes)
{
    descent_decoder *decoder;
    descent_status status;
    if (descent_decoder_create(t, &decoder, &status)) return;
    for (int flags = 0; flags <= (DESCENT_ADD_SPECIAL | DESCENT_PARSE_SPECIAL); flags++) {
        uint32_t *ids;
        size_t count;
        descent_code code = descent_tokenizer_encode(t, text, bytes, flags, &ids, &count, &status);
        require(status.code == code && (code != DESCENT_OK) == (status.message[0] != '\0'));
        if (code) continue;
        for (size_t i = 0; i < count; i++) require(ids[i] < descent_tokenizer_describe(t)->vocab);
        decode(decoder, ids, count);
        if (lossless && flags == 0) gives_back(t, ids, count, text, bytes);
        descent_free(ids);
    }
    for (uint32_t id = 0; id < descent_tokenizer_describe(t)->vocab; id++) decode(decoder, &id, 1);
    descent_decoder_destroy(decoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint16_t text_bytes;
    if (size < sizeof text_bytes) return 0;
    memcpy(&text_bytes, data, sizeof text_bytes);
    data += sizeof text_bytes;
    size -= sizeof text_bytes;
    if (text_bytes > size) return 0;

    /* Copies of the exact size, so that reading one byte too far is seen. */
    size_t file_bytes = size - text_bytes;
    char *text = malloc(text_bytes ? text_bytes : 1);
    uint8_t *copy = malloc(file_bytes ? file_bytes : 1);
    gguf_file *file = NULL;
    descent_tokenizer *t = NULL;
    bool lossless = false;
    descent_status status;
    if (text && copy) {
        memcpy(text, data, text_bytes);
        memcpy(copy, data + text_bytes, file_bytes);
        if (!gguf_open_memory(copy, file_bytes, &file, &status)) {
            descent_code code = tokenizer_load(file, 40, &t, &status);
            require(status.code == code && (code != DESCENT_OK) == (status.message[0] != '\0'));
            lossless = !code && is_lossless(file) && has_every_byte(t);
        }
        gguf_close(file);
        if (t) use(t, lossless, text, text_bytes);
    }
    tokenizer_free(t);
    free(copy);
    free(text);
    return 0;
}
