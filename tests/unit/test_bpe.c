/* test_bpe.c: merging against doing it the plain way, over and over the whole chain, on random merges; and what cuts a text
 * before it: patterns, normalization. */
#include "bpe.h"
#include "nfc.h"
#include "pretokenizer.h"
#include "rng.h"
#include "tokenizer_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- Merging ----------------------------------------------------------------------------------------------------- */

#define IDS 24
#define LONGEST_CHAIN 300

/* rank[left][right] of a pair, and what it makes. */
typedef struct rules {
    uint32_t rank[IDS][IDS], id[IDS][IDS];
} rules;

static uint32_t look_up(void *work, const bpe_symbol *left, const bpe_symbol *right, uint32_t *merged)
{
    const rules *r = work;
    *merged = r->id[left->id][right->id];
    return r->rank[left->id][right->id];
}

/* Ranks come more than once, as equal scores do in SentencePiece's vocabularies. */
static void random_rules(rules *r, rng *random)
{
    for (size_t left = 0; left < IDS; left++)
        for (size_t right = 0; right < IDS; right++) {
            r->rank[left][right] = rng_below(random, 3) ? (uint32_t)rng_below(random, 40) : BPE_NO_RANK;
            r->id[left][right] = (uint32_t)rng_below(random, IDS);
        }
}

/* Merges ids[0..count-1] in place; returns how many are left. A frozen symbol is one of id `frozen`. */
static size_t merge_plainly(const rules *r, uint32_t *ids, bool *frozen, size_t count)
{
    for (;;) {
        size_t best = count;
        uint32_t rank = BPE_NO_RANK;
        for (size_t i = 0; i + 1 < count; i++) {
            if (frozen[i] || frozen[i + 1] || r->rank[ids[i]][ids[i + 1]] >= rank) continue;
            rank = r->rank[ids[i]][ids[i + 1]];
            best = i;
        }
        if (best == count) return count;
        ids[best] = r->id[ids[best]][ids[best + 1]];
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof *ids);
        memmove(frozen + best + 1, frozen + best + 2, (count - best - 2) * sizeof *frozen);
        count--;
    }
}

static void merges_as_the_plain_way_does(void **state)
{
    (void)state;
    rng random = rng_seeded(3);
    bpe_chain chain = {0};
    size_t longest_left = 0;
    for (int round = 0; round < 2000; round++) {
        rules r;
        uint32_t ids[LONGEST_CHAIN];
        bool frozen[LONGEST_CHAIN];
        size_t count = rng_below(&random, round % 4 ? 40 : LONGEST_CHAIN), left = 0, bytes = 0;
        random_rules(&r, &random);
        bpe_chain_clear(&chain);
        for (size_t i = 0; i < count; i++) {
            ids[i] = (uint32_t)rng_below(&random, IDS);
            frozen[i] = rng_below(&random, 20) == 0;
            assert_int_equal(bpe_chain_add(&chain, (uint32_t)i, 1, ids[i], frozen[i], NULL), DESCENT_OK);
        }
        assert_int_equal(bpe_merge(&chain, look_up, &r, NULL), DESCENT_OK);
        size_t expected = merge_plainly(&r, ids, frozen, count);
        for (size_t i = 0; i < chain.count; i++) {
            if (chain.symbols[i].bytes == 0) continue;
            assert_true(left < expected);
            assert_int_equal(chain.symbols[i].id, ids[left++]);
            assert_int_equal(chain.symbols[i].start, bytes);
            bytes += chain.symbols[i].bytes;
        }
        assert_int_equal(left, expected);
        assert_int_equal(bytes, count);
        if (left > longest_left) longest_left = left;
    }
    assert_true(longest_left > 2);
    bpe_chain_free(&chain);
}

/* ---- Patterns ---------------------------------------------------------------------------------------------------- */

typedef struct pieces {
    char text[1024]; /* each piece and a '|' */
    size_t count;
} pieces;

static descent_code take(void *context, const char *text, size_t bytes, descent_status *status)
{
    (void)status;
    pieces *p = context;
    assert_true(bytes > 0 && p->count + bytes + 2 < sizeof p->text);
    memcpy(p->text + p->count, text, bytes);
    p->count += bytes;
    p->text[p->count++] = '|';
    p->text[p->count] = '\0';
    return DESCENT_OK;
}

