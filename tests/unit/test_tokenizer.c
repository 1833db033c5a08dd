/* test_tokenizer.c: tokenizers of characters and of words through descent.h, texts in parts, and files that are wrong, on small
 * vocabularies whose answers are worked out by hand. test_tokenizer_spm.c and test_tokenizer_bpe.c do the same for the other
 * kinds; what they are built of is tested in test_utf8.c and test_tokenizer_sets.c. */
#include "gguf_writer.h"
#include "tokenizer_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- Characters -------------------------------------------------------------------------------------------------- */

static const char *const letters[] = {"\n",    "a",          "b", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                      "<eos>", "<eos><eos>", "#"};

static gguf_writer *chars_writer(void)
{
    gguf_writer *w = writer_of("chars");
    add_tokens(w, letters, COUNT(letters));
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", (const int32_t[]){1, 1, 1, 1, 1, 1, 3, 3, 3}, COUNT(letters));
    return w;
}

static void chars_there_and_back(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded(chars_writer());
    const descent_tokenizer_info *info = descent_tokenizer_describe(t);
    assert_string_equal(info->model, "chars");
    assert_int_equal(info->vocab, COUNT(letters));
    assert_true(info->bos == -1 && info->eos == -1 && info->pad == -1 && info->unknown == -1);
    assert_false(info->adds_bos || info->adds_eos);

    const char *text = "ab\xe2\x82\xac\n\xc3\xa4\xf0\x9f\x98\x80"
                       "a";
    ENCODES(t, text, 0, 1, 2, 4, 0, 3, 5, 1);
    ENCODES(t, text, DESCENT_ADD_SPECIAL | DESCENT_PARSE_SPECIAL, 1, 2, 4, 0, 3, 5, 1);
    DECODES(t, text, 1, 2, 4, 0, 3, 5, 1);
    ENCODES_NOTHING(t, "");
    encodes_bytes(t, NULL, 0, 0, NULL, 0);
    piece_is(t, 3, "\xc3\xa4", true);
    piece_is(t, 6, "", false);
    piece_is(t, 9, "", false);
    piece_is(t, UINT32_MAX, "", false);
    tokenizer_free(t);
}

static void chars_special_only_when_asked(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded(chars_writer());
    ENCODES(t, "a<eos>b<eos><eos><eos>", DESCENT_PARSE_SPECIAL, 1, 6, 2, 7, 6);
    fails(t, "ab<eos>", 7, 0, "the vocabulary has no character \"<\" (U+003C), which stands at byte 2 of the text");
    fails(t, "ab<eos", 6, DESCENT_PARSE_SPECIAL,
          "the vocabulary has no character \"<\" (U+003C), which stands at byte 2 of the text");
    ENCODES(t, "a#", DESCENT_PARSE_SPECIAL, 1, 8);
    fails(t, "a#", 2, 0, "the vocabulary has no character \"#\" (U+0023), which stands at byte 1 of the text");
    DECODES(t, "ab", 1, 6, 2);
    tokenizer_free(t);
}

static void chars_names_what_it_cannot_spell(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded(chars_writer());
    fails(t,
          "a\xc3\xb6"
          "b",
          4, 0, "the vocabulary has no character \"\xc3\xb6\" (U+00F6), which stands at byte 1 of the text");
    fails(t, "\xc3\xa4\xf0\x9f\x98\x81", 6, 0,
          "the vocabulary has no character \"\xf0\x9f\x98\x81\" (U+1F601), which stands at byte 2 of the text");
    fails(t, "a\0", 2, 0, "the vocabulary has no character \"\\x00\" (U+0000), which stands at byte 1 of the text");
    fails(t, "aa\xff", 3, 0, "the text is not valid UTF-8: byte 0xff at offset 2");
    fails(t, "a\xe2\x82", 3, 0, "the text is not valid UTF-8: byte 0xe2 at offset 1");
    fails(t, NULL, 3, 0, "no text, but 3 bytes of it");
    fails(t, "a", 1, 4, "flags 0x4: expected DESCENT_ADD_SPECIAL and DESCENT_PARSE_SPECIAL only");
    tokenizer_free(t);
}

