/* test_tokenizer_bpe.c: the `gpt2` kind and `llama` with merges, through descent.h, on small vocabularies whose answers are
 * worked out by hand, and on files that are wrong. What they are built of is tested in test_bpe.c; the comparison with Hugging
 * Face's tokenizers and tiktoken is in tests/tokenizer. */
#include "gguf_writer.h"
#include "rng.h"
#include "tokenizer_checks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SPECIAL DESCENT_PARSE_SPECIAL

/* ---- A byte-level vocabulary ------------------------------------------------------------------------------------- */

typedef struct vocabulary {
    size_t count, n_merges;
    const char *tokens[512];
    int32_t types[512];
    uint8_t flags[512];
    const char *merges[64];
    const char *pre, *normalizer;
    bool ignore_merges, add_space_prefix;
    char letters[256][4];
} vocabulary;

static uint32_t add(vocabulary *v, const char *token, int type, unsigned flags)
{
    v->tokens[v->count] = token;
    v->types[v->count] = type;
    v->flags[v->count] = (uint8_t)flags;
    return (uint32_t)v->count++;
}

/* Tokens from 256 on. */
enum { TH = 256, THE, SP_T, SP_TH, AA, AAAA, ACUTE, FULL, END, PLAIN, STRIP, WORD, NORMAL_FORM, FREE };

/* Ids 0..255 are the bytes: those that print stand for themselves, the others are numbered from U+0100 on. */
static vocabulary *make_vocabulary(void)
{
    static const char *const merges[] = {"t h",        "th e",        "a a",  "aa aa",
                                         "\xc4\xa0 t", "\xc4\xa0t h", "a aa", "\xc3\x83 \xc2\xa9"};
    vocabulary *v = calloc(1, sizeof *v);
    assert_non_null(v);
    unsigned next = 0x100;
    for (unsigned b = 0; b < 256; b++) {
        bool prints = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
        unsigned c = prints ? b : next++;
        (void)snprintf(v->letters[b], 4, c < 0x80 ? "%c" : "%c%c", c < 0x80 ? c : 0xC0 | c >> 6, 0x80 | (c & 0x3F));
        (void)add(v, v->letters[b], TOKEN_NORMAL, 0);
    }
    (void)add(v, "th", TOKEN_NORMAL, 0);
    (void)add(v, "the", TOKEN_NORMAL, 0);
    (void)add(v, "\xc4\xa0t", TOKEN_NORMAL, 0);
    (void)add(v, "\xc4\xa0th", TOKEN_NORMAL, 0);
    (void)add(v, "aa", TOKEN_NORMAL, 0);
    (void)add(v, "aaaa", TOKEN_NORMAL, 0);
    (void)add(v, "\xc3\x83\xc2\xa9", TOKEN_NORMAL, 0); /* e with acute */
    (void)add(v, "aaa", TOKEN_NORMAL, 0);              /* what "a aa" makes, never made because "a a" comes first */
    (void)add(v, "<|end|>", TOKEN_CONTROL, 0);
    (void)add(v, "the \xc3\xa9", TOKEN_USER_DEFINED, 0);
    (void)add(v, "<strip>", TOKEN_CONTROL, 1 | 2);
    (void)add(v, "[w]x", TOKEN_USER_DEFINED, 4);
    (void)add(v, "<e\xcc\x81>", TOKEN_USER_DEFINED, 8);
    assert_int_equal(v->count, FREE);
    v->n_merges = COUNT(merges);
    memcpy(v->merges, merges, sizeof merges);
    v->pre = "gpt-2";
    return v;
}

static gguf_writer *write(vocabulary *v)
{
    gguf_writer *w = writer_of("gpt2");
    add_tokens(w, v->tokens, v->count);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", v->types, v->count);
    gguf_writer_strings(w, "tokenizer.ggml.merges", v->merges, v->n_merges);
    if (v->pre) gguf_writer_string(w, "tokenizer.ggml.pre", v->pre);
    gguf_writer_u8s(w, "tokenizer.descent.token_flags", v->flags, v->count);
    if (v->normalizer) gguf_writer_string(w, "tokenizer.descent.normalizer", v->normalizer);
    if (v->ignore_merges) gguf_writer_bool(w, "tokenizer.descent.ignore_merges", true);
    if (v->add_space_prefix) gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", true);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", END);
    return w;
}

