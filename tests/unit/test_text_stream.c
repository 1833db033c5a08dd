/* test_text_stream.c: what may be sent after each token, on small vocabularies of every kind of tokenizer: answers worked out
 * by hand, and random tokens and stop strings against definitions written out the slow way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "random_model.h"
#include "rng.h"
#include "text_stream.h"
#include "tokenizer_checks.h"
#include "utf8.h"

#define EURO "\xe2\x82\xac"
#define BROKEN "\xef\xbf\xbd"

/* ---- Vocabularies ------------------------------------------------------------------------------------------------ */

enum { CHARS, WORDS, LLAMA, T5, GPT2, MERGES, KINDS };
static const char *const kind_names[KINDS] = {"chars", "words", "llama", "t5", "gpt2", "llama with merges"};

static descent_tokenizer *chars(void)
{
    static const char *const tokens[] = {"a", "b", "c", "\n", "\xc3\xa4", EURO, "\xf0\x9f\x98\x80", "\0", "<eos>"};
    static const size_t bytes[] = {1, 1, 1, 1, 2, 3, 4, 1, 5};
    gguf_writer *w = writer_of("chars");
    gguf_writer_strings_bytes(w, "tokenizer.ggml.tokens", tokens, bytes, COUNT(tokens));
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", (const int32_t[]){1, 1, 1, 1, 1, 1, 1, 1, 3}, COUNT(tokens));
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 8);
    return loaded(w);
}

static descent_tokenizer *words(void)
{
    static const char *const tokens[] = {"<eos>", "a", "b", "ab", "(", EURO};
    gguf_writer *w = writer_of("words");
    add_tokens(w, tokens, COUNT(tokens));
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", (const int32_t[]){3, 1, 1, 1, 1, 1}, COUNT(tokens));
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 0);
    gguf_writer_string(w, "tokenizer.descent.separator", ",");
    return loaded(w);
}

/* Ids of the vocabularies below: bytes, then these. */
enum { A = 256, B, AB, SPACE, SPACE_A, E, UNKNOWN, BEGIN, END, PIECES };

/* A SentencePiece vocabulary: bytes, a few pieces, control tokens. */
static gguf_writer *pieces(const char *model)
{
    static const char *const rest[] = {"a",
                                       "b",
                                       "ab",
                                       "\xe2\x96\x81",
                                       ("\xe2\x96\x81"
                                        "a"),
                                       EURO,
                                       "<unk>",
                                       "<s>",
                                       "</s>"};
    const char *tokens[PIECES];
    char bytes[256][8];
    int32_t types[PIECES];
    float scores[PIECES];
    for (unsigned i = 0; i < PIECES; i++) {
        if (i < 256) (void)snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", i);
        tokens[i] = i < 256 ? bytes[i] : rest[i - 256];
        types[i] = i < 256 ? TOKEN_BYTE : i < UNKNOWN ? TOKEN_NORMAL : i == UNKNOWN ? TOKEN_UNKNOWN : TOKEN_CONTROL;
        scores[i] = -(float)i;
    }
    gguf_writer *w = writer_of(model);
    add_tokens(w, tokens, PIECES);
    gguf_writer_f32s(w, "tokenizer.ggml.scores", scores, PIECES);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", types, PIECES);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", BEGIN);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", END);
    gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", UNKNOWN);
    return w;
}

static descent_tokenizer *merges(void)
{
    gguf_writer *w = pieces("llama");
    gguf_writer_strings(w, "tokenizer.ggml.merges", (const char *const[]){"a b"}, 1);
    return loaded(w);
}

/* Byte-level BPE: bytes that print stand for themselves, the others are numbered from U+0100 on. */
static descent_tokenizer *gpt2(void)
{
    const char *tokens[259];
    char letters[256][4];
    int32_t types[259];
    unsigned next = 0x100;
    for (unsigned b = 0; b < 256; b++) {
        bool prints = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
        unsigned c = prints ? b : next++;
        (void)snprintf(letters[b], 4, c < 0x80 ? "%c" : "%c%c", c < 0x80 ? c : 0xC0 | c >> 6, 0x80 | (c & 0x3F));
        tokens[b] = letters[b];
        types[b] = TOKEN_NORMAL;
    }
    tokens[256] = "ab", tokens[257] = "\xc3\xa2\xc4\xa4", tokens[258] = "<|end|>"; /* 257: bytes e2 82 */
    types[256] = types[257] = TOKEN_NORMAL, types[258] = TOKEN_CONTROL;
    gguf_writer *w = writer_of("gpt2");
    add_tokens(w, tokens, 259);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", types, 259);
    gguf_writer_strings(w, "tokenizer.ggml.merges", (const char *const[]){"a b", "\xc3\xa2 \xc4\xa4"}, 2);
    gguf_writer_string(w, "tokenizer.ggml.pre", "gpt-2");
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 258);
    return loaded(w);
}