static pretokenizer *pretokenizer_of(const char *name)
{
    pretokenizer *pre = NULL;
    assert_int_equal(pretokenizer_create((gguf_string){name, strlen(name)}, &pre, NULL), DESCENT_OK);
    return pre;
}

static void cuts(const char *name, const char *text, const char *expected)
{
    pretokenizer *pre = pretokenizer_of(name);
    pretokenizer_work *work;
    pieces p = {.count = 0};
    assert_int_equal(pretokenizer_work_create(pre, &work, NULL), DESCENT_OK);
    assert_int_equal(pretokenizer_cut(work, text, strlen(text), take, &p, NULL), DESCENT_OK);
    assert_string_equal(p.text, expected);
    pretokenizer_work_destroy(work);
    pretokenizer_destroy(pre);
}

/* What each pattern does with one text was read off Hugging Face's tokenizers 0.23.3. */
static void patterns_cut_as_their_vocabularies_do(void **state)
{
    (void)state;
    static const char text[] = "I'll SAY'S  12345 helloWorld\r\n\r\n  x!!\n/\xe1\xa0\x8e\xc2\x85 na\xc3\xafve e\xcc\x81  ";
    cuts("gpt-2", text,
         "I|'ll| SAY|'|S| | 12345| helloWorld|\r\n\r\n |"
         " x|!!|\n|/\xe1\xa0\x8e|\xc2\x85| na\xc3\xafve| e|\xcc\x81|  |");
    cuts("smollm", text,
         "I|'ll| SAY|'|S|  |1|2|3|4|5| helloWorld|\r\n\r\n |"
         " x|!!|\n|/\xe1\xa0\x8e|\xc2\x85| na\xc3\xafve| e|\xcc\x81|  |");
    cuts("llama-bpe", text,
         "I|'ll| SAY|'S| | |123|45| helloWorld|\r\n\r\n| | x|!!\n|/\xe1\xa0\x8e|\xc2\x85| na\xc3\xafve| e|\xcc\x81|  |");
    cuts("qwen2", text,
         "I|'ll| SAY|'S| | |1|2|3|4|5| helloWorld|\r\n\r\n| | x|!!\n|/\xe1\xa0\x8e|\xc2\x85| na\xc3\xafve| e|\xcc\x81|  |");
    cuts("gpt-4o", text,
         "I'll| SAY'S| | |123|45| hello|World|\r\n\r\n| | x|!!\n/|\xe1\xa0\x8e|\xc2\x85| na\xc3\xafve| e\xcc\x81|  |");
    cuts("gpt-2", "", "");
}

static void an_unknown_pattern_names_those_there_are(void **state)
{
    (void)state;
    pretokenizer *pre = NULL;
    descent_status status;
    assert_int_equal(pretokenizer_create((gguf_string){"tekken", 6}, &pre, &status), DESCENT_UNSUPPORTED);
    assert_string_equal(status.message,
                        "tokenizer.ggml.pre is \"tekken\"; this version has: gpt-2, llama-bpe, qwen2, smollm, gpt-4o");
    assert_null(pre);
}

static descent_code count_bytes(void *context, const char *text, size_t bytes, descent_status *status)
{
    (void)text;
    (void)status;
    *(size_t *)context += bytes;
    return DESCENT_OK;
}

/* The matcher's own limits are never reached, however long the runs: every byte comes out. */
static void long_runs_stay_within_the_limits(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-2", "llama-bpe", "qwen2", "smollm", "gpt-4o"};
    static const char *const units[] = {
        "a", "A", " ", "\n", "7", "!", "'", "\xe4\xb8\xad", "\xcc\x81", "Aa", " \n", "\xe4\xb8\xad\x41"};
    enum { BYTES = 60000 };
    char *text = malloc(BYTES);
    assert_non_null(text);
    for (size_t n = 0; n < COUNT(names); n++) {
        pretokenizer *pre = pretokenizer_of(names[n]);
        pretokenizer_work *work;
        assert_int_equal(pretokenizer_work_create(pre, &work, NULL), DESCENT_OK);
        for (size_t u = 0; u < COUNT(units); u++) {
            size_t unit = strlen(units[u]), bytes = BYTES / unit * unit, seen = 0;
            descent_status status;
            for (size_t i = 0; i < bytes; i++) text[i] = units[u][i % unit];
            descent_code code = pretokenizer_cut(work, text, bytes, count_bytes, &seen, &status);
            if (code) print_error("%s, \"%s\": %s\n", names[n], units[u], status.message);
            assert_int_equal(code, DESCENT_OK);
            assert_int_equal(seen, bytes);
        }
        pretokenizer_work_destroy(work);
        pretokenizer_destroy(pre);
    }
    free(text);
}