static void chars_with_nul(void **state)
{
    (void)state;
    gguf_writer *w = writer_of("chars");
    gguf_writer_strings_bytes(w, "tokenizer.ggml.tokens", (const char *const[]){"\0", "x"}, (const size_t[]){1, 1}, 2);
    descent_tokenizer *t = loaded(w);
    encodes_bytes(t, "x\0\0", 3, 0, (const uint32_t[]){1, 0, 0}, 3);
    descent_decoder *d;
    size_t bytes;
    assert_int_equal(descent_decoder_create(t, &d, NULL), DESCENT_OK);
    const char *text = descent_decoder_push(d, 0, &bytes);
    assert_int_equal(bytes, 1);
    assert_memory_equal(text, "\0", 2);
    descent_decoder_destroy(d);
    descent_decoder_destroy(NULL);
    tokenizer_free(t);
    tokenizer_free(NULL);
}

static void chars_refuses_longer_tokens(void **state)
{
    (void)state;
    static const char *const bad[] = {"ab", "\xc3\xa4\xcc\x88"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        gguf_writer *w = writer_of("chars");
        add_tokens(w, (const char *const[]){"a", bad[i]}, 2);
        refused(w, DESCENT_BAD_FILE, "token 1 is");
    }
}

/* ---- Parts ------------------------------------------------------------------------------------------------------- */

static void parts_are(const descent_tokenizer *t, const descent_text_part *parts, size_t n, const uint32_t *ids, size_t count)
{
    uint32_t *tokens;
    size_t found;
    descent_status status;
    assert_int_equal(descent_tokenizer_encode_parts(t, parts, n, false, &tokens, &found, &status), DESCENT_OK);
    assert_int_equal(found, count);
    assert_memory_equal(tokens, ids, count * sizeof *ids);
    descent_free(tokens);
}

static void refuses_parts(const descent_tokenizer *t, const descent_text_part *parts, size_t n, const char *message)
{
    uint32_t *tokens = (uint32_t *)&tokens;
    size_t found = 77;
    descent_status status;
    assert_int_equal(descent_tokenizer_encode_parts(t, parts, n, false, &tokens, &found, &status), DESCENT_BAD_ARGUMENT);
    assert_string_equal(status.message, message);
    assert_ptr_equal(tokens, &tokens);
    assert_int_equal(found, 77);
}

/* A special token is one where all of it is in parts that may hold some, however many. */
static void parts_are_one_text(void **state)
{
    (void)state;
    static const char not_special[] = "the vocabulary has no character \"<\" (U+003C), which stands at byte 1 of the text";
    descent_tokenizer *t = loaded(chars_writer());
    const descent_text_part split[] = {
        {"a<e", 3, true}, {NULL, 0, false}, {"os>", 3, true}, {"b\xc3", 2, false}, {"\xa4", 1, true}};
    parts_are(t, split, 5, (const uint32_t[]){1, 6, 2, 3}, 4);
    parts_are(t, split, 0, (const uint32_t[]){0}, 0);
    const descent_text_part plain[] = {{"a<eos>", 6, false}, {"<eos>", 5, true}};
    refuses_parts(t, plain, 2, not_special);
    const descent_text_part across[] = {{"a<e", 3, true}, {"os>", 3, false}, {"<eos>", 5, true}};
    refuses_parts(t, across, 3, not_special);
    const descent_text_part beyond[] = {{"a", 1, true}, {"<eos", 4, false}, {">", 1, true}};
    refuses_parts(t, beyond, 3, not_special);
    const descent_text_part nothing[] = {{"a", 1, true}, {NULL, 2, true}};
    refuses_parts(t, nothing, 2, "part 1: no text, but 2 bytes of it");
    tokenizer_free(t);
}

/* ---- Words ------------------------------------------------------------------------------------------------------- */

static const char *const words[] = {"<eos>", "(", ")", "=", "min_10", "0", "1"};

static gguf_writer *words_writer(const char *separator)
{
    gguf_writer *w = writer_of("words");
    add_tokens(w, words, COUNT(words));
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", (const int32_t[]){3, 1, 1, 1, 1, 1, 1}, COUNT(words));
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 0);
    if (separator) gguf_writer_string(w, "tokenizer.descent.separator", separator);
    return w;
}