static descent_tokenizer *tokenizer_of(int kind)
{
    if (kind == CHARS) return chars();
    if (kind == WORDS) return words();
    if (kind == GPT2) return gpt2();
    if (kind == MERGES) return merges();
    return loaded(pieces(kind == T5 ? "t5" : "llama"));
}

/* ---- By hand ----------------------------------------------------------------------------------------------------- */

typedef struct scene {
    descent_tokenizer *tokenizer;
    text_stream *stream;
    stop_string stops[4];
} scene;

/* Up to four stop strings, ended by NULL. */
static scene *open_scene(descent_tokenizer *tokenizer, const char *one, const char *two, const char *three)
{
    static scene s;
    const char *texts[] = {one, two, three, NULL};
    size_t n = 0;
    s = (scene){.tokenizer = tokenizer};
    for (; texts[n]; n++) {
        static char copies[3][32];
        (void)snprintf(copies[n], sizeof copies[n], "%s", texts[n]);
        s.stops[n] = (stop_string){copies[n], strlen(texts[n])};
    }
    descent_status status;
    assert_int_equal(text_stream_create(tokenizer, s.stops, n, &s.stream, &status), DESCENT_OK);
    return &s;
}

static void close_scene(scene *s)
{
    text_stream_destroy(s->stream);
    tokenizer_free(s->tokenizer);
}

static void expect(const text_release *got, const char *text, size_t tokens, bool stopped)
{
    if (strcmp(got->text, text)) print_error("\"%s\" came out, expected \"%s\"\n", got->text, text);
    assert_string_equal(got->text, text);
    assert_int_equal(got->bytes, strlen(text));
    assert_int_equal(got->tokens, tokens);
    assert_int_equal(got->stopped, stopped);
}

static void push(scene *s, uint32_t token, const char *text, size_t tokens, bool stopped)
{
    text_release release;
    descent_status status;
    assert_int_equal(text_stream_push(s->stream, token, &release, &status), DESCENT_OK);
    expect(&release, text, tokens, stopped);
}

static void finish(scene *s, const char *text, size_t tokens, bool stopped)
{
    text_release release;
    descent_status status;
    assert_int_equal(text_stream_finish(s->stream, &release, &status), DESCENT_OK);
    expect(&release, text, tokens, stopped);
    close_scene(s);
}

static void text_comes_with_its_tokens(void **state)
{
    (void)state;
    scene *s = open_scene(gpt2(), NULL, NULL, NULL);
    push(s, 'x', "x", 1, false);
    push(s, 256, "ab", 1, false);
    push(s, 258, "", 1, false); /* EOS has no text and waits for none */
    finish(s, "", 0, false);
}

static void a_character_comes_whole_with_all_its_tokens(void **state)
{
    (void)state;
    scene *s = open_scene(gpt2(), NULL, NULL, NULL);
    push(s, 0xe2, "", 0, false);
    push(s, 0x82, "", 0, false);
    push(s, 0xac, EURO, 3, false);
    push(s, 257, "", 0, false);
    push(s, 'a', BROKEN "a", 2, false); /* no character after all */
    push(s, 0xff, BROKEN, 1, false);
    push(s, 257, "", 0, false);
    push(s, 258, BROKEN, 2, false);
    push(s, 0xf0, "", 0, false);
    push(s, 0x9f, "", 0, false);
    finish(s, BROKEN, 2, false);
}

static void a_stop_string_is_never_partly_sent(void **state)
{
    (void)state;
    scene *s = open_scene(gpt2(), "aab", NULL, NULL);
    push(s, 'x', "x", 1, false);
    push(s, 'a', "", 0, false);
    push(s, 'a', "", 0, false);
    push(s, 'a', "a", 1, false); /* the last two may still begin it */
    push(s, 'c', "aac", 3, false);
    push(s, 'a', "", 0, false);
    push(s, 256, "", 0, true); /* "ab": with the "a" before */
    push(s, 'z', "", 0, true);
    finish(s, "", 0, true);
}

