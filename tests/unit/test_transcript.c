/* test_transcript.c: what a scheduler's thread writes down and the loop takes, in pieces or whole, while the other thread
 * writes: all texts, tokens and likeliest tokens come out once, in order and with each other, against the plain list of what
 * was chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "rng.h"
#include "served.h"
#include "transcript.h"

enum { VOCAB = 259, PROMPT = 6, MOST = 50, TOP = 4, BYTE = 3, EOS = 2 };

typedef struct script {
    model_set models;
    generation_request request;
    prompt prompt;
    uint32_t prompt_tokens[PROMPT];
    uint32_t tokens[MOST];
    size_t count;
    float logits[PROMPT + MOST][VOCAB]; /* of the position before the token */
    transcript transcript;
    pthread_mutex_t lock;
    size_t wakes, wakes_at_once;
} script;

/* What comes first of a text, where it is taken as it comes, and its end wait for nothing; the end is the last. */
static void count_wake(void *user, bool at_once)
{
    script *s = user;
    (void)pthread_mutex_lock(&s->lock);
    assert_true(s->wakes_at_once < 1 + (size_t)s->request.stream);
    s->wakes++;
    s->wakes_at_once += at_once;
    (void)pthread_mutex_unlock(&s->lock);
}

/* Random bytes, many of them of characters of two bytes, and EOS last in half of the cases. */
static script *draw(uint64_t seed, bool echo, bool live)
{
    script *s = calloc(1, sizeof *s);
    rng r = rng_seeded(seed);
    s->models = served_open();
    for (size_t i = 0; i < PROMPT; i++) s->prompt_tokens[i] = (uint32_t)(BYTE + 'a' + rng_below(&r, 26));
    s->count = 1 + rng_below(&r, MOST);
    for (size_t i = 0; i < s->count; i++) {
        uint32_t kinds[] = {(uint32_t)('a' + rng_below(&r, 4)), 0xc3, (uint32_t)(0xa0 + rng_below(&r, 16))};
        s->tokens[i] = BYTE + kinds[rng_below(&r, 3)];
    }
    if (rng_below(&r, 2)) s->tokens[s->count - 1] = EOS;
    for (size_t i = 0; i < PROMPT + s->count; i++)
        for (size_t v = 0; v < VOCAB; v++) s->logits[i][v] = (float)(3 * rng_normal(&r));
    s->prompt = (prompt){.tokens = s->prompt_tokens, .count = PROMPT};
    s->request = (generation_request){.kind = REQUEST_COMPLETION,
                                      .model = served_find(&s->models, "pair"),
                                      .prompts = &s->prompt,
                                      .n_prompts = 1,
                                      .n = 1,
                                      .echo = echo,
                                      .logprobs = TOP,
                                      .stream = live};
    (void)pthread_mutex_init(&s->lock, NULL);
    transcript_options options = {.request = &s->request, .live = live, .wake = count_wake, .user = s};
    descent_status status;
    assert_int_equal(transcript_open(&s->transcript, &options, &status), DESCENT_OK);
    return s;
}

