/* example.c: drawing examples that can be compared. */
#include "example.h"

#include "compare.h"

#include <stdlib.h>

/* What the reference is asked of an example that is drawn. */
static reference_request asked(const example *e, const example_wish *wish)
{
    return (reference_request){.tokens = e->tokens,
                               .count = e->count,
                               .depth = e->depth,
                               .motion = wish->motion,
                               .solver = wish->solver,
                               .history = e->history,
                               .round_page = wish->round_page};
}

example example_draw(uint64_t seed, const example_wish *wish)
{
    example e = {.r = rng_seeded(seed)};
    for (size_t draws = 0;; draws++) {
        if (draws == 20000) compare_fail("seed %llu: nothing acceptable in 20000 draws", (unsigned long long)seed);
        e.model = random_shape(&e.r, wish->family, wish->context);
        e.model.weight = wish->weight;
        if (wish->adjust) wish->adjust(&e.model);
        random_weights(&e.model, &e.r);
        e.count = wish->count ? wish->count : rng_between(&e.r, 1, wish->context);
        e.depth = random_depth(&e.r, &e.model, wish->most ? wish->most : 5);
        e.tokens = random_tokens(&e.r, &e.model, e.count);
        e.history = wish->history;
        if (e.history.policy == DESCENT_HISTORY_OWN && e.history.prompt_steps > 0) e.history.prompt_steps += e.depth.steps[0];
        reference_request request = asked(&e, wish);
        e.expected = reference_compute(&e.model, &request);
        bool accepted = !wish->accept || wish->accept();
        if (accepted && reference_sensitivity(&e.model, &request, &e.expected) < 0.03) break;
        reference_free(&e.expected);
        test_model_free(&e.model);
        free(e.tokens);
    }
    compare_about("seed %llu, %s, %zu tokens at depth %u,%u", (unsigned long long)seed, test_model_words(&e.model), e.count,
                  e.depth.steps[0], e.depth.steps[1]);
    if (e.model.weight >= TEST_Q8_0) {
        reference_request request = asked(&e, wish);
        e.allowed = rounding_of(&e.model, &request, &e.expected);
    }
    e.engine = drive_open_test_model(&e.model);
    return e;
}

void example_free(example *e)
{
    descent_model_close(e->engine);
    reference_free(&e->expected);
    test_model_free(&e->model);
    free(e->tokens);
}
