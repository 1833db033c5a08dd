/* paged.h: a random model, a text, and a cache with a batch of one thread to run it in: what tests of pages, cuts, pauses and
 * files begin with. What a text is alone is the engine's own, in a cache of its own; test_golden.c and others hold that to the
 * references. */
#ifndef TEST_PAGED_H
#define TEST_PAGED_H

#include "drive.h"
#include "random_model.h"
#include "rng.h"

typedef struct paged {
    rng r;
    test_model model;
    uint32_t *tokens; /* [count] */
    size_t count;
    descent_model *engine;
    descent_cache *cache; /* of f32 pages */
    descent_batch *batch;
} paged;

/* A model of this family with a context of `count` tokens and a text as long: a function of (test, round). */
paged paged_up(uint64_t test, size_t round, test_family family, size_t count);
/* Nobody may hold a page any more. */
void paged_down(paged *p);

/* The text's first tokens in a cache of their own; of `how` the depth and what changes a descent is looked at. */
outcome paged_alone(const paged *p, const descent_sequence_options *how, size_t count);
/* The sequence, which is of the text's first tokens and finished, is what they are alone. */
void paged_expect_alone(const paged *p, const descent_sequence *sequence, const descent_sequence_options *how);
/* Whole pages that a new sequence of the text's first `count` tokens found in the cache; its last token's logits are what they
 * are alone. */
size_t paged_found(const paged *p, const descent_sequence_options *how, size_t count);

#endif
