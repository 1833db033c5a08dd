/* token_name.c: see token_name.h. */
#include "token_name.h"

#include "utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double LOGPROB_OF_NOTHING = -9999.0;

/* What a token is written as: its piece, or its spelling where it has none. */
static const char *text_of(const descent_tokenizer *tokenizer, uint32_t token, size_t *bytes)
{
    *bytes = 0;
    if (!tokenizer) return "";
    const char *text = descent_tokenizer_has_text(tokenizer, token) ? descent_tokenizer_piece(tokenizer, token, bytes) : "";
    return *bytes > 0 ? text : descent_tokenizer_spelling(tokenizer, token, bytes);
}

void token_name(json_text *out, const descent_tokenizer *tokenizer, uint32_t token)
{
    size_t bytes;
    const char *text = text_of(tokenizer, token, &bytes);
    if (bytes == 0) {
        char name[32];
        json_text_string(out, name, (size_t)snprintf(name, sizeof name, "token_id:%" PRIu32, token));
        return;
    }
    if (utf8_valid(text, bytes)) {
        json_text_string(out, text, bytes);
        return;
    }
    json_text_put(out, "\"bytes:");
    for (size_t i = 0; i < bytes; i++) {
        char escaped[8];
        json_text_bytes(out, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\\\x%02x", (unsigned char)text[i]));
    }
    json_text_put(out, "\"");
}

bool token_names_equal(const descent_tokenizer *tokenizer, uint32_t a, uint32_t b)
{
    size_t a_bytes, b_bytes;
    const char *a_text = text_of(tokenizer, a, &a_bytes), *b_text = text_of(tokenizer, b, &b_bytes);
    if (a_bytes == 0 || b_bytes == 0) return a == b;
    return a_bytes == b_bytes && memcmp(a_text, b_text, a_bytes) == 0;
}

void token_bytes(json_text *out, const descent_tokenizer *tokenizer, uint32_t token)
{
    size_t bytes = 0;
    const char *piece =
        tokenizer && descent_tokenizer_has_text(tokenizer, token) ? descent_tokenizer_piece(tokenizer, token, &bytes) : "";
    json_text_put(out, "[");
    for (size_t i = 0; i < bytes; i++) {
        if (i > 0) json_text_put(out, ",");
        json_text_unsigned(out, (unsigned char)piece[i]);
    }
    json_text_put(out, "]");
}

void token_logprob_value(json_text *out, float logprob)
{
    json_text_real(out, isinf(logprob) ? LOGPROB_OF_NOTHING : (double)logprob);
}
