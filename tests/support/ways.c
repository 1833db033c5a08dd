/* ways.c: see ways.h. */
#include "ways.h"

#include "compare.h"

void ways_widen(test_model *model)
{
    model->width = test_kinds(model->family) > 1 ? model->heads * (128 / model->heads / 2 * 2) : 121;
    model->hidden = 203;
}

void ways_change_nothing(const example *e, const drive_options *base, uint64_t seed, const char *about)
{
    static const drive_options ways[] = {{.threads = 4},
                                         {.observe = OBSERVE_ALL, .threads = 2},
                                         {.observe = OBSERVE_ALL, .chunks = DRIVE_SINGLE},
                                         {.max_rows = 1},
                                         {.max_rows = 3, .mates = 4, .chunks = DRIVE_UNEVEN},
                                         {.chunks = DRIVE_UNEVEN, .mates = 7, .observe = OBSERVE_ALL},
                                         {.chunks = DRIVE_UNEVEN, .mates = 20, .sharing = true, .threads = 2},
                                         {.chunks = DRIVE_SINGLE, .mates = 7, .sharing = true}};
    outcome expected = drive(e->engine, e->tokens, e->count, base), observed = {0};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        drive_options options = *base;
        options.threads = ways[way].threads;
        options.observe = ways[way].observe;
        options.chunks = ways[way].chunks;
        options.max_rows = ways[way].max_rows;
        options.mates = ways[way].mates;
        options.sharing = ways[way].sharing;
        options.seed = seed + way;
        compare_about("seed %llu, %s, %s, way %zu", (unsigned long long)seed, test_model_words(&e->model), about, way);
        outcome got = drive(e->engine, e->tokens, e->count, &options);
        compare_outcomes(&got, &expected);
        if (options.observe && observed.seen) compare_records(got.seen, observed.seen);
        if (options.observe && !observed.seen)
            observed = got;
        else
            outcome_free(&got);
    }
    outcome_free(&observed);
    outcome_free(&expected);
}