/* The vocabulary is used up. */
static descent_tokenizer *loaded_from(vocabulary *v)
{
    descent_tokenizer *t = loaded(write(v));
    free(v);
    return t;
}

/* ---- gpt2 -------------------------------------------------------------------------------------------------------- */

static void merges_in_their_order(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded_from(make_vocabulary());
    ENCODES(t, "the", 0, THE);
    ENCODES(t, " the", 0, ' ', THE); /* "t h" comes before " t" */
    ENCODES(t, " thx", 0, ' ', TH, 'x');
    ENCODES(t, " tx", 0, SP_T, 'x');
    ENCODES(t, "aaa", 0, AA, 'a');
    ENCODES(t, "aaaaaaa", 0, AAAA, AA, 'a');
    ENCODES(t, "\xc3\xa9", 0, ACUTE);
    ENCODES(t, "the the", 0, THE, ' ', THE);
    ENCODES_NOTHING(t, "");
    encodes_bytes(t, "a\0b", 3, 0, (const uint32_t[]){'a', 0, 'b'}, 3);
    DECODES(t, "the \xc3\xa9", THE, ' ', ACUTE);
    DECODES(t, "the \xc3\xa9!", PLAIN, '!');
    DECODES(t, "\xc3\xa9\xef\xbf\xbd", 0xC3, 0xA9, 0xC3);
    piece_is(t, END, "", false);
    piece_is(t, SP_TH, " th", true);
    tokenizer_free(t);
}

/* A chain past the length where the heap takes over gives what short ones do. */
static void long_words_merge_alike(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded_from(make_vocabulary());
    enum { LETTERS = 4003 };
    char *text = malloc(LETTERS);
    uint32_t *ids = malloc((LETTERS / 4 + 2) * sizeof *ids);
    assert_true(text && ids);
    memset(text, 'a', LETTERS);
    for (size_t i = 0; i < LETTERS / 4; i++) ids[i] = AAAA;
    ids[LETTERS / 4] = AA;
    ids[LETTERS / 4 + 1] = 'a';
    encodes_bytes(t, text, LETTERS, 0, ids, LETTERS / 4 + 2);
    free(text);
    free(ids);
    tokenizer_free(t);
}

static void ignoring_merges_takes_what_is_a_token(void **state)
{
    (void)state;
    vocabulary *v = make_vocabulary();
    v->ignore_merges = true;
    descent_tokenizer *t = loaded_from(v);
    ENCODES(t, "aaa", 0, FULL);
    ENCODES(t, " th", 0, SP_TH);
    ENCODES(t, "aaab", 0, AA, 'a', 'b');
    tokenizer_free(t);
}

static void space_in_front(void **state)
{
    (void)state;
    vocabulary *v = make_vocabulary();
    v->add_space_prefix = true;
    descent_tokenizer *t = loaded_from(v);
    ENCODES(t, "tx", 0, SP_T, 'x');
    ENCODES(t, " tx", 0, SP_T, 'x');
    ENCODES(t, "tx<|end|>ty", SPECIAL, SP_T, 'x', END, SP_T, 'y');
    ENCODES_NOTHING(t, "");
    tokenizer_free(t);
}

static void any_bytes_come_back(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-2", "llama-bpe", "qwen2", "smollm", "gpt-4o"};
    for (size_t n = 0; n < COUNT(names); n++) {
        vocabulary *v = make_vocabulary();
        v->pre = names[n];
        descent_tokenizer *t = loaded_from(v);
        rng r = rng_seeded(n);
        for (int round = 0; round < 300; round++) {
            char text[80];
            size_t bytes = rng_below(&r, sizeof text), count, at = 0;
            for (size_t i = 0; i < bytes; i++)
                text[i] = (char)(rng_below(&r, 2) ? rng_below(&r, 256) : (unsigned char)"the a\n\xc3\xa9"[rng_below(&r, 8)]);
            uint32_t *ids;
            assert_int_equal(descent_tokenizer_encode(t, text, bytes, 0, &ids, &count, NULL), DESCENT_OK);
            for (size_t i = 0; i < count; i++) {
                size_t length;
                const char *piece = descent_tokenizer_piece(t, ids[i], &length);
                assert_true(length > 0 && at + length <= bytes);
                assert_memory_equal(piece, text + at, length);
                at += length;
            }
            assert_int_equal(at, bytes);
            descent_free(ids);
        }
        tokenizer_free(t);
    }
}

