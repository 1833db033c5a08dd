/* test_tokenizer_spm.c: SentencePiece's kind through descent.h: merges by score, bytes, spaces, special tokens, decoding, and
 * the table of replacements, on a small vocabulary whose answers are worked out by hand, and on files that are wrong. The
 * comparison with the sentencepiece library is in tests/tokenizer. */
#include "gguf_writer.h"
#include "tokenizer_checks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- SentencePiece ----------------------------------------------------------------------------------------------- */

/* Ids of the vocabulary below. */
enum { UNK = 0, BOS, EOS, BYTE, A = 259, B, C, SPACE, AB, BC, SPACE_A, ABC, USER, UNUSED, OLD, PAD, SPM_COUNT };

typedef struct vocabulary {
    const char *tokens[SPM_COUNT];
    float scores[SPM_COUNT];
    int32_t types[SPM_COUNT];
    char bytes[256][7];
} vocabulary;

static vocabulary *make_vocabulary(void)
{
    static vocabulary v;
    static const struct {
        const char *text;
        float score;
        int type;
    } rest[] = {{"a", -20, 1},
                {"b", -20, 1},
                {"c", -20, 1},
                {"\xe2\x96\x81", -20, 1},
                {"ab", -2, 1},
                {"bc", -1, 1},
                {"\xe2\x96\x81"
                 "a",
                 -5, 1},
                {"abc", -3, 1},
                {"[bc]", 0, 4},
                {"cc", -4, 5},
                {"<old>", 0, 5},
                {"<pad>", 0, 3}};
    memset(&v, 0, sizeof v);
    v.tokens[UNK] = "<unk>", v.types[UNK] = 2;
    v.tokens[BOS] = "<s>", v.types[BOS] = 3;
    v.tokens[EOS] = "</s>", v.types[EOS] = 3;
    for (int b = 0; b < 256; b++) {
        (void)snprintf(v.bytes[b], sizeof v.bytes[b], "<0x%02X>", (unsigned)b);
        v.tokens[BYTE + b] = v.bytes[b];
        v.types[BYTE + b] = 6;
    }
    for (size_t i = 0; i < COUNT(rest); i++) {
        v.tokens[A + i] = rest[i].text;
        v.scores[A + i] = rest[i].score;
        v.types[A + i] = rest[i].type;
    }
    return &v;
}

/* The vocabulary with the ids of its special tokens and nothing else. */
static gguf_writer *spm_writer(const vocabulary *v)
{
    gguf_writer *w = writer_of("llama");
    add_tokens(w, v->tokens, SPM_COUNT);
    gguf_writer_f32s(w, "tokenizer.ggml.scores", v->scores, SPM_COUNT);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", v->types, SPM_COUNT);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", BOS);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", EOS);
    gguf_writer_u32(w, "tokenizer.ggml.padding_token_id", PAD);
    return w;
}

static gguf_writer *plain_spm_writer(bool add_space_prefix, bool remove_extra_whitespaces)
{
    gguf_writer *w = spm_writer(make_vocabulary());
    gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", add_space_prefix);
    gguf_writer_bool(w, "tokenizer.ggml.remove_extra_whitespaces", remove_extra_whitespaces);
    return w;
}

static void spm_merges_by_score_then_leftmost(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded(plain_spm_writer(false, false));
    ENCODES(t, "ab", 0, AB);
    ENCODES(t, "abc", 0, ABC); /* bc scores better than ab, then a + bc spells abc */
    ENCODES(t, "abab", 0, AB, AB);
    ENCODES(t, "aab", 0, A, AB);
    ENCODES(t, " ab", 0, SPACE, AB);
    ENCODES(t, " a b", 0, SPACE_A, SPACE, B);
    ENCODES(t, "[bc]a", 0, USER, A); /* a user-defined token takes no part in merges */
    ENCODES(t, "a[bcbc", 0, A, BYTE + '[', BC, BC);
    tokenizer_free(t);
}