static void what_was_held_back_comes_out_at_the_end(void **state)
{
    (void)state;
    scene *s = open_scene(gpt2(), "aab", "b" EURO, NULL);
    push(s, 'a', "", 0, false);
    push(s, 258, "", 0, false); /* stands behind what is held back */
    push(s, 'a', "", 0, false);
    finish(s, "aa", 3, false);
    s = open_scene(gpt2(), "b" EURO, NULL, NULL);
    push(s, 256, "a", 0, false); /* its b may begin the stop string */
    push(s, 257, "", 0, false);
    push(s, 0xac, "", 0, true);
    finish(s, "", 0, true);
}

static void tokens_of_the_text_before_a_stop_go_with_it(void **state)
{
    (void)state;
    scene *s = open_scene(gpt2(), "b", NULL, NULL);
    push(s, 'x', "x", 1, false);
    push(s, 256, "a", 0, true); /* "ab" holds the stop string */
    finish(s, "", 0, true);
    s = open_scene(gpt2(), "aaaa", NULL, NULL);
    push(s, 'x', "x", 1, false);
    push(s, 'a', "", 0, false);
    push(s, 'a', "", 0, false);
    push(s, 'a', "", 0, false);
    push(s, 'b', "aaab", 4, false);
    finish(s, "", 0, false);
}

static void the_first_to_be_complete_stops(void **state)
{
    (void)state;
    scene *s = open_scene(gpt2(), "ab", "abc", NULL); /* one the beginning of the other */
    push(s, 'a', "", 0, false);
    push(s, 'b', "", 0, true);
    finish(s, "", 0, true);
    s = open_scene(gpt2(), "xabc", "ab", "b"); /* complete together: the longest */
    push(s, 'x', "", 0, false);
    push(s, 256, "x", 1, true);
    finish(s, "", 0, true);
    s = open_scene(gpt2(), "ac", "b", NULL); /* held back for one, stopped by the other */
    push(s, 'a', "", 0, false);
    push(s, 'b', "a", 1, true);
    finish(s, "", 0, true);
}

static void broken_characters_may_stop_too(void **state)
{
    (void)state;
    scene *s = open_scene(gpt2(), BROKEN, NULL, NULL);
    push(s, 'x', "x", 1, false);
    push(s, 0xe2, "", 0, false);
    finish(s, "", 0, true);
    s = open_scene(gpt2(), EURO, NULL, NULL);
    push(s, 257, "", 0, false);
    push(s, 'a', BROKEN "a", 2, false);
    finish(s, "", 0, false);
}

static void text_goes_on_behind_a_prompt(void **state)
{
    (void)state;
    scene *s = open_scene(loaded(pieces("llama")), "a", NULL, NULL);
    push(s, SPACE, "", 1, false); /* the space a text begins with is left out */
    push(s, B, "b", 1, false);
    finish(s, "", 0, false);
    s = open_scene(loaded(pieces("llama")), "a", NULL, NULL);
    text_stream_follow(s->stream, (const uint32_t[]){BEGIN, A, 0xe2, 0x82}, 4);
    push(s, 0xac, EURO, 1, false);
    push(s, SPACE, " ", 1, false);
    push(s, SPACE_A, " ", 0, true);
    finish(s, "", 0, true);
}

static void nul_is_a_character(void **state)
{
    (void)state;
    char text[] = {'a', '\0', 'b'};
    const stop_string stop = {text, 3};
    descent_tokenizer *t = chars();
    text_stream *stream;
    text_release release;
    descent_status status;
    assert_int_equal(text_stream_create(t, &stop, 1, &stream, &status), DESCENT_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(text_stream_push(stream, i ? 7 : 2, &release, &status), DESCENT_OK);
        assert_int_equal(release.bytes, 1);
        assert_memory_equal(release.text, i ? "\0" : "c", 2);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(text_stream_push(stream, (const uint32_t[]){0, 7, 1}[i], &release, &status), DESCENT_OK);
        assert_int_equal(release.bytes, 0);
        assert_int_equal(release.stopped, i == 2);
    }
    text_stream_destroy(stream);
    text_stream_destroy(NULL);
    tokenizer_free(t);
}

