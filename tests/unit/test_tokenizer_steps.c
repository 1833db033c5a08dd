/* test_tokenizer_steps.c: encoding takes steps in proportion to the text, whatever the text. The engine's tokenizers are
 * compiled a second time for this program (tests/CMakeLists.txt) so that every basic block calls the counter below; what they
 * ask of memcpy and its like counts by the byte. A text twice as long may take little more than twice the steps (n log n is
 * 2.2 times at these sizes); what is quadratic takes four times. Counted, not timed: the same on every machine. */
#include "gguf_writer.h"
#include "rng.h"
#include "tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- The counter ------------------------------------------------------------------------------------------------- */

static uint64_t steps;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    steps++;
}

/* The linker gives these names to the calls of the compiled tokenizers, and of this program (--wrap). */
void *__real_memcpy(void *to, const void *from, size_t bytes);
void *__wrap_memcpy(void *to, const void *from, size_t bytes);
void *__wrap_memcpy(void *to, const void *from, size_t bytes)
{
    steps += bytes;
    return __real_memcpy(to, from, bytes);
}

void *__real_memmove(void *to, const void *from, size_t bytes);
void *__wrap_memmove(void *to, const void *from, size_t bytes);
void *__wrap_memmove(void *to, const void *from, size_t bytes)
{
    steps += bytes;
    return __real_memmove(to, from, bytes);
}

void *__real_memset(void *to, int value, size_t bytes);
void *__wrap_memset(void *to, int value, size_t bytes);
void *__wrap_memset(void *to, int value, size_t bytes)
{
    steps += bytes;
    return __real_memset(to, value, bytes);
}

int __real_memcmp(const void *a, const void *b, size_t bytes);
int __wrap_memcmp(const void *a, const void *b, size_t bytes);
int __wrap_memcmp(const void *a, const void *b, size_t bytes)
{
    steps += bytes;
    return __real_memcmp(a, b, bytes);
}

void *__real_memchr(const void *in, int value, size_t bytes);
void *__wrap_memchr(const void *in, int value, size_t bytes);
void *__wrap_memchr(const void *in, int value, size_t bytes)
{
    const char *found = __real_memchr(in, value, bytes);
    steps += found ? (size_t)(found - (const char *)in) + 1 : bytes;
    return (void *)found;
}

size_t __real_strlen(const char *text);
size_t __wrap_strlen(const char *text);
size_t __wrap_strlen(const char *text)
{
    size_t length = __real_strlen(text);
    steps += length;
    return length;
}

/* What is copied where memory cannot grow in place. */
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes)
{
    steps += memory ? bytes : 0;
    return __real_realloc(memory, bytes);
}

/* The matcher of patterns stops before each item of its pattern and says where it stands: its way there is counted. */
static int count_way(pcre2_callout_block *block, void *last)
{
    PCRE2_SPTR *at = last, now = block->subject + block->current_position;
    steps += 1 + (*at && now >= *at ? (uint64_t)(now - *at) : *at ? (uint64_t)(*at - now) : 0);
    *at = now;
    return 0;
}

pcre2_code *__real_pcre2_compile_8(PCRE2_SPTR pattern, PCRE2_SIZE length, uint32_t options, int *error, PCRE2_SIZE *offset,
                                   pcre2_compile_context *context);
pcre2_code *__wrap_pcre2_compile_8(PCRE2_SPTR pattern, PCRE2_SIZE length, uint32_t options, int *error, PCRE2_SIZE *offset,
                                   pcre2_compile_context *context);
pcre2_code *__wrap_pcre2_compile_8(PCRE2_SPTR pattern, PCRE2_SIZE length, uint32_t options, int *error, PCRE2_SIZE *offset,
                                   pcre2_compile_context *context)
{
    return __real_pcre2_compile_8(pattern, length, options | PCRE2_AUTO_CALLOUT, error, offset, context);
}

pcre2_match_context *__real_pcre2_match_context_create_8(pcre2_general_context *general);
pcre2_match_context *__wrap_pcre2_match_context_create_8(pcre2_general_context *general);
pcre2_match_context *__wrap_pcre2_match_context_create_8(pcre2_general_context *general)
{
    static PCRE2_SPTR last;
    pcre2_match_context *context = __real_pcre2_match_context_create_8(general);
    last = NULL;
    (void)pcre2_set_callout(context, count_way, (void *)&last);
    return context;
}

/* ---- Vocabularies ------------------------------------------------------------------------------------------------ */

#define LONGEST 40 /* letters of the longest token */

typedef struct vocabulary {
    gguf_writer *writer;
    size_t count;
    const char *tokens[512];
    int32_t types[512];
    float scores[512];
    char spellings[512][LONGEST + 1];
} vocabulary;