static void words_there_and_back(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded(words_writer(","));
    assert_int_equal(descent_tokenizer_describe(t)->eos, 0);
    ENCODES(t, "min_10,(,0,1,),=,", 0, 4, 1, 5, 6, 2, 3);
    ENCODES(t, "min_10,(,0,1,),=", 0, 4, 1, 5, 6, 2, 3);
    ENCODES_NOTHING(t, "");
    DECODES(t, "min_10,(,0,1,),=,", 4, 1, 5, 6, 2, 3);
    DECODES(t, "0,1,", 5, 0, 6);
    ENCODES(t, "0,<eos>,1,<eos>", DESCENT_PARSE_SPECIAL, 5, 0, 6, 0);
    parts_are(t, (const descent_text_part[]){{"0,", 2, false}, {"<eos>", 5, true}, {",1", 2, false}}, 3,
              (const uint32_t[]){5, 0, 6}, 3);
    refuses_parts(t, (const descent_text_part[]){{"0,<eos>,", 8, false}, {"<eos>", 5, true}}, 2,
                  "\"<eos>\" at byte 2 of the text is a special token, which plain text may not spell");
    piece_is(t, 4, "min_10,", true);
    piece_is(t, 0, "", false);
    tokenizer_free(t);
}

static void words_name_what_is_wrong(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded(words_writer(","));
    fails(t, "0,<eos>,", 8, 0, "\"<eos>\" at byte 2 of the text is a special token, which plain text may not spell");
    fails(t, "0,2,", 4, 0, "the vocabulary has no word \"2\", which stands at byte 2 of the text");
    fails(t, "0\n", 2, 0, "the vocabulary has no word \"0\\x0a\", which stands at byte 0 of the text");
    fails(t, "0,,1", 4, 0, "a word is missing at byte 2 of the text: two separators in a row");
    fails(t, ",", 1, 0, "a word is missing at byte 0 of the text: two separators in a row");
    fails(t, "0,\xff\0", 4, 0, "the vocabulary has no word \"\\xff\\x00\", which stands at byte 2 of the text");
    tokenizer_free(t);
}

static void words_with_a_long_separator(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded(words_writer(" | "));
    ENCODES(t, "0 | 1 | (", 0, 5, 6, 1);
    ENCODES(t, "0 | 1 | ", 0, 5, 6);
    DECODES(t, "0 | 1 | ", 5, 6);
    fails(t, "0 | 1 |", 7, 0, "the vocabulary has no word \"1 |\", which stands at byte 4 of the text");
    tokenizer_free(t);
}

static void words_refuse_what_could_not_be_read_back(void **state)
{
    (void)state;
    refused(words_writer(NULL), DESCENT_BAD_FILE, "tokenizer.descent.separator");
    refused(words_writer(""), DESCENT_BAD_FILE, "tokenizer.descent.separator has 0 bytes, expected 1..16");
    refused(words_writer("12345678901234567"), DESCENT_BAD_FILE, "has 17 bytes, expected 1..16");
    refused(words_writer("in"), DESCENT_BAD_FILE, "token 4 is \"min_10\", expected none that holds or runs into the separator");
    refused(words_writer("00"), DESCENT_BAD_FILE, "token 4 is \"min_10\"");
    refused(words_writer("=="), DESCENT_BAD_FILE, "token 3 is \"=\"");
}

static void ids_past_the_file_have_no_text(void **state)
{
    (void)state;
    descent_tokenizer *t;
    descent_status status;
    assert_int_equal(load_tokenizer(chars_writer(), 100, &t, &status), DESCENT_OK);
    assert_int_equal(descent_tokenizer_describe(t)->vocab, 100);
    piece_is(t, 99, "", false);
    DECODES(t, "a", 99, 1, 4000000000u);
    tokenizer_free(t);
}

/* ---- Files that are wrong ---------------------------------------------------------------------------------------- */