/* Broken bytes are one pre-token, merged as any other. */
static void broken_bytes_stand_apart(void **state)
{
    (void)state;
    vocabulary *v = make_vocabulary();
    v->merges[v->n_merges++] = "\xc3\xbf \xc3\xbe"; /* 0xFF 0xFE */
    uint32_t both = add(v, "\xc3\xbf\xc3\xbe", TOKEN_NORMAL, 0);
    descent_tokenizer *t = loaded_from(v);
    ENCODES(t, "t\xff\xfeh", 0, 't', both, 'h');
    ENCODES(t, "\xff\xfe\xff", 0, both, 0xFF);
    ENCODES(t, "the\xe2\x82", 0, THE, 0xE2, 0x82);
    tokenizer_free(t);
}

static void normalizes_to_form_c(void **state)
{
    (void)state;
    vocabulary *v = make_vocabulary();
    v->normalizer = "nfc";
    descent_tokenizer *t = loaded_from(v);
    ENCODES(t, "e\xcc\x81", 0, ACUTE);
    ENCODES(t,
            "\xff"
            "e\xcc\x81\xff",
            0, 0xFF, ACUTE, 0xFF);
    ENCODES(t, "<e\xcc\x81>", 0, NORMAL_FORM);
    ENCODES(t, "<\xc3\xa9>", 0, NORMAL_FORM); /* found as it is normalized */
    /* U+11A7 is one before the first Hangul vowel's final consonant and belongs to no syllable. */
    ENCODES(t, "\xea\xb0\x80\xe1\x86\xa7\xea\xb0\x80\xe1\x86\xa8", 0, 0xEA, 0xB0, 0x80, 0xE1, 0x86, 0xA7, 0xEA, 0xB0, 0x81);
    ENCODES(t, "\xe1\x86\xa7\xe1\x86\xa7\x65\xcc\x81", 0, 0xE1, 0x86, 0xA7, 0xE1, 0x86, 0xA7, ACUTE);
    tokenizer_free(t);
    t = loaded_from(make_vocabulary());
    ENCODES(t, "<\xc3\xa9>", 0, '<', ACUTE, '>');
    ENCODES(t, "<e\xcc\x81>", 0, NORMAL_FORM);
    tokenizer_free(t);
}

/* ---- Added tokens ------------------------------------------------------------------------------------------------ */

static void added_tokens_are_found_first(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded_from(make_vocabulary());
    ENCODES(t, "the<|end|>the", SPECIAL, THE, END, THE);
    ENCODES(t, "<|end|", SPECIAL, '<', '|', 'e', 'n', 'd', '|');
    ENCODES(t, "x<|end|>", 0, 'x', '<', '|', 'e', 'n', 'd', '|', '>');
    ENCODES(t, "athe \xc3\xa9t", 0, 'a', PLAIN, 't');
    ENCODES(t, "athe \xc3\xa9t", SPECIAL, 'a', PLAIN, 't');
    tokenizer_free(t);
}

static void added_tokens_take_white_space(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded_from(make_vocabulary());
    ENCODES(t, "a \n<strip>\xe3\x80\x80 a", SPECIAL, 'a', STRIP, 'a');
    ENCODES(t, "  <strip>  <strip>  ", SPECIAL, STRIP, STRIP);
    ENCODES(t, "<strip> <strip>", 0, '<', 's', 't', 'r', 'i', 'p', '>', ' ', '<', 's', 't', 'r', 'i', 'p', '>');
    tokenizer_free(t);
}

static void added_tokens_that_are_words_stand_alone(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded_from(make_vocabulary());
    ENCODES(t, "[w]x", 0, WORD);
    ENCODES(t, "-[w]x.", 0, '-', WORD, '.');
    ENCODES(t, "a[w]x", 0, 'a', '[', 'w', ']', 'x');
    ENCODES(t, "[w]x_", 0, '[', 'w', ']', 'x', '_');
    ENCODES(t, "[w]x\xc3\xa9", 0, '[', 'w', ']', 'x', ACUTE);
    ENCODES(t, "[w]x\xff", 0, WORD, 0xFF); /* a broken byte is no letter */
    tokenizer_free(t);
}