static void add(vocabulary *v, const char *token, int type, float score)
{
    (void)snprintf(v->spellings[v->count], sizeof v->spellings[0], "%s", token);
    v->tokens[v->count] = v->spellings[v->count];
    v->types[v->count] = type;
    v->scores[v->count++] = score;
}

/* What every SentencePiece vocabulary below has: a token of every number of "a" up to LONGEST, so that merges go on and on
 * and many tokens begin at every place; some of them unused where asked for; words; special and user-defined tokens that begin
 * alike. */
static void add_pieces(vocabulary *v, bool unused)
{
    char run[LONGEST + 1] = "";
    add(v, "<unk>", TOKEN_UNKNOWN, 0);
    add(v, "<s>", TOKEN_CONTROL, 0);
    add(v, "<s><s>", TOKEN_CONTROL, 0);
    for (size_t i = 0; i < LONGEST; i++) {
        run[i] = 'a';
        add(v, run, unused && i % 7 == 5 ? TOKEN_UNUSED : TOKEN_NORMAL, -(float)(LONGEST - i));
    }
    static const char *const more[] = {
        "b",  "t",   "h",       "e", "th", "the", "\xe2\x96\x81", "\xe2\x96\x81the", "\xe2\x96\x81\xe2\x96\x81",
        "ab", "aba", "\xc3\xa4"};
    for (size_t i = 0; i < COUNT(more); i++) add(v, more[i], TOKEN_NORMAL, -5.0f - (float)i);
    add(v, "[x]", TOKEN_USER_DEFINED, 0);
    add(v, "[[[[[[[[[[[[[x]", TOKEN_USER_DEFINED, 0);
}

static void add_bytes(vocabulary *v)
{
    for (unsigned b = 0; b < 256; b++) {
        char token[8];
        (void)snprintf(token, sizeof token, "<0x%02X>", b);
        add(v, token, TOKEN_BYTE, 0);
    }
}

static descent_tokenizer *loaded(vocabulary *v, const char *model)
{
    gguf_writer_string(v->writer, "tokenizer.ggml.model", model);
    gguf_writer_strings(v->writer, "tokenizer.ggml.tokens", v->tokens, v->count);
    gguf_writer_i32s(v->writer, "tokenizer.ggml.token_type", v->types, v->count);
    gguf_writer_f32s(v->writer, "tokenizer.ggml.scores", v->scores, v->count);
    size_t bytes;
    uint8_t *data = gguf_writer_build(v->writer, &bytes);
    gguf_file *file;
    descent_tokenizer *t = NULL;
    descent_status status;
    assert_int_equal(gguf_open_memory(data, bytes, &file, &status), DESCENT_OK);
    descent_code code = tokenizer_load(file, 1, &t, &status);
    if (code) print_error("%s\n", status.message);
    assert_int_equal(code, DESCENT_OK);
    gguf_close(file);
    free(data);
    gguf_writer_destroy(v->writer);
    free(v);
    return t;
}

static vocabulary *empty(void)
{
    vocabulary *v = calloc(1, sizeof *v);
    assert_non_null(v);
    v->writer = gguf_writer_create();
    return v;
}

static descent_tokenizer *sentencepiece(const char *model, bool bytes, bool squeeze)
{
    vocabulary *v = empty();
    add_pieces(v, squeeze);
    if (bytes) add_bytes(v);
    gguf_writer_bool(v->writer, "tokenizer.ggml.remove_extra_whitespaces", squeeze);
    return loaded(v, model);
}

/* Merges of "a" as many times as the longest token has, each by one more, and doubled. */
static void add_merges(vocabulary *v, bool word_starts)
{
    static char merges[2 * LONGEST][2 * LONGEST + 2];
    const char *list[2 * LONGEST];
    size_t count = 0;
    for (int i = 2; i <= LONGEST; i++) {
        (void)snprintf(merges[count++], sizeof merges[0], "%.*s a", i - 1, v->tokens[v->count - 1]);
        if (i % 2 == 0 && i > 2)
            (void)snprintf(merges[count++], sizeof merges[0], "%.*s %.*s", i / 2, v->tokens[v->count - 1], i / 2,
                           v->tokens[v->count - 1]);
    }
    for (size_t i = 0; i < count; i++) list[i] = merges[i];
    list[count++] = "t h";
    list[count++] = "th e";
    if (word_starts) list[count++] = "\xe2\x96\x81 the";
    gguf_writer_strings(v->writer, "tokenizer.ggml.merges", list, count);
}

