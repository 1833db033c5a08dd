/* test_json_text.c: text written as JSON against jansson, which reads it back; numbers; tokens' names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_text.h"
#include "rng.h"
#include "served.h"
#include "token_name.h"
#include "utf8.h"

/* What was written, read by jansson. */
static json_t *read_back(const json_text *out)
{
    json_error_t error;
    assert_false(out->failed);
    json_t *value = json_loadb(out->text, out->bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (!value) fail_msg("%.*s: %s", (int)out->bytes, out->text, error.text);
    return value;
}

static void strings_come_back(void **state)
{
    (void)state;
    json_text out = {0};
    for (uint64_t round = 0; round < 300; round++) {
        rng r = rng_seeded(round);
        char text[64];
        size_t bytes = 0, most = rng_below(&r, 48);
        while (bytes < most) { /* every control character, quotes, and characters of each length */
            static const char *const wide[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\\", "\"", "/", "\x7f"};
            const char *piece = wide[rng_below(&r, 7)];
            if (rng_below(&r, 2)) {
                text[bytes++] = (char)rng_below(&r, 0x80);
            } else {
                memcpy(text + bytes, piece, strlen(piece));
                bytes += strlen(piece);
            }
        }
        json_text_clear(&out);
        json_text_string(&out, text, bytes);
        json_t *value = read_back(&out);
        assert_int_equal(json_string_length(value), bytes);
        assert_memory_equal(json_string_value(value), text, bytes);
        json_decref(value);
    }
    json_text_release(&out);
}

static const char *written_real(json_text *out, double value)
{
    json_text_clear(out);
    json_text_real(out, value);
    json_text_bytes(out, "", 1);
    return out->text;
}

static void reals_are_reals_and_give_floats_back(void **state)
{
    (void)state;
    json_text out = {0};
    assert_string_equal(written_real(&out, 0), "0.0");
    assert_string_equal(written_real(&out, -3), "-3.0");
    assert_string_equal(written_real(&out, 0.25), "0.25");
    assert_string_equal(written_real(&out, 1e30), "1e+30");
    assert_string_equal(written_real(&out, (double)NAN), "null");
    assert_string_equal(written_real(&out, (double)INFINITY), "null");
    rng r = rng_seeded(1);
    for (size_t i = 0; i < 2000; i++) {
        float value = (float)(rng_normal(&r) * exp(20 * rng_normal(&r)));
        assert_true(strtof(written_real(&out, (double)value), NULL) == value);
    }
    json_text_release(&out);
}

/* As printf writes nine digits, with a point; next to a tie and on one too. */
static void reals_are_written_as_printf_writes_them(void **state)
{
    (void)state;
    json_text out = {0};
    rng r = rng_seeded(2);
    static const double chosen[] = {1e-4,
                                    9.9999999949e-5,
                                    0.00012345,
                                    0.1,
                                    0.999999999,
                                    0.9999999999,
                                    1,
                                    9.99999999,
                                    9.9999999999,
                                    12.5,
                                    100,
                                    123456789,
                                    99999999,
                                    99999999.999,
                                    1e8,
                                    1e9,
                                    0.000999999999949,
                                    65536,
                                    1e-5,
                                    3.5e-310,
                                    1e22,
                                    0.0625,
                                    999.9999995,
                                    2097152.125,
                                    2097152.375,
                                    1.0000000005};
    size_t n = sizeof chosen / sizeof *chosen, others = 0;
    for (size_t i = 0; i < n + 20000; i++) {
        double value = i < n ? chosen[i] : rng_normal(&r) * pow(10, 6 * rng_normal(&r));
        for (int sign = -1; sign <= 1; sign += 2) {
            char printed[40];
            (void)snprintf(printed, sizeof printed, "%.9g", sign * value);
            if (!strpbrk(printed, ".e")) strcat(printed, ".0");
            const char *written = written_real(&out, sign * value);
            assert_true(fabs(strtod(written, NULL) - sign * value) <= 5.01e-9 * fabs(value) || fabs(value) < 1e-300);
            others += strcmp(written, printed) != 0;
        }
    }
    assert_int_equal(others, 0);
    json_text_release(&out);
}

static void integers_of_any_size(void **state)
{
    (void)state;
    json_text out = {0};
    json_text_integer(&out, INT64_MIN);
    json_text_put(&out, " ");
    json_text_integer(&out, 0);
    json_text_put(&out, " ");
    json_text_integer(&out, -10);
    json_text_put(&out, " ");
    json_text_unsigned(&out, UINT64_MAX);
    json_text_bytes(&out, "", 1);
    assert_string_equal(out.text, "-9223372036854775808 0 -10 18446744073709551615");
    json_text_release(&out);
}

/* Behind what is there, or in its place where nothing is; what it came from is empty and goes on. */
static void moved_text_is_behind_what_is_there(void **state)
{
    (void)state;
    json_text out = {0}, from = {0};
    json_text_move(&out, &from);
    for (int i = 0; i < 3; i++) {
        json_text_put(&from, "abc");
        json_text_move(&out, &from);
        assert_int_equal(from.bytes, 0);
    }
    assert_int_equal(out.bytes, 9);
    assert_memory_equal(out.text, "abcabcabc", 9);
    from.failed = true;
    json_text_move(&out, &from);
    assert_true(out.failed && !from.failed);
    json_text_clear(&out);
    from.failed = true;
    json_text_move(&out, &from);
    assert_true(out.failed && !from.failed);
    json_text_release(&out);
    json_text_release(&from);
}

static void named(const descent_tokenizer *tokenizer, uint32_t token, const char *name, const char *bytes)
{
    json_text out = {0};
    token_name(&out, tokenizer, token);
    json_t *value = read_back(&out);
    assert_string_equal(json_string_value(value), name);
    json_decref(value);
    json_text_clear(&out);
    token_bytes(&out, tokenizer, token);
    json_text_bytes(&out, "", 1);
    assert_string_equal(out.text, bytes);
    json_text_release(&out);
}

static void tokens_have_names(void **state)
{
    (void)state;
    model_set models = served_open();
    const descent_tokenizer *chars = served_find(&models, "chars")->tokenizer, *pair = served_find(&models, "pair")->tokenizer;
    named(chars, 'a' - 31, "a", "[97]");
    named(chars, 0, "\n", "[10]");
    named(chars, 97, "\xe2\x82\xac", "[226,130,172]");
    named(chars, 99, "<eos>", "[]");
    named(chars, 5000, "token_id:5000", "[]");
    named(pair, 3 + 0xe2, "bytes:\\xe2", "[226]");
    named(pair, 3 + 'x', "x", "[120]");
    named(pair, 1, "<s>", "[]");
    named(NULL, 7, "token_id:7", "[]");
    assert_true(token_names_equal(pair, 9, 9) && !token_names_equal(pair, 9, 10) && !token_names_equal(NULL, 1, 2));
    served_close(&models);
}

static void a_logprob_is_always_a_number(void **state)
{
    (void)state;
    json_text out = {0};
    token_logprob_value(&out, -INFINITY);
    json_text_put(&out, " ");
    token_logprob_value(&out, NAN);
    json_text_put(&out, " ");
    token_logprob_value(&out, -0.5f);
    json_text_bytes(&out, "", 1);
    assert_string_equal(out.text, "-9999.0 null -0.5");
    json_text_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_come_back),
        cmocka_unit_test(reals_are_reals_and_give_floats_back),
        cmocka_unit_test(reals_are_written_as_printf_writes_them),
        cmocka_unit_test(integers_of_any_size),
        cmocka_unit_test(moved_text_is_behind_what_is_there),
        cmocka_unit_test(tokens_have_names),
        cmocka_unit_test(a_logprob_is_always_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