/* A token of white space that one before it took with its own is none of its own, as for Hugging Face's tokenizers. */
static void white_space_taken_once(void **state)
{
    (void)state;
    vocabulary *v = make_vocabulary();
    uint32_t both = add(v, "  ", TOKEN_USER_DEFINED, 1 | 2), left = add(v, "\t", TOKEN_USER_DEFINED, 1);
    descent_tokenizer *t = loaded_from(v);
    ENCODES(t, "x       ", 0, 'x', both);
    ENCODES(t, "      x    ", 0, both, 'x', both);
    ENCODES(t, "   \tx", 0, both, 'x');
    ENCODES(t, " \tx", 0, left, 'x');
    ENCODES(t, "x\t\tx", 0, 'x', left, left, 'x');
    tokenizer_free(t);
}

/* Of those that begin at one place the longest, and after it the next that does not overlap. */
static void the_leftmost_and_of_those_the_longest(void **state)
{
    (void)state;
    vocabulary *v = make_vocabulary();
    uint32_t one = add(v, "<<", TOKEN_USER_DEFINED, 0), two = add(v, "<<=", TOKEN_CONTROL, 0), three = add(v, "=>>", 4, 0);
    descent_tokenizer *t = loaded_from(v);
    ENCODES(t, "<<<=", 0, one, '<', '=');
    ENCODES(t, "<<=>>", SPECIAL, two, '>', '>');
    ENCODES(t, "<<=>>", 0, '<', '<', '=', '>', '>'); /* the special token is text, and no other is looked for in it */
    ENCODES(t, "<=>>", 0, '<', three);
    tokenizer_free(t);
}

/* ---- llama with merges ------------------------------------------------------------------------------------------- */

/* Ids: 0 unknown, 1 BOS, 2 EOS, 3..258 bytes, then these. */
enum { BYTE = 3, L_SP = 259, L_A, L_B, L_AB, L_BA, L_SP_A, L_USER, L_NORMAL, L_WORD, L_OUTSIDE };

static gguf_writer *merges_writer(const char *prefix, bool add_space, bool bytes)
{
    static char names[256][8];
    const char *tokens[300] = {"<unk>", "<s>", "</s>"};
    int32_t types[300] = {TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_CONTROL};
    uint8_t flags[300] = {0};
    float scores[300] = {0};
    for (unsigned b = 0; b < 256; b++) {
        (void)snprintf(names[b], sizeof names[b], bytes ? "<0x%02X>" : "{%02X}", b);
        tokens[BYTE + b] = names[b];
        types[BYTE + b] = bytes ? TOKEN_BYTE : TOKEN_NORMAL;
    }
    static const char *const more[] = {"\xe2\x96\x81", "a", "b", "ab", "ba", "\xe2\x96\x81\x61", "[u]", "=n=", "w", "o"};
    for (size_t i = 0; i < COUNT(more); i++) {
        tokens[L_SP + i] = more[i];
        types[L_SP + i] = L_SP + i < L_USER ? TOKEN_NORMAL : TOKEN_USER_DEFINED;
    }
    flags[L_NORMAL] = 8;
    flags[L_WORD] = 4;
    flags[L_OUTSIDE] = 4 | 16;
    /* By the scores "ba" would come first. */
    scores[L_BA] = 5;
    static const char *const merges[] = {"a b", "b a", "\xe2\x96\x81 a"};
    size_t count = L_SP + COUNT(more);
    gguf_writer *w = writer_of("llama");
    add_tokens(w, tokens, count);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", types, count);
    gguf_writer_f32s(w, "tokenizer.ggml.scores", scores, count);
    gguf_writer_strings(w, "tokenizer.ggml.merges", merges, COUNT(merges));
    gguf_writer_u8s(w, "tokenizer.descent.token_flags", flags, count);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", add_space);
    if (prefix) gguf_writer_string(w, "tokenizer.descent.space_prefix", prefix);
    return w;
}