static void add_runs(vocabulary *v)
{
    char run[LONGEST + 1] = "a";
    for (size_t i = 1; i < LONGEST; i++) {
        run[i] = 'a';
        add(v, run, TOKEN_NORMAL, 0);
    }
}

static void add_found(vocabulary *v)
{
    add(v, "<s>", TOKEN_CONTROL, 0);
    add(v, "<s><s>", TOKEN_CONTROL, 0);
    add(v, "[x]", TOKEN_USER_DEFINED, 0);
    add(v, "[[[[[[[[[[[[[x]", TOKEN_USER_DEFINED, 0);
    add(v, "\t", TOKEN_USER_DEFINED, 0);
}

/* Flags of the tokens of add_found, the first of which is `first`: all strip, the longer special one must stand alone. */
static void add_flags(vocabulary *v, size_t first, unsigned normalized)
{
    uint8_t flags[512] = {0};
    for (size_t i = first; i < first + 5; i++) flags[i] = (uint8_t)(1 | 2 | (i % 2 ? normalized : 0));
    flags[first + 1] |= 4;
    gguf_writer_u8s(v->writer, "tokenizer.descent.token_flags", flags, v->count);
}

static descent_tokenizer *byte_level(const char *pre, const char *normalizer)
{
    vocabulary *v = empty();
    unsigned next = 0x100;
    for (unsigned b = 0; b < 256; b++) {
        bool prints = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
        unsigned c = prints ? b : next++;
        char letter[3] = {(char)(c < 0x80 ? c : 0xC0 | c >> 6), (char)(c < 0x80 ? 0 : 0x80 | (c & 0x3F)), 0};
        add(v, letter, TOKEN_NORMAL, 0);
    }
    size_t found = v->count;
    add_found(v);
    add(v, "th", TOKEN_NORMAL, 0);
    add(v, "the", TOKEN_NORMAL, 0);
    add_runs(v);
    add_merges(v, false);
    add_flags(v, found, 8);
    gguf_writer_string(v->writer, "tokenizer.ggml.pre", pre);
    gguf_writer_string(v->writer, "tokenizer.descent.normalizer", normalizer);
    return loaded(v, "gpt2");
}

static descent_tokenizer *by_merges(const char *space_prefix, bool bytes)
{
    vocabulary *v = empty();
    add(v, "<unk>", TOKEN_UNKNOWN, 0);
    size_t found = v->count;
    add_found(v);
    static const char *const more[] = {"a", "b", "t", "h", "e", "th", "the", "\xe2\x96\x81", "\xe2\x96\x81the"};
    for (size_t i = 0; i < COUNT(more); i++) add(v, more[i], TOKEN_NORMAL, 0);
    if (bytes) add_bytes(v);
    add_runs(v);
    add_merges(v, true);
    add_flags(v, found, 8);
    gguf_writer_string(v->writer, "tokenizer.descent.space_prefix", space_prefix);
    return loaded(v, "llama");
}

/* ---- Texts ------------------------------------------------------------------------------------------------------- */

#define SHORTER ((size_t)1 << 13)
#define MOST_TIMES 2.4 /* as many steps for 2 * SHORTER bytes as for SHORTER */

static void repeat(char *text, size_t bytes, const char *unit)
{
    size_t length = strlen(unit);
    for (size_t i = 0; i < bytes; i++) text[i] = unit[i % length];
}

static uint64_t count_steps(const descent_tokenizer *t, const char *text, size_t bytes, int flags)
{
    uint32_t *ids;
    size_t count;
    descent_status status;
    steps = 0;
    descent_code code = descent_tokenizer_encode(t, text, bytes, flags, &ids, &count, &status);
    uint64_t taken = steps;
    if (code) print_error("%s\n", status.message);
    assert_int_equal(code, DESCENT_OK);
    descent_free(ids);
    return taken;
}

/* The text is `bytes` long and its first half a text too. What its first `few` bytes take is taken off: memory by the size
 * of the vocabulary is not the text's. */
static void expect_linear(const descent_tokenizer *t, const char *text, size_t bytes, size_t few, const char *what)
{
    for (int flags = 0; flags <= DESCENT_PARSE_SPECIAL; flags += DESCENT_PARSE_SPECIAL) {
        uint64_t fixed = count_steps(t, text, few, flags);
        uint64_t one = count_steps(t, text, bytes / 2, flags), two = count_steps(t, text, bytes, flags);
        assert_true(one > bytes / 2); /* the counter works */
        double times = (double)(two - fixed) / (double)(one - fixed);
        if (times > MOST_TIMES)
            print_error("%s, %s, flags %d: %.2f times the steps for twice the text\n", descent_tokenizer_describe(t)->model,
                        what, flags, times);
        assert_true(times <= MOST_TIMES);
    }
}

