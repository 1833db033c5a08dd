/* paged.c: see paged.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "paged.h"

#include "compare.h"

paged paged_up(uint64_t test, size_t round, test_family family, size_t count)
{
    paged p = {.r = rng_seeded(test_seed(test, round)), .count = count};
    p.model = random_model(&p.r, family, count);
    p.tokens = random_tokens(&p.r, &p.model, count);
    p.engine = drive_open_test_model(&p.model);
    p.cache = drive_cache(p.engine, DESCENT_PAGE_F32, 0);
    p.batch = drive_batch(p.cache, 0, 1);
    compare_about("seed %llu, %s", (unsigned long long)test_seed(test, round), test_model_words(&p.model));
    return p;
}

void paged_down(paged *p)
{
    descent_batch_destroy(p->batch);
    drive_cache_end(p->cache);
    descent_model_close(p->engine);
    test_model_free(&p->model);
    free(p->tokens);
}

outcome paged_alone(const paged *p, const descent_sequence_options *how, size_t count)
{
    drive_options options = {
        .depth = how->depth, .motion = how->motion, .solver = how->solver, .exit = how->exit, .history = how->history};
    return drive(p->engine, p->tokens, count, &options);
}

void paged_expect_alone(const paged *p, const descent_sequence *sequence, const descent_sequence_options *how)
{
    outcome got = drive_read(p->batch, p->engine, sequence), expected = paged_alone(p, how, got.count);
    compare_outcomes(&got, &expected);
    outcome_free(&got);
    outcome_free(&expected);
}

size_t paged_found(const paged *p, const descent_sequence_options *how, size_t count)
{
    uint64_t hits = descent_cache_describe(p->cache).shared_hits;
    descent_sequence *sequence = drive_sequence_as(p->cache, how, p->tokens, count);
    size_t pages = (size_t)(descent_cache_describe(p->cache).shared_hits - hits);
    drive_finish(p->batch, sequence);
    outcome expected = paged_alone(p, how, count);
    float *logits = test_alloc(expected.vocab, sizeof *logits);
    drive_logits(p->batch, sequence, count - 1, logits);
    compare_bits(logits, expected.logits + (count - 1) * expected.vocab, expected.vocab, "logits of the last token");
    free(logits);
    outcome_free(&expected);
    descent_sequence_destroy(sequence);
    return pages;
}