static void llama_merges_by_its_table(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded(merges_writer(NULL, false, true));
    ENCODES(t, "bab", 0, L_B, L_AB);
    ENCODES(t, "baba", 0, L_B, L_AB, L_A);
    ENCODES(t, " a", 0, L_SP_A);
    ENCODES(t, "c\xff", 0, BYTE + 'c', BYTE + 0xFF);
    ENCODES(t, "a", DESCENT_ADD_SPECIAL, 1, L_A);
    ENCODES(t, "a</s>b", SPECIAL, L_A, 2, L_B);
    ENCODES(t, "[u]a", 0, L_USER, L_A);
    /* Where it may not stand as an added token, a character is what the model's own vocabulary makes of it. */
    ENCODES(t, "w o", 0, L_WORD, L_SP, L_OUTSIDE);
    ENCODES(t, "aw ao", 0, L_A, L_WORD, L_SP_A, BYTE + 'o');
    tokenizer_free(t);
    t = loaded(merges_writer(NULL, false, false));
    ENCODES(t, "acda\xff", 0, L_A, 0, L_A, 0); /* one unknown for a run */
    tokenizer_free(t);
}

/* The normalizer puts a space in front of every text between tokens, the pre-tokenizer only where none is. */
static void llama_puts_spaces_in_front(void **state)
{
    (void)state;
    descent_tokenizer *t = loaded(merges_writer("prepend", true, true));
    ENCODES(t, "a", 0, L_SP_A);
    ENCODES(t, " a", 0, L_SP, L_SP_A);
    ENCODES(t, "a[u]a", 0, L_SP_A, L_USER, L_SP_A);
    ENCODES(t, "b=n=", 0, L_SP, L_B, '=' + BYTE, 'n' + BYTE, '=' + BYTE); /* normalized it is "_=n=" */
    ENCODES(t, "=n=b", 0, L_NORMAL, L_B);
    ENCODES_NOTHING(t, "");
    DECODES(t, "a a", L_SP_A, L_SP_A);
    tokenizer_free(t);
    t = loaded(merges_writer("metaspace", true, true));
    ENCODES(t, " a", 0, L_SP_A);
    ENCODES(t, "a[u]a", 0, L_SP_A, L_USER, L_SP_A);
    ENCODES(t, "a=n=a", 0, L_SP_A, L_NORMAL, L_SP_A);
    ENCODES(t, "\xe2\x96\x81\x61", 0, L_SP_A);
    tokenizer_free(t);
    t = loaded(merges_writer("metaspace_first", true, true));
    ENCODES(t, "a[u]a", 0, L_SP_A, L_USER, L_A);
    ENCODES(t, "[u]a", 0, L_USER, L_A);
    ENCODES(t, "b a", 0, L_SP, L_B, L_SP_A);
    tokenizer_free(t);
    t = loaded(merges_writer("metaspace", false, true));
    ENCODES(t, "a a", 0, L_A, L_SP_A);
    tokenizer_free(t);
}

/* ---- Files that are wrong ---------------------------------------------------------------------------------------- */

static void refused_as(vocabulary *v, descent_code code, const char *part)
{
    refused(write(v), code, part);
    free(v);
}

static void with_merge(const char *merge, const char *part)
{
    vocabulary *v = make_vocabulary();
    v->merges[v->n_merges++] = merge;
    refused_as(v, DESCENT_BAD_FILE, part);
}

static void merges_are_checked(void **state)
{
    (void)state;
    with_merge("th", "tokenizer.ggml.merges: merge 8 is \"th\", expected two tokens and one space");
    with_merge("t h e", "merge 8 is \"t h e\", expected two tokens and one space");
    with_merge(" th", "merge 8 is \" th\", expected two tokens and one space");
    with_merge("th ", "merge 8 is \"th \", expected two tokens and one space");
    with_merge("", "merge 8 is \"\", expected two tokens and one space");
    with_merge("\xe4\xb8\xad a", "merge 8 needs \"\xe4\xb8\xad\", which is no token");
    with_merge("a \xe4\xb8\xad", "merge 8 needs \"\xe4\xb8\xad\", which is no token");
    with_merge("a the", "merge 8 needs \"athe\", which is no token");
    with_merge("t h", "merges 0 and 8 are the same pair");
    with_merge("<|end| >", "merge 8 needs \"<|end|\", which is no token");
    with_merge("<|end|> a", "merge 8 needs \"<|end|>\", token 264, whose type 3 never merges");
    vocabulary *v = make_vocabulary();
    (void)add(v,
              "\xc3\xa9"
              "e",
              TOKEN_USER_DEFINED, 0);
    v->merges[v->n_merges++] = "\xc3\xa9 e";
    refused_as(v, DESCENT_BAD_FILE,
               "merge 8 needs \"\xc3\xa9"
               "e\", a user-defined token that is not printable ASCII");
    v = make_vocabulary();
    static char longest[8194];
    memset(longest, 'a', sizeof longest - 1);
    longest[4000] = ' ';
    v->merges[v->n_merges++] = longest;
    refused_as(v, DESCENT_BAD_FILE, "merge 8 has 8193 bytes, expected at most 4097");
}