static void any_text_is_linear(const descent_tokenizer *t)
{
    static const char *const units[] = {"a",
                                        "b",
                                        " ",
                                        "ab",
                                        "aab",
                                        "the ",
                                        "a ",
                                        "\xc3\xa4",
                                        "\xe2\x96\x81",
                                        "<s>",
                                        "<s><s>",
                                        "<s>a",
                                        "<",
                                        "[",
                                        "[x]",
                                        "\xff",
                                        "\xe2\x82",
                                        "\n",
                                        " \n",
                                        "0",
                                        "A",
                                        "Aa",
                                        "aA",
                                        "!",
                                        "'s",
                                        "\t ",
                                        "a\xcc\x81",
                                        "\xcc\x81",
                                        "\xcc\x81\xcc\xa3",
                                        "\xe6\x9d\xb1",
                                        "\xf0\x9f\x98\x80",
                                        "\xea\xb0\x80",
                                        "\xe1\x84\x80",
                                        "<0x41>"};
    char *text = malloc(2 * SHORTER);
    assert_non_null(text);
    for (size_t i = 0; i < COUNT(units); i++) {
        repeat(text, 2 * SHORTER, units[i]);
        expect_linear(t, text, 2 * SHORTER, 1, units[i]);
    }
    rng r = rng_seeded(1);
    for (size_t i = 0; i < 2 * SHORTER; i++) text[i] = (char)rng_below(&r, 256);
    expect_linear(t, text, 2 * SHORTER, 1, "random bytes");
    for (size_t i = 0; i < 2 * SHORTER; i++) text[i] = "athe <s>[x]\n0A"[rng_below(&r, 14)];
    expect_linear(t, text, 2 * SHORTER, 1, "random letters");
    free(text);
}

/* For kinds that refuse what they cannot spell: each unit repeated as a whole. */
static void units_are_linear(const descent_tokenizer *t, const char *const *units, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t unit = strlen(units[i]), bytes = 2 * SHORTER * unit;
        char *text = malloc(bytes);
        assert_non_null(text);
        repeat(text, bytes, units[i]);
        expect_linear(t, text, bytes, unit, units[i]);
        free(text);
    }
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

static void sentencepiece_bpe(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        descent_tokenizer *t = sentencepiece("llama", i & 1, i & 2);
        any_text_is_linear(t);
        tokenizer_free(t);
    }
}

static void sentencepiece_unigram(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        descent_tokenizer *t = sentencepiece("t5", i & 1, i & 2);
        any_text_is_linear(t);
        tokenizer_free(t);
    }
}

static void byte_level_bpe(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-2", "llama-bpe", "qwen2", "smollm", "gpt-4o"};
    for (size_t i = 0; i < COUNT(names); i++) {
        descent_tokenizer *t = byte_level(names[i], i % 2 ? "nfc" : "none");
        any_text_is_linear(t);
        tokenizer_free(t);
    }
}

static void bpe_by_merges(void **state)
{
    (void)state;
    static const char *const prefixes[] = {"prepend", "metaspace", "metaspace_first"};
    for (size_t i = 0; i < COUNT(prefixes); i++) {
        descent_tokenizer *t = by_merges(prefixes[i], i != 1);
        any_text_is_linear(t);
        tokenizer_free(t);
    }
}

static void characters(void **state)
{
    (void)state;
    vocabulary *v = empty();
    add(v, "a", TOKEN_NORMAL, 0);
    add(v, "\xc3\xa4", TOKEN_NORMAL, 0);
    add(v, "<", TOKEN_NORMAL, 0);
    add(v, "<<<<<<<<<<<<<<<<a", TOKEN_CONTROL, 0);
    descent_tokenizer *t = loaded(v, "chars");
    static const char *const units[] = {"a", "\xc3\xa4", "<", "<<<<<<<<<<<<<<<<a"};
    units_are_linear(t, units, COUNT(units));
    tokenizer_free(t);
}

static void words(void **state)
{
    (void)state;
    vocabulary *v = empty();
    add(v, "a", TOKEN_NORMAL, 0);
    add(v, "= = a", TOKEN_NORMAL, 0);
    gguf_writer_string(v->writer, "tokenizer.descent.separator", " = =b");
    descent_tokenizer *t = loaded(v, "words");
    static const char *const units[] = {"a = =b", "= = a = =b"};
    units_are_linear(t, units, COUNT(units));
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentencepiece_bpe), cmocka_unit_test(sentencepiece_unigram),
        cmocka_unit_test(byte_level_bpe),    cmocka_unit_test(bpe_by_merges),
        cmocka_unit_test(characters),        cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