/* "aaa" has two places for "aa" of the same score. */
static void spm_takes_the_leftmost_of_equals(void **state)
{
    (void)state;
    vocabulary *v = make_vocabulary();
    v->tokens[AB] = "aa";
    gguf_writer *w = spm_writer(v);
    gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", false);
    descent_tokenizer *t = loaded(w);
    ENCODES(t, "aaa", 0, AB, A);
    ENCODES(t, "aaaa", 0, AB, AB);
    tokenizer_free(t);
}

/* Not even where the vocabulary has what they and a neighbour spell. */
static void spm_never_merges_user_defined_tokens(void **state)
{
    (void)state;
    vocabulary *v = make_vocabulary();
    v->tokens[OLD] = "[bc]a";
    v->types[OLD] = TOKEN_NORMAL;
    v->tokens[UNUSED] = "a[bc]";
    v->types[UNUSED] = TOKEN_NORMAL;
    gguf_writer *w = spm_writer(v);
    gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", false);
    descent_tokenizer *t = loaded(w);
    ENCODES(t, "a[bc]a", 0, A, USER, A);
    tokenizer_free(t);
}

static void spm_spells_the_rest_in_bytes(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded(plain_spm_writer(false, false));
    ENCODES(t, "x", 0, BYTE + 'x');
    ENCODES(t,
            "a\xc3\xa4"
            "b",
            0, A, BYTE + 0xC3, BYTE + 0xA4, B);
    ENCODES(t, "\xff", 0, BYTE + 0xEF, BYTE + 0xBF, BYTE + 0xBD); /* what is no UTF-8 is U+FFFD, as in the library */
    ENCODES(t, "\xe2\x96\x81", 0, SPACE);
    encodes_bytes(t, "\0", 1, 0, (const uint32_t[]){BYTE}, 1);
    /* Neither control nor byte tokens are spelled by plain text. */
    ENCODES(t, "<s>", 0, BYTE + '<', BYTE + 's', BYTE + '>');
    ENCODES(t, "<0x0A>", 0, BYTE + '<', BYTE + '0', BYTE + 'x', BYTE + '0', BYTE + 'A', BYTE + '>');
    tokenizer_free(t);
}

static void spm_takes_unused_tokens_apart(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded(plain_spm_writer(false, false));
    ENCODES(t, "cc", 0, C, C);
    ENCODES(t, "ccc", 0, C, C, C);
    piece_is(t, UNUSED, "cc", true);
    tokenizer_free(t);
}

static void spm_unknown_without_bytes(void **state)
{
    (void)state;
    gguf_writer *w = writer_of("llama");
    add_tokens(w, (const char *const[]){"<unk>", "a"}, 2);
    gguf_writer_f32s(w, "tokenizer.ggml.scores", (const float[]){0, -1}, 2);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", (const int32_t[]){2, 1}, 2);
    gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", false);
    descent_tokenizer *t = loaded(w);
    assert_int_equal(descent_tokenizer_describe(t)->unknown, 0);
    ENCODES(t, "axyax", 0, 1, 0, 1, 0);
    piece_is(t, 0, " \xe2\x81\x87 ", true);
    DECODES(t, "a \xe2\x81\x87 a", 1, 0, 1);
    tokenizer_free(t);
}