static void byte_level_metadata_is_checked(void **state)
{
    (void)state;
    vocabulary *v = make_vocabulary();
    v->tokens['q'] = "qq";
    refused_as(v, DESCENT_BAD_FILE,
               "tokenizer.ggml.tokens: the token of byte 0x71 is missing, expected all 256 or an unknown token");
    v = make_vocabulary();
    v->types['q'] = TOKEN_CONTROL;
    refused_as(v, DESCENT_BAD_FILE, "the token of byte 0x71 is missing");
    v = make_vocabulary();
    v->types['q'] = TOKEN_BYTE;
    refused_as(v, DESCENT_BAD_FILE, "token 113 has type 6, which the \"gpt2\" tokenizer does not have");
    v = make_vocabulary();
    (void)add(v, "a b", TOKEN_NORMAL, 0);
    refused_as(v, DESCENT_BAD_FILE, "token 269 is \"a b\", expected characters of GPT-2's byte alphabet");
    v = make_vocabulary();
    v->pre = NULL;
    refused_as(v, DESCENT_BAD_FILE, "key tokenizer.ggml.pre is missing");
    v = make_vocabulary();
    v->pre = "default";
    refused_as(v, DESCENT_UNSUPPORTED, "tokenizer.ggml.pre is \"default\"; this version has: gpt-2, llama-bpe,");
    v = make_vocabulary();
    v->normalizer = "nfkc";
    refused_as(v, DESCENT_UNSUPPORTED, "tokenizer.descent.normalizer is \"nfkc\"; this version has: none, nfc");
    v = make_vocabulary();
    v->flags[END] = 32;
    refused_as(v, DESCENT_BAD_FILE, "token_flags: token 264 has flags 32, expected a sum of 1, 2, 4, 8 and 16");
    v = make_vocabulary();
    v->flags['q'] = 1;
    refused_as(v, DESCENT_BAD_FILE, "token_flags: token 113 has flags, but its type 1 is none that is added");
    v = make_vocabulary();
    v->normalizer = "nfc";
    (void)add(v, "<\xc3\xa9>", TOKEN_USER_DEFINED, 8);
    refused_as(v, DESCENT_BAD_FILE, "tokens: 268 and 269 are both found as \"<\xc3\xa9>\"");
}

/* A file with all but one key, and with a key of a wrong type. */
static void keys_are_needed(void **state)
{
    (void)state;
    vocabulary *v = make_vocabulary();
    gguf_writer *w = writer_of("gpt2");
    add_tokens(w, v->tokens, v->count);
    gguf_writer_string(w, "tokenizer.ggml.pre", "gpt-2");
    refused(w, DESCENT_BAD_FILE, "tokenizer.ggml.token_type is missing, which the \"gpt2\" tokenizer needs");
    w = writer_of("gpt2");
    add_tokens(w, v->tokens, v->count);
    gguf_writer_string(w, "tokenizer.ggml.pre", "gpt-2");
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", v->types, v->count);
    refused(w, DESCENT_BAD_FILE, "key tokenizer.ggml.merges is missing");
    w = writer_of("gpt2");
    add_tokens(w, v->tokens, v->count);
    gguf_writer_string(w, "tokenizer.ggml.pre", "gpt-2");
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", v->types, v->count);
    gguf_writer_i32s(w, "tokenizer.ggml.merges", v->types, 3);
    refused(w, DESCENT_BAD_FILE, "key tokenizer.ggml.merges");
    w = writer_of("gpt2");
    add_tokens(w, v->tokens, v->count);
    gguf_writer_string(w, "tokenizer.ggml.pre", "gpt-2");
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", v->types, v->count);
    gguf_writer_strings(w, "tokenizer.ggml.merges", v->merges, v->n_merges);
    gguf_writer_u8s(w, "tokenizer.descent.token_flags", v->flags, v->count - 1);
    refused(w, DESCENT_BAD_FILE, "tokenizer.descent.token_flags has 268 entries, expected one for each of the 269 tokens");
    w = write(v);
    gguf_writer_u32(w, "tokenizer.descent.ignore_merges", 1);
    refused(w, DESCENT_BAD_FILE, "key tokenizer.descent.ignore_merges");
    free(v);
}