/* ---- Normalization ----------------------------------------------------------------------------------------------- */

static void becomes(const char *text, size_t bytes, const char *expected)
{
    nfc_work work = {0};
    text_buffer out = {0};
    assert_int_equal(nfc_normalize(&work, text, bytes, &out, NULL), DESCENT_OK);
    assert_int_equal(out.count, strlen(expected));
    if (out.count) assert_memory_equal(out.bytes, expected, out.count);
    free(out.bytes);
    nfc_work_free(&work);
}

/* By Unicode's own rules (UAX #15). */
static void composes(void **state)
{
    (void)state;
    becomes("", 0, "");
    becomes("plain \xc3\xa4", 8, "plain \xc3\xa4");
    becomes("e\xcc\x81", 3, "\xc3\xa9");
    becomes("a\xcc\x88\xcc\xa3", 5, "\xe1\xba\xa1\xcc\x88");            /* dot below comes first and composes */
    becomes("\xe2\x84\xab", 3, "\xc3\x85");                             /* the angstrom sign is a letter */
    becomes("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", 9, "\xea\xb0\x81"); /* a Hangul syllable */
    becomes("\xe0\xa4\x95\xe0\xa4\xbc", 6, "\xe0\xa4\x95\xe0\xa4\xbc"); /* excluded from composition */
    becomes("\xe0\xa5\x98", 3, "\xe0\xa4\x95\xe0\xa4\xbc");             /* and taken apart */
    becomes("\xff"
            "e\xcc\x81\xe2\x82",
            6, "\xff\xc3\xa9\xe2\x82");                          /* what is no UTF-8 stays */
    becomes("e\xcc\x81\xff\xcc\x81", 6, "\xc3\xa9\xff\xcc\x81"); /* and keeps apart what it parts */
}

/* Marks of two classes, the higher first: sorted, each kind in its own order, and no slower than others. */
static void orders_many_marks(void **state)
{
    (void)state;
    enum { MARKS = 200000 };
    char *text = malloc(4 * MARKS + 1), *expected = malloc(4 * MARKS + 1);
    assert_true(text && expected);
    text[0] = expected[0] = 'q'; /* composes with neither */
    for (size_t i = 0; i < MARKS; i++) {
        memcpy(text + 1 + 2 * i, i % 2 ? "\xcc\x84" : "\xcc\x81", 2); /* above: class 230 */
        memcpy(text + 1 + 2 * MARKS + 2 * i, "\xcc\xa3", 2);          /* below: class 220 */
        memcpy(expected + 1 + 2 * i, "\xcc\xa3", 2);
        memcpy(expected + 1 + 2 * MARKS + 2 * i, i % 2 ? "\xcc\x84" : "\xcc\x81", 2);
    }
    nfc_work work = {0};
    text_buffer out = {0};
    assert_int_equal(nfc_normalize(&work, text, 4 * MARKS + 1, &out, NULL), DESCENT_OK);
    assert_int_equal(out.count, 4 * MARKS + 1);
    assert_memory_equal(out.bytes, expected, out.count);
    free(out.bytes);
    nfc_work_free(&work);
    free(text);
    free(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_as_the_plain_way_does),
        cmocka_unit_test(patterns_cut_as_their_vocabularies_do),
        cmocka_unit_test(an_unknown_pattern_names_those_there_are),
        cmocka_unit_test(long_runs_stay_within_the_limits),
        cmocka_unit_test(composes),
        cmocka_unit_test(orders_many_marks),
    };
    return cmocka_run_group_tests_name("bpe", tests, NULL, NULL);
}