/* ---- Against the definition -------------------------------------------------------------------------------------- */

enum { MOST_TOKENS = 40, MOST_STOPS = 5, MOST_TEXT = 1024 };

/* A text as the decoder gives it, and for each token up to where it must be out for the token to be. */
typedef struct whole {
    char text[MOST_TEXT];
    size_t bytes;                /* with what finishing gives */
    size_t certain[MOST_TOKENS]; /* after each token */
    size_t complete[MOST_TOKENS];
} whole;

static whole decode(const descent_tokenizer *t, const uint32_t *tokens, size_t count)
{
    whole w = {.bytes = 0};
    for (size_t n = 0; n <= count; n++) { /* each beginning with a decoder of its own, finished to see what it holds back */
        descent_decoder *d;
        size_t bytes, at = 0;
        assert_int_equal(descent_decoder_create(t, &d, NULL), DESCENT_OK);
        for (size_t i = 0; i < n; i++) {
            const char *text = descent_decoder_push(d, tokens[i], &bytes);
            memcpy(w.text + at, text, bytes);
            at += bytes;
        }
        const char *rest = descent_decoder_finish(d, &bytes);
        if (n > 0) w.certain[n - 1] = at, w.complete[n - 1] = at + (bytes > 0);
        if (n == count) {
            memcpy(w.text + at, rest, bytes);
            w.bytes = at + bytes;
        }
        descent_decoder_destroy(d);
    }
    return w;
}

/* Where the text up to `bytes` is to be cut by a stop string; true where it is. */
static bool cut(const whole *w, size_t bytes, const stop_string *stops, size_t n, size_t *at)
{
    for (size_t end = 1; end <= bytes; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < n; i++)
            if (stops[i].bytes <= end && stops[i].bytes > longest &&
                !memcmp(w->text + end - stops[i].bytes, stops[i].text, stops[i].bytes))
                longest = stops[i].bytes;
        *at = end - longest;
        if (longest) return true;
    }
    return false;
}

/* The longest end of the text that begins a stop string. */
static size_t hold(const whole *w, size_t bytes, const stop_string *stops, size_t n)
{
    for (size_t length = bytes; length > 0; length--)
        for (size_t i = 0; i < n; i++)
            if (length < stops[i].bytes && !memcmp(w->text + bytes - length, stops[i].text, length)) return length;
    return 0;
}

/* Stop strings that have a chance: pieces of the text, changed at their end now and then. */
static size_t draw_stops(rng *r, const whole *w, stop_string *stops)
{
    size_t n = rng_below(r, MOST_STOPS + 1), made = 0;
    for (size_t i = 0; i < n && w->bytes > 0; i++) {
        size_t from = rng_below(r, w->bytes), to = from + rng_between(r, 1, 6);
        while (from > 0 && (w->text[from] & 0xc0) == 0x80) from--;
        if (to > w->bytes) to = w->bytes;
        while (to < w->bytes && (w->text[to] & 0xc0) == 0x80) to++;
        stops[made] = (stop_string){test_alloc(to - from + 2, 1), to - from};
        memcpy(stops[made].text, w->text + from, to - from);
        if (rng_below(r, 3) == 0) stops[made].text[stops[made].bytes++] = rng_below(r, 2) ? 'a' : 'q';
        made++;
    }
    return made;
}

static void check_release(const text_release *got, const whole *w, size_t *out, size_t *tokens, size_t count, size_t expected,
                          bool stopped)
{
    assert_int_equal(got->stopped, stopped);
    assert_int_equal(*out + got->bytes, expected);
    assert_memory_equal(got->text, w->text + *out, got->bytes);
    assert_int_equal(got->text[got->bytes], 0);
    assert_true(utf8_valid(got->text, got->bytes));
    *out = expected;
    *tokens += got->tokens;
    size_t complete = 0;
    while (complete < count && w->complete[complete] <= *out) complete++;
    assert_int_equal(*tokens, complete);
}

