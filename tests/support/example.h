/* example.h: what nearly every property test begins with: a random model, a text, a depth, what the reference makes of
 * them, and the model opened in the engine. */
#ifndef TEST_EXAMPLE_H
#define TEST_EXAMPLE_H

#include "drive.h"
#include "random_model.h"
#include "reference.h"
#include "rounding.h"

typedef struct example_wish {
    test_family family;
    test_weight weight;
    size_t context;
    size_t count; /* tokens; 0: 1..context */
    size_t most;  /* largest T of a kind; 0: 5 */
    descent_motion motion;
    descent_solver solver;
    descent_history history;           /* prompt_steps of OWN are those beyond T */
    page_rounding round_page;          /* NULL: to f32 */
    void (*adjust)(test_model *model); /* of the shape, before the weights are drawn; NULL: as it comes */
    bool (*accept)(void);              /* asked once the reference has run; NULL: yes */
} example_wish;

typedef struct example {
    rng r; /* to go on drawing from */
    test_model model;
    uint32_t *tokens;
    size_t count;
    descent_depth depth;
    descent_history history;
    reference_run expected;
    rounding allowed; /* of quantized weights */
    descent_model *engine;
} example;

/* Draws until f32 rounding of the embedding moves the reference by less than 3% of what is allowed, so that an
 * engine that only rounds is inside and one that is wrong is not. Messages of the comparisons that follow name the seed. */
example example_draw(uint64_t seed, const example_wish *wish);
void example_free(example *e);

#endif