static void spm_spaces(void **state)
{
    (void)state;
    static const struct {
        bool prefix, squeeze;
        const char *text;
        size_t count;
        uint32_t ids[8];
    } cases[] = {
        {true, true, "a", 1, {SPACE_A}},
        {true, true, "  a  b  ", 3, {SPACE_A, SPACE, B}},
        {true, true, "   ", 0, {0}},
        {true, true, "", 0, {0}},
        {true, false, " a ", 3, {SPACE, SPACE_A, SPACE}},
        {true, false, "b", 2, {SPACE, B}},
        {true, false, " ", 2, {SPACE, SPACE}},
        {true, false, "", 0, {0}},
        {false, true, "  a  b  ", 3, {A, SPACE, B}},
        {false, false, "  b ", 4, {SPACE, SPACE, B, SPACE}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        descent_tokenizer *t = loaded(plain_spm_writer(cases[i].prefix, cases[i].squeeze));
        encodes_bytes(t, cases[i].text, strlen(cases[i].text), 0, cases[i].ids, cases[i].count);
        tokenizer_free(t);
    }
}

static void spm_decodes_without_the_space_in_front(void **state)
{
    (void)state;
    static const struct {
        bool prefix, squeeze;
        const char *text, *text_of_b_first, *text_of_two_spaces;
    } cases[] = {{true, false, "a a", "b a", " b"},
                 {true, true, "a a", "b a", "b"},
                 {false, true, "a a", "b a", "b"},
                 {false, false, " a a", "b a", "  b"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        descent_tokenizer *t = loaded(plain_spm_writer(cases[i].prefix, cases[i].squeeze));
        DECODES(t, cases[i].text, BOS, SPACE_A, SPACE_A);
        DECODES(t, cases[i].text_of_b_first, B, EOS, SPACE_A);
        DECODES(t, cases[i].text_of_two_spaces, SPACE, SPACE, B);
        piece_is(t, SPACE_A, " a", true); /* the piece itself keeps it */
        tokenizer_free(t);
    }
}

static void spm_special_tokens(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded(plain_spm_writer(true, true));
    const descent_tokenizer_info *info = descent_tokenizer_describe(t);
    assert_true(info->bos == BOS && info->eos == EOS && info->pad == PAD && info->unknown == UNK);
    assert_true(info->adds_bos); /* llama.cpp's default */
    assert_false(info->adds_eos);
    ENCODES(t, "a", DESCENT_ADD_SPECIAL, BOS, SPACE_A);
    ENCODES(t, "", DESCENT_ADD_SPECIAL, BOS);
    ENCODES(t, "<s>a</s>", DESCENT_PARSE_SPECIAL, BOS, SPACE_A, EOS);
    /* Every part is a text of its own: a space in front of each, none around it. */
    ENCODES(t, "a <unk> a<pad>", DESCENT_PARSE_SPECIAL | DESCENT_ADD_SPECIAL, BOS, SPACE_A, UNK, SPACE_A, PAD);
    ENCODES(t, "<<s>", DESCENT_PARSE_SPECIAL, SPACE, BYTE + '<', BOS);
    const uint32_t silent[] = {BOS, EOS, PAD, SPM_COUNT};
    for (size_t i = 0; i < COUNT(silent); i++) piece_is(t, silent[i], "", false);
    piece_is(t, BYTE + 0xE2, "\xe2", true);
    const char *const spellings[] = {"<s>", "</s>", "<pad>", ""};
    for (size_t i = 0; i < COUNT(silent); i++) {
        size_t bytes;
        const char *spelling = descent_tokenizer_spelling(t, silent[i], &bytes);
        assert_int_equal(bytes, strlen(spellings[i]));
        assert_memory_equal(spelling, spellings[i], bytes);
    }
    tokenizer_free(t);
}

static void spm_adds_what_the_file_says(void **state)
{
    (void)state;
    gguf_writer *w = spm_writer(make_vocabulary());
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", false);
    gguf_writer_bool(w, "tokenizer.ggml.add_eos_token", true);
    descent_tokenizer *t = loaded(w);
    ENCODES(t, "a", DESCENT_ADD_SPECIAL, SPACE_A, EOS);
    ENCODES(t, "a", 0, SPACE_A);
    tokenizer_free(t);
}

/* A file may call its EOS a normal or user-defined token: plain text still must not end a text. */
static void eos_is_control_whatever_its_type(void **state)
{
    (void)state;
    for (int32_t type = 1; type <= 5; type++) {
        if (type == TOKEN_UNKNOWN) continue;
        vocabulary *v = make_vocabulary();
        v->types[EOS] = type;
        descent_tokenizer *t = loaded(spm_writer(v));
        ENCODES(t, "</s>", 0, SPACE, BYTE + '<', BYTE + '/', BYTE + 's', BYTE + '>');
        ENCODES(t, "</s>", DESCENT_PARSE_SPECIAL, EOS);
        piece_is(t, EOS, "", false);
        tokenizer_free(t);
    }
}

/* Many files pad with their unknown token. */
static void padding_has_no_text_even_where_it_is_unknown(void **state)
{
    (void)state;
    vocabulary *v = make_vocabulary();
    gguf_writer *w = writer_of("llama");
    add_tokens(w, v->tokens, SPM_COUNT);
    gguf_writer_f32s(w, "tokenizer.ggml.scores", v->scores, SPM_COUNT);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", v->types, SPM_COUNT);
    gguf_writer_u32(w, "tokenizer.ggml.padding_token_id", UNK);
    descent_tokenizer *t = loaded(w);
    assert_int_equal(descent_tokenizer_describe(t)->unknown, UNK);
    piece_is(t, UNK, "", false);
    DECODES(t, "a a", UNK, SPACE_A, UNK, SPACE_A);
    tokenizer_free(t);
}

static void spm_metadata_is_checked(void **state)
{
    (void)state;
    vocabulary *v = make_vocabulary();
    v->scores[A] = -INFINITY;
    refused(spm_writer(v), DESCENT_BAD_FILE, "the score of token 259 is not finite");
    v = make_vocabulary();
    v->tokens[BYTE + 17] = "<0x1z>";
    refused(spm_writer(v), DESCENT_BAD_FILE, "256 tokens are bytes, but only 255 of them are spelled <0x00>..<0xFF>");
    v = make_vocabulary();
    v->types[BYTE + 17] = TOKEN_NORMAL;
    refused(spm_writer(v), DESCENT_BAD_FILE, "the byte token <0x11> is missing, expected all 256 or none");

    gguf_writer *w = writer_of("llama");
    add_tokens(w, (const char *const[]){"a", "b"}, 2);
    refused(w, DESCENT_BAD_FILE, "tokenizer.ggml.token_type is missing");
    w = writer_of("llama");
    add_tokens(w, (const char *const[]){"a", "b"}, 2);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", (const int32_t[]){1, 1}, 2);
    gguf_writer_f32s(w, "tokenizer.ggml.scores", (const float[]){1}, 1);
    refused(w, DESCENT_BAD_FILE, "tokenizer.ggml.scores has 1 entries, expected one for each of the 2 tokens");
    w = writer_of("llama");
    add_tokens(w, (const char *const[]){"a", "b"}, 2);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", (const int32_t[]){1, 1}, 2);
    gguf_writer_f32s(w, "tokenizer.ggml.scores", (const float[]){1, 1}, 2);
    refused(w, DESCENT_BAD_FILE, "neither byte tokens nor an unknown token");
}

/* ---- Decoding ---------------------------------------------------------------------------------------------------- */

static void push_gives(descent_decoder *d, uint32_t id, const char *expected)
{
    size_t bytes;
    const char *text = descent_decoder_push(d, id, &bytes);
    assert_int_equal(bytes, strlen(expected));
    assert_string_equal(text, expected);
}

static void decoder_holds_back_and_starts_again(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded(plain_spm_writer(true, false));
    descent_decoder *d;
    size_t bytes;
    assert_int_equal(descent_decoder_create(t, &d, NULL), DESCENT_OK);
    for (int round = 0; round < 2; round++) {
        push_gives(d, SPACE_A, "a");
        push_gives(d, BYTE + 0xF0, "");
        push_gives(d, BYTE + 0x9F, "");
        push_gives(d, BYTE + 0x98, "");
        push_gives(d, BYTE + 0x80, "\xf0\x9f\x98\x80");
        push_gives(d, BYTE + 0xE2, "");
        push_gives(d, BYTE + 0x82, "");
        push_gives(d, SPACE_A, "\xef\xbf\xbd\xef\xbf\xbd a");
        push_gives(d, BYTE + 0xC3, "");
        push_gives(d, EOS, "\xef\xbf\xbd"); /* nothing goes on across a token without text */
        push_gives(d, BYTE + 0xA4, "\xef\xbf\xbd");
        push_gives(d, BYTE + 0xC3, "");
        assert_string_equal(descent_decoder_finish(d, &bytes), "\xef\xbf\xbd");
        assert_int_equal(bytes, 3);
        assert_string_equal(descent_decoder_finish(d, &bytes), "");
    }
    descent_decoder_destroy(d);
    tokenizer_free(t);
}

/* ---- The replacement table --------------------------------------------------------------------------------------- */

/* A double array of three keys over 256 + 256 units: "A" -> "a", "AB" -> "b c", "X" -> "" . */
static uint32_t trie[512];
static const char pool[] = "a\0b c\0";

static size_t make_table(uint8_t *blob)
{
    const uint32_t value = 0x80000000u, ends = 0x100;
    memset(trie, 0, sizeof trie);
    trie[0] = 1u << 10;                       /* the root: children at 1 ^ byte */
    trie[1 ^ 'A'] = 'A' | ends | 0x82u << 10; /* its children at (1 ^ 'A') ^ 0x82 ^ byte */
    trie[1 ^ 'X'] = 'X' | ends | 0x93u << 10;
    uint32_t a = (1 ^ 'A') ^ 0x82, x = (1 ^ 'X') ^ 0x93;
    trie[a] = value | 0;
    trie[a ^ 'B'] = 'B' | ends | 1u << 9 | 1u << 10; /* an offset in units of 256 */
    trie[a ^ 'B' ^ 256] = value | 2;
    trie[x] = value | 5;
    uint32_t trie_bytes = sizeof trie;
    memcpy(blob, &trie_bytes, 4);
    memcpy(blob + 4, trie, sizeof trie);
    memcpy(blob + 4 + sizeof trie, pool, sizeof pool);
    return 4 + sizeof trie + sizeof pool;
}

static gguf_writer *table_writer(const uint8_t *blob, size_t bytes)
{
    vocabulary *v = make_vocabulary();
    v->tokens[OLD] = "XA"; /* user-defined: the table has a say on neither letter */
    v->types[OLD] = TOKEN_USER_DEFINED;
    gguf_writer *w = spm_writer(v);
    gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", false);
    gguf_writer_bool(w, "tokenizer.ggml.remove_extra_whitespaces", true);
    gguf_writer_u8s(w, "tokenizer.ggml.precompiled_charsmap", blob, bytes);
    return w;
}

static void table_replaces_the_longest(void **state)
{
    (void)state;
    static uint8_t blob[4096];
    size_t bytes = make_table(blob);
    descent_tokenizer *t = loaded(table_writer(blob, bytes));
    ENCODES(t, "A", 0, A);
    ENCODES(t, "AB", 0, B, SPACE, C);
    ENCODES(t, "AAB", 0, AB, SPACE, C);
    ENCODES(t, "aXb", 0, AB);
    ENCODES(t, "B", 0, BYTE + 'B');
    ENCODES_NOTHING(t, "X");
    ENCODES_NOTHING(t, " X ");
    ENCODES(t, "[bc]A", 0, USER, A);
    ENCODES(t, "XXAA", 0, OLD, A);
    tokenizer_free(t);
    t = loaded(table_writer(blob, 0));
    ENCODES(t, "A", 0, BYTE + 'A');
    tokenizer_free(t);
}

/* A walk may lead out of the trie: there is nothing there. */
static void table_of_one_unit(void **state)
{
    (void)state;
    static const uint32_t blob[] = {4, 1u << 10, 0};
    descent_tokenizer *t = loaded(table_writer((const uint8_t *)blob, sizeof blob));
    ENCODES(t, "a\xff", 0, A, BYTE + 0xEF, BYTE + 0xBF, BYTE + 0xBD);
    tokenizer_free(t);
}

static void table_is_checked(void **state)
{
    (void)state;
    static uint8_t blob[4096];
    size_t bytes = make_table(blob);
    static const struct {
        uint32_t at, value;
        const char *message;
    } units[] = {
        {1 ^ 'A', 'A' | 0x100 | 0x1FFFFFu << 10, "points at no value"},
        {1 ^ 'A', 'A' | 0x100 | 1u << 10, "points at no value"},
        {(1 ^ 'A') ^ 0x82, 0x80000000u | (uint32_t)sizeof pool, "points at byte 7 of 7 of replacements"},
        {(1 ^ 'A') ^ 0x82, 0xFFFFFFFFu, "points at byte 2147483647 of 7 of replacements"},
    };
    for (size_t i = 0; i < COUNT(units); i++) {
        static uint8_t broken[4096];
        memcpy(broken, blob, bytes);
        memcpy(broken + 4 + 4 * units[i].at, &units[i].value, 4);
        refused(table_writer(broken, bytes), DESCENT_BAD_FILE, units[i].message);
    }
    static const uint32_t sizes[] = {0, 3, 2047, 0xFFFFFFFFu, 2060};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        memcpy(blob, &sizes[i], 4);
        refused(table_writer(blob, bytes), DESCENT_BAD_FILE, "bytes of trie in 2059 bytes, expected a multiple of 4 that fits");
    }
    refused(table_writer(blob, 3), DESCENT_BAD_FILE, "0 bytes of trie in 3 bytes");
    bytes = make_table(blob);
    blob[bytes - 1] = blob[bytes - 2] = 'z';
    refused(table_writer(blob, bytes), DESCENT_BAD_FILE, "does not end");
}

static void a_replacement_is_bounded(void **state)
{
    (void)state;
    static uint8_t blob[4096];
    size_t start = make_table(blob) - sizeof pool;
    for (size_t length = 255; length <= 256; length++) {
        memset(blob + start, 'a', length);
        blob[start + length] = 0;
        if (length == 256) {
            refused(table_writer(blob, start + length + 1), DESCENT_BAD_FILE,
                    "the replacement at byte 0 does not end within 255 bytes");
        } else {
            tokenizer_free(loaded(table_writer(blob, start + length + 1)));
        }
    }
}

static void damaged_files_never_crash(void **state)
{
    (void)state;
    static uint8_t blob[4096];
    survives_damage(table_writer(blob, make_table(blob)), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spm_merges_by_score_then_leftmost),
        cmocka_unit_test(spm_takes_the_leftmost_of_equals),
        cmocka_unit_test(spm_never_merges_user_defined_tokens),
        cmocka_unit_test(spm_spells_the_rest_in_bytes),
        cmocka_unit_test(spm_takes_unused_tokens_apart),
        cmocka_unit_test(spm_unknown_without_bytes),
        cmocka_unit_test(spm_spaces),
        cmocka_unit_test(spm_decodes_without_the_space_in_front),
        cmocka_unit_test(spm_special_tokens),
        cmocka_unit_test(spm_adds_what_the_file_says),
        cmocka_unit_test(eos_is_control_whatever_its_type),
        cmocka_unit_test(padding_has_no_text_even_where_it_is_unknown),
        cmocka_unit_test(spm_metadata_is_checked),
        cmocka_unit_test(decoder_holds_back_and_starts_again),
        cmocka_unit_test(table_replaces_the_longest),
        cmocka_unit_test(table_of_one_unit),
        cmocka_unit_test(table_is_checked),
        cmocka_unit_test(a_replacement_is_bounded),
        cmocka_unit_test(damaged_files_never_crash),
    };
    return cmocka_run_group_tests_name("tokenizer_spm", tests, NULL, NULL);
}