static bool run_one(const descent_tokenizer *t, rng *r)
{
    uint32_t tokens[MOST_TOKENS], vocab = descent_tokenizer_describe(t)->vocab;
    size_t count = rng_between(r, 1, MOST_TOKENS), out = 0, released = 0, at = 0;
    stop_string stops[MOST_STOPS];
    uint32_t some[4] = {(uint32_t)rng_below(r, vocab), (uint32_t)rng_below(r, vocab), (uint32_t)rng_below(r, vocab),
                        vocab > A ? 'a' : 0};
    for (size_t i = 0; i < count; i++) /* mostly of a few, so that texts repeat themselves */
        tokens[i] = rng_below(r, 3) ? some[rng_below(r, 4)] : (uint32_t)rng_below(r, vocab);
    whole w = decode(t, tokens, count);
    size_t n_stops = draw_stops(r, &w, stops);
    text_stream *stream;
    text_release release;
    descent_status status;
    bool stopped = false;
    assert_int_equal(text_stream_create(t, stops, n_stops, &stream, &status), DESCENT_OK);
    for (size_t i = 0; i < count && !stopped; i++) {
        assert_int_equal(text_stream_push(stream, tokens[i], &release, &status), DESCENT_OK);
        stopped = cut(&w, w.certain[i], stops, n_stops, &at);
        if (!stopped) at = w.certain[i] - hold(&w, w.certain[i], stops, n_stops);
        check_release(&release, &w, &out, &released, i + 1, at, stopped);
    }
    if (!stopped) {
        assert_int_equal(text_stream_finish(stream, &release, &status), DESCENT_OK);
        stopped = cut(&w, w.bytes, stops, n_stops, &at);
        check_release(&release, &w, &out, &released, count, stopped ? at : w.bytes, stopped);
        if (!stopped) assert_int_equal(released, count);
    }
    text_stream_destroy(stream);
    for (size_t i = 0; i < n_stops; i++) free(stops[i].text);
    return stopped;
}

static void random_texts_of_every_kind(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        descent_tokenizer *t = tokenizer_of(kind);
        size_t stopped = 0, rounds = test_rounds(1500);
        for (size_t round = 0; round < rounds; round++) {
            rng r = rng_seeded(test_seed(300 + (uint64_t)kind, round));
            stopped += run_one(t, &r);
        }
        if (stopped < rounds / 4 || stopped > rounds * 9 / 10)
            fail_msg("%s: %zu of %zu texts were stopped", kind_names[kind], stopped, rounds);
        tokenizer_free(t);
    }
}

/* Stop strings that a text nearly holds at every place: a search that begins anew for each takes 25 thousand million steps. */
static void repetition_costs_nothing(void **state)
{
    enum { TEXT = 100000, BYTES = 4000, STOPS = 64 };
    (void)state;
    static char texts[STOPS][BYTES];
    stop_string stops[STOPS];
    for (size_t i = 0; i < STOPS; i++) {
        memset(texts[i], 'a', BYTES);
        texts[i][BYTES - 1] = (char)('A' + i % 26);
        stops[i] = (stop_string){texts[i], BYTES};
    }
    descent_tokenizer *t = gpt2();
    text_stream *stream;
    text_release release;
    descent_status status;
    size_t out = 0;
    assert_int_equal(text_stream_create(t, stops, STOPS, &stream, &status), DESCENT_OK);
    clock_t begun = clock();
    for (size_t i = 0; i < TEXT; i++) {
        assert_int_equal(text_stream_push(stream, 'a', &release, &status), DESCENT_OK);
        assert_int_equal(release.bytes, i < BYTES - 1 ? 0 : 1);
        out += release.bytes;
    }
    assert_true((double)(clock() - begun) / CLOCKS_PER_SEC < 8); /* half a second; half a minute if it did */
    assert_int_equal(out, TEXT - (BYTES - 1));
    text_stream_destroy(stream);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(text_comes_with_its_tokens),
                                       cmocka_unit_test(a_character_comes_whole_with_all_its_tokens),
                                       cmocka_unit_test(a_stop_string_is_never_partly_sent),
                                       cmocka_unit_test(what_was_held_back_comes_out_at_the_end),
                                       cmocka_unit_test(tokens_of_the_text_before_a_stop_go_with_it),
                                       cmocka_unit_test(the_first_to_be_complete_stops),
                                       cmocka_unit_test(broken_characters_may_stop_too),
                                       cmocka_unit_test(text_goes_on_behind_a_prompt),
                                       cmocka_unit_test(nul_is_a_character),
                                       cmocka_unit_test(random_texts_of_every_kind),
                                       cmocka_unit_test(repetition_costs_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