static void destroy(script *s)
{
    transcript_close(&s->transcript);
    served_close(&s->models);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

/* The scheduler's thread. */
static void *play(void *user)
{
    script *s = user;
    transcript *t = &s->transcript;
    bool goes_on = true;
    for (size_t i = 0; i + 1 < PROMPT && transcript_reads_prompt(t); i++)
        goes_on &= transcript_chosen(t, &(descent_choice){.position = i, .logits = s->logits[i], .steps = 5});
    for (size_t i = 0; goes_on && i < s->count; i++)
        goes_on = transcript_chosen(t, &(descent_choice){.position = PROMPT + i,
                                                         .token_chosen = true,
                                                         .token = s->tokens[i],
                                                         .logits = s->logits[PROMPT - 1 + i],
                                                         .steps = 5});
    transcript_ended(t, &(descent_generation_report){.end = DESCENT_END_LENGTH, .generated = s->count});
    return NULL;
}

/* Puts a taken record behind what was taken before. */
static void append(record *all, const record *part)
{
    all->text = realloc(all->text, all->bytes + part->bytes + 1);
    if (part->bytes > 0) memcpy(all->text + all->bytes, part->text, part->bytes);
    all->bytes += part->bytes;
    all->tokens = realloc(all->tokens, (all->n_tokens + part->n_tokens + 1) * sizeof *all->tokens);
    all->top = realloc(all->top, (all->n_top + part->n_top + 1) * sizeof *all->top);
    for (size_t i = 0; i < part->n_tokens; i++) {
        all->tokens[all->n_tokens] = part->tokens[i];
        all->tokens[all->n_tokens++].first_top += all->n_top;
    }
    if (part->n_top > 0) memcpy(all->top + all->n_top, part->top, part->n_top * sizeof *part->top);
    all->n_top += part->n_top;
    if (part->n_pieces > 0) {
        assert_int_equal(part->pieces[part->n_pieces - 1].bytes, part->bytes);
        assert_int_equal(part->pieces[part->n_pieces - 1].tokens, part->n_tokens);
    } else {
        assert_int_equal(part->bytes + part->n_tokens, 0);
    }
}

static void check_entry(const record *all, const token_entry *entry, uint32_t token, const float *logits)
{
    long double sum = 0;
    assert_int_equal(entry->token, token);
    for (size_t v = 0; v < VOCAB; v++) sum += expl((long double)logits[v] - (long double)logits[token]);
    assert_float_equal(entry->logprob, (double)-logl(sum), 1e-5);
    assert_int_equal(entry->n_top, TOP);
    assert_int_equal(entry->steps, 5);
    for (size_t k = 0; k < TOP; k++) {
        const token_logprob *top = &all->top[entry->first_top + k];
        size_t larger = 0;
        for (size_t v = 0; v < VOCAB; v++) larger += logits[v] > logits[top->token];
        assert_int_equal(larger, k);
    }
}

static void check(const script *s, const record *all, bool echo)
{
    size_t n = 0, bytes = 0;
    char expected[3 * (PROMPT + MOST)];
    descent_decoder *decoder;
    descent_status status;
    assert_int_equal(descent_decoder_create(s->request.model->tokenizer, &decoder, &status), DESCENT_OK);
    for (size_t i = 0; i < PROMPT + s->count; i++) {
        bool of_prompt = i < PROMPT;
        uint32_t token = of_prompt ? s->prompt_tokens[i] : s->tokens[i - PROMPT];
        size_t length;
        const char *text = descent_decoder_push(decoder, token, &length);
        if (of_prompt && !echo) continue;
        memcpy(expected + bytes, text, length);
        bytes += length;
        assert_true(n < all->n_tokens);
        if (i == 0)
            assert_true(isnan(all->tokens[n].logprob) && all->tokens[n].token == token);
        else
            check_entry(all, &all->tokens[n], token, s->logits[i - 1]);
        n++;
    }
    size_t length;
    const char *rest = descent_decoder_finish(decoder, &length);
    memcpy(expected + bytes, rest, length);
    bytes += length;
    assert_int_equal(all->n_tokens, n);
    assert_int_equal(all->bytes, bytes);
    assert_memory_equal(all->text, expected, bytes);
    descent_decoder_destroy(decoder);
}

static void one_round(uint64_t seed, bool echo, bool live)
{
    script *s = draw(seed, echo, live);
    pthread_t thread;
    record all = {0}, part = {0};
    assert_int_equal(pthread_create(&thread, NULL, play, s), 0);
    for (bool ended = false; !ended;) {
        record_clear(&part);
        ended = transcript_take(&s->transcript, &part);
        if (!live && !ended) assert_int_equal(part.n_tokens + part.bytes + part.n_times, 0);
        append(&all, &part);
        (void)sched_yield();
    }
    (void)pthread_join(thread, NULL);
    assert_int_equal(s->transcript.status.code, DESCENT_OK);
    assert_int_equal(s->transcript.report.generated, s->count);
    assert_true(live ? s->wakes > 0 : s->wakes == 1);
    assert_int_equal(s->wakes_at_once, 1 + live);
    check(s, &all, echo);
    record_release(&part);
    record_release(&all);
    destroy(s);
}

static void everything_comes_out_once(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++) one_round(seed, seed & 1, seed & 2);
}

/* What a stop string is made of goes nowhere, and the text ends with it. */
static void a_stop_string_ends_the_text(void **state)
{
    (void)state;
    script *s = draw(1, false, false);
    stop_string stop = {.text = (char[]){'x', 'y'}, .bytes = 2};
    transcript_close(&s->transcript);
    s->request.stop = &stop;
    s->request.n_stop = 1;
    transcript_options options = {.request = &s->request, .wake = count_wake, .user = s};
    descent_status status;
    assert_int_equal(transcript_open(&s->transcript, &options, &status), DESCENT_OK);
    static const char text[] = "abxzxyq";
    bool goes_on = true;
    for (size_t i = 0; goes_on; i++) {
        assert_true(text[i] != 'q');
        descent_choice choice = {.position = PROMPT + i,
                                 .token_chosen = true,
                                 .token = BYTE + (uint32_t)text[i],
                                 .logits = s->logits[0],
                                 .steps = 1};
        goes_on = transcript_chosen(&s->transcript, &choice);
    }
    transcript_ended(&s->transcript, &(descent_generation_report){.end = DESCENT_END_STOPPED});
    record all = {0};
    assert_true(transcript_take(&s->transcript, &all));
    assert_int_equal(all.bytes, 4);
    assert_memory_equal(all.text, "abxz", 4);
    assert_int_equal(all.n_tokens, 4);
    assert_int_equal(all.n_times, 6);
    record_release(&all);
    destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_comes_out_once),
        cmocka_unit_test(a_stop_string_ends_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
