/* tokenizer_checks.c: see tokenizer_checks.h. */
#include "tokenizer_checks.h"

#include "rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

descent_code load_tokenizer(gguf_writer *w, uint32_t vocab, descent_tokenizer **t, descent_status *status)
{
    size_t bytes;
    uint8_t *data = gguf_writer_build(w, &bytes);
    gguf_file *file;
    assert_int_equal(gguf_open_memory(data, bytes, &file, status), DESCENT_OK);
    descent_code code = tokenizer_load(file, vocab, t, status);
    gguf_close(file);
    free(data); /* a tokenizer outlives its file */
    gguf_writer_destroy(w);
    return code;
}

descent_tokenizer *loaded(gguf_writer *w)
{
    descent_tokenizer *t = NULL;
    descent_status status;
    descent_code code = load_tokenizer(w, 1, &t, &status);
    if (code) print_error("%s\n", status.message);
    assert_int_equal(code, DESCENT_OK);
    assert_non_null(t);
    return t;
}

void refused(gguf_writer *w, descent_code code, const char *part)
{
    descent_tokenizer *t = (descent_tokenizer *)&t;
    descent_status status = {0};
    assert_int_equal(load_tokenizer(w, 1, &t, &status), code);
    assert_ptr_equal(t, &t); /* left as it was */
    if (!strstr(status.message, part)) print_error("\"%s\" is not in: %s\n", part, status.message);
    assert_non_null(strstr(status.message, part));
}

void encodes_bytes(const descent_tokenizer *t, const char *text, size_t bytes, int flags, const uint32_t *ids, size_t count)
{
    uint32_t *tokens;
    size_t n;
    descent_status status;
    descent_code code = descent_tokenizer_encode(t, text, bytes, flags, &tokens, &n, &status);
    if (code) print_error("%s\n", status.message);
    assert_int_equal(code, DESCENT_OK);
    assert_int_equal(n, count);
    if (count) assert_memory_equal(tokens, ids, count * sizeof *ids);
    descent_free(tokens);
}

void fails(const descent_tokenizer *t, const char *text, size_t bytes, int flags, const char *message)
{
    uint32_t *tokens = (uint32_t *)&tokens;
    size_t n = 77;
    descent_status status;
    assert_int_equal(descent_tokenizer_encode(t, text, bytes, flags, &tokens, &n, &status), DESCENT_BAD_ARGUMENT);
    assert_string_equal(status.message, message);
    assert_ptr_equal(tokens, &tokens);
    assert_int_equal(n, 77);
}

const char *decoded(const descent_tokenizer *t, const uint32_t *ids, size_t count, char *out)
{
    descent_decoder *d;
    descent_status status;
    size_t bytes, written = 0;
    assert_int_equal(descent_decoder_create(t, &d, &status), DESCENT_OK);
    for (size_t i = 0; i <= count; i++) {
        const char *text = i < count ? descent_decoder_push(d, ids[i], &bytes) : descent_decoder_finish(d, &bytes);
        assert_int_equal(text[bytes], 0);
        assert_true(utf8_valid(text, bytes));
        memcpy(out + written, text, bytes);
        written += bytes;
    }
    out[written] = '\0';
    descent_decoder_destroy(d);
    return out;
}

void piece_is(const descent_tokenizer *t, uint32_t id, const char *text, bool has_text)
{
    size_t bytes;
    const char *piece = descent_tokenizer_piece(t, id, &bytes);
    assert_int_equal(bytes, strlen(text));
    assert_memory_equal(piece, text, bytes);
    assert_int_equal(descent_tokenizer_has_text(t, id), has_text);
}

gguf_writer *writer_of(const char *model)
{
    gguf_writer *w = gguf_writer_create();
    gguf_writer_string(w, "general.architecture", "nrgpt");
    gguf_writer_string(w, "tokenizer.ggml.model", model);
    return w;
}

void add_tokens(gguf_writer *w, const char *const *tokens, size_t count)
{
    gguf_writer_strings(w, "tokenizer.ggml.tokens", tokens, count);
}

/* The file loads, or the error says something, and what loads works. */
static void exercise(const uint8_t *data, size_t bytes)
{
    gguf_file *file;
    descent_tokenizer *t = NULL;
    descent_status status = {0};
    if (gguf_open_memory(data, bytes, &file, &status)) return;
    descent_code code = tokenizer_load(file, 300, &t, &status);
    gguf_close(file);
    assert_int_equal(status.code, code);
    assert_int_equal(code != DESCENT_OK, status.message[0] != '\0');
    if (!t) return;
    static const char text[] = "ABX a<s>b[bc]  cc\xff 0,1,(,=, \xe2\x96\x81\xf0\x9f\x98\x80\0z";
    uint32_t *ids;
    size_t count;
    for (int flags = 0; flags < 4; flags++) {
        if (descent_tokenizer_encode(t, text, sizeof text, flags, &ids, &count, &status)) continue;
        char out[2048];
        (void)decoded(t, ids, count, out);
        for (size_t i = 0; i < count; i++) assert_true(ids[i] < descent_tokenizer_describe(t)->vocab);
        descent_free(ids);
    }
    tokenizer_free(t);
}

void survives_damage(gguf_writer *w, uint64_t seed)
{
    rng r = rng_seeded(seed);
    size_t bytes;
    uint8_t *data = gguf_writer_build(w, &bytes);
    for (int round = 0; round < 4000; round++) {
        uint8_t was[4];
        size_t at[4], changes = rng_between(&r, 1, 4);
        for (size_t i = 0; i < changes; i++) {
            at[i] = rng_below(&r, bytes);
            was[i] = data[at[i]];
            data[at[i]] = (uint8_t)(rng_below(&r, 2) ? rng_below(&r, 256) : was[i] ^ 1u << rng_below(&r, 8));
        }
        exercise(data, bytes);
        for (size_t i = changes; i-- > 0;) data[at[i]] = was[i];
    }
    exercise(data, bytes);
    free(data);
    gguf_writer_destroy(w);
}
