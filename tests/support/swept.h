/* swept.h: sweeps through a scheduler, and what each of their measures is to be: the same sums over as many runs, each at one
 * depth alone, a token at a time, by sequences and batches. */
#ifndef TEST_SWEPT_H
#define TEST_SWEPT_H

#include "example.h"
#include "scheduled.h"

enum { SWEPT_CONTEXT = 80, SWEPT_DEPTHS = 6 };

/* A sweep, and what came of it. */
typedef struct swept {
    gathering *with;
    descent_sweep_options options; /* `done` and `user` are filled in */
    descent_depth depths[SWEPT_DEPTHS];
    uint32_t tokens[SWEPT_CONTEXT + 1];
    descent_generation *handle; /* until it has ended */
    size_t order;               /* those that ended before it */
    descent_sweep_result result;
    descent_measure measures[SWEPT_DEPTHS];
    descent_measure alone[SWEPT_DEPTHS]; /* what they are to be */
} swept;

/* A few ways to run a scheduler. */
enum { SWEPT_WAYS = 3 };
extern const descent_scheduler_options swept_ways[SWEPT_WAYS];

/* A model with a context of SWEPT_CONTEXT. */
example swept_example(uint64_t test, size_t round);
/* At most `longest` tokens, anything else that may be asked but an exit. The caller frees it. */
swept *swept_draw(const example *e, rng *r, size_t longest);
/* Fills in `alone` by runs of each depth. */
void swept_expect(const descent_model *model, descent_page_type page_type, swept *s);

/* Submits it, which must succeed. */
void swept_submit(descent_scheduler *scheduler, gathering *with, swept *s);
/* Runs one in a scheduler of its own. */
void swept_run(const descent_model *model, swept *s, const descent_scheduler_options *how);
/* Every measure is there and what it is to be: to the rounding of sums in double, or the same bits. */
void compare_swept(const swept *s, bool bits);

#endif