static void llama_metadata_beside_merges_is_checked(void **state)
{
    (void)state;
    gguf_writer *w = merges_writer(NULL, true, true);
    gguf_writer_bool(w, "tokenizer.ggml.remove_extra_whitespaces", true);
    refused(w, DESCENT_UNSUPPORTED,
            "tokenizer.ggml.merges beside tokenizer.ggml.precompiled_charsmap or remove_extra_whitespaces");
    refused(merges_writer("always", true, true), DESCENT_UNSUPPORTED,
            "tokenizer.descent.space_prefix is \"always\"; this version has: prepend, metaspace, metaspace_first");
}

/* A key that only another kind reads would be passed over. */
static void keys_of_other_kinds_are_refused(void **state)
{
    (void)state;
    vocabulary *v = make_vocabulary();
    gguf_writer *w = write(v);
    gguf_writer_string(w, "tokenizer.descent.space_prefix", "prepend");
    refused(w, DESCENT_UNSUPPORTED, "tokenizer.descent.space_prefix is there, which the \"gpt2\" tokenizer does not have");
    free(v);
    w = merges_writer(NULL, true, true);
    gguf_writer_string(w, "tokenizer.descent.normalizer", "nfc");
    refused(w, DESCENT_UNSUPPORTED, "tokenizer.descent.normalizer is there, which the \"llama\" tokenizer does not have");
    w = writer_of("llama");
    gguf_writer_u8s(w, "tokenizer.descent.token_flags", (const uint8_t[]){0}, 1);
    refused(w, DESCENT_UNSUPPORTED,
            "tokenizer.descent.token_flags is there, which the \"llama\" tokenizer without merges does not have");
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

static void *encode_often(void *tokenizer)
{
    static const char text[] = "the aaa the \xc3\xa9<|end|> [w]x e\xcc\x81 \xff";
    uint32_t *first = NULL;
    size_t first_count = 0;
    bool same = true;
    for (int i = 0; i < 200; i++) {
        uint32_t *ids;
        size_t count;
        if (descent_tokenizer_encode(tokenizer, text, sizeof text - 1, SPECIAL, &ids, &count, NULL)) return NULL;
        if (!first) first = ids, first_count = count;
        same = same && count == first_count && memcmp(ids, first, count * sizeof *ids) == 0;
        if (ids != first) descent_free(ids);
    }
    descent_free(first);
    return same ? tokenizer : NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    vocabulary *v = make_vocabulary();
    v->normalizer = "nfc";
    descent_tokenizer *t = loaded_from(v);
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT(threads); i++) assert_int_equal(pthread_create(&threads[i], NULL, encode_often, t), 0);
    for (size_t i = 0; i < COUNT(threads); i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, t);
    }
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_in_their_order),
        cmocka_unit_test(long_words_merge_alike),
        cmocka_unit_test(ignoring_merges_takes_what_is_a_token),
        cmocka_unit_test(space_in_front),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(broken_bytes_stand_apart),
        cmocka_unit_test(normalizes_to_form_c),
        cmocka_unit_test(added_tokens_are_found_first),
        cmocka_unit_test(added_tokens_take_white_space),
        cmocka_unit_test(added_tokens_that_are_words_stand_alone),
        cmocka_unit_test(white_space_taken_once),
        cmocka_unit_test(the_leftmost_and_of_those_the_longest),
        cmocka_unit_test(llama_merges_by_its_table),
        cmocka_unit_test(llama_puts_spaces_in_front),
        cmocka_unit_test(merges_are_checked),
        cmocka_unit_test(byte_level_metadata_is_checked),
        cmocka_unit_test(keys_are_needed),
        cmocka_unit_test(llama_metadata_beside_merges_is_checked),
        cmocka_unit_test(keys_of_other_kinds_are_refused),
        cmocka_unit_test(threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests_name("tokenizer_bpe", tests, NULL, NULL);
}