static void no_tokenizer_is_no_error(void **state)
{
    (void)state;
    descent_tokenizer *t = (descent_tokenizer *)&t;
    descent_status status;
    gguf_writer *w = gguf_writer_create();
    gguf_writer_string(w, "general.architecture", "nrgpt");
    assert_int_equal(load_tokenizer(w, 10, &t, &status), DESCENT_OK);
    assert_null(t);
    refused(writer_of("gpt9"), DESCENT_UNSUPPORTED, "tokenizer.ggml.model is \"gpt9\"; this version has: chars, words, llama");
    w = gguf_writer_create();
    gguf_writer_u32(w, "tokenizer.ggml.model", 3);
    refused(w, DESCENT_BAD_FILE, "tokenizer.ggml.model");
}

static gguf_writer *two_letters(void)
{
    gguf_writer *w = writer_of("chars");
    add_tokens(w, (const char *const[]){"a", "b"}, 2);
    return w;
}

static void tokens_are_checked(void **state)
{
    (void)state;
    refused(writer_of("chars"), DESCENT_BAD_FILE, "tokenizer.ggml.tokens");
    gguf_writer *w = writer_of("chars");
    add_tokens(w, NULL, 0);
    refused(w, DESCENT_BAD_FILE, "tokenizer.ggml.tokens has 0 tokens, expected 1..4194304");
    static const struct {
        const char *second, *message;
    } cases[] = {{"", "token 1 is empty"}, {"\xff", "token 1 is not valid UTF-8"}, {"a", "0 and 1 are both \"a\""}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        w = writer_of("chars");
        add_tokens(w, (const char *const[]){"a", cases[i].second}, 2);
        refused(w, DESCENT_BAD_FILE, cases[i].message);
    }
    static char long_token[65537];
    memset(long_token, 'x', 65536);
    w = writer_of("chars");
    add_tokens(w, (const char *const[]){"a", long_token}, 2);
    refused(w, DESCENT_BAD_FILE, "token 1 has 65536 bytes, expected at most 65535");
}

static void types_and_ids_are_checked(void **state)
{
    (void)state;
    gguf_writer *w = two_letters();
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", (const int32_t[]){1}, 1);
    refused(w, DESCENT_BAD_FILE, "tokenizer.ggml.token_type has 1 entries, expected one for each of the 2 tokens");
    static const int32_t types[] = {0, 7, -1, INT32_MIN};
    for (size_t i = 0; i < COUNT(types); i++) {
        w = two_letters();
        gguf_writer_i32s(w, "tokenizer.ggml.token_type", (const int32_t[]){1, types[i]}, 2);
        refused(w, DESCENT_BAD_FILE, "token 1 has type");
    }
    static const char *const keys[] = {"bos", "eos", "padding", "unknown"};
    for (size_t i = 0; i < COUNT(keys); i++) {
        char key[64];
        (void)snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", keys[i]);
        w = two_letters();
        gguf_writer_u32(w, key, 2);
        refused(w, DESCENT_BAD_FILE, key);
    }
    static const char *const adds[] = {"bos", "eos"};
    for (size_t i = 0; i < COUNT(adds); i++) {
        char key[64];
        (void)snprintf(key, sizeof key, "tokenizer.ggml.add_%s_token", adds[i]);
        w = two_letters();
        gguf_writer_bool(w, key, true);
        refused(w, DESCENT_BAD_FILE, key);
    }
}

static void damaged_files_never_crash(void **state)
{
    (void)state;
    survives_damage(words_writer(","), 9);
    survives_damage(chars_writer(), 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chars_there_and_back),
        cmocka_unit_test(chars_special_only_when_asked),
        cmocka_unit_test(chars_names_what_it_cannot_spell),
        cmocka_unit_test(chars_with_nul),
        cmocka_unit_test(chars_refuses_longer_tokens),
        cmocka_unit_test(parts_are_one_text),
        cmocka_unit_test(words_there_and_back),
        cmocka_unit_test(words_name_what_is_wrong),
        cmocka_unit_test(words_with_a_long_separator),
        cmocka_unit_test(words_refuse_what_could_not_be_read_back),
        cmocka_unit_test(ids_past_the_file_have_no_text),
        cmocka_unit_test(no_tokenizer_is_no_error),
        cmocka_unit_test(tokens_are_checked),
        cmocka_unit_test(types_and_ids_are_checked),
        cmocka_unit_test(damaged_files_never_crash),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
