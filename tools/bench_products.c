/* bench_products.c: see bench.h. Matrices of every type and layout of scales, as large as a part of a cache, or far beyond all
 * caches, multiplied both ways with one vector and with several. Every thread has one of its own, as a model's products have
 * their parts; reading as many bytes is timed in turns with them, since it is what the figures are held against. */
#include "bench.h"

#include <omp.h>
#include <stdlib.h>

enum { COLS = 768, MOST_VECTORS = 16, MOST_ROUNDS = 1 << 20 };

static const struct {
    descent_weight_type type;
    bool tiled;
    const char *scales;
} layouts[] = {
    {DESCENT_WEIGHT_Q8_0, true, "tile"}, {DESCENT_WEIGHT_Q8_0, false, "row"}, {DESCENT_WEIGHT_Q4_0, true, "tile"},
    {DESCENT_WEIGHT_Q4_0, false, "row"}, {DESCENT_WEIGHT_Q4_K, false, NULL},  {DESCENT_WEIGHT_Q6_K, false, NULL},
    {DESCENT_WEIGHT_F16, false, NULL},   {DESCENT_WEIGHT_BF16, false, NULL},  {DESCENT_WEIGHT_F32, false, NULL},
};
static const uint32_t vectors_at_once[] = {1, 4, MOST_VECTORS};

enum { LAYOUTS = sizeof layouts / sizeof *layouts, COUNTS = sizeof vectors_at_once / sizeof *vectors_at_once };

/* ---- Working sets ------------------------------------------------------------------------------------------------ */

typedef struct working_set {
    const char *name;
    size_t bytes; /* of all threads' matrices together */
} working_set;

enum { SETS = 3 };

static size_t cache_or(int level, size_t otherwise)
{
    size_t bytes = machine_cache(level);
    return bytes ? bytes : otherwise;
}

/* Half of what a thread's own cache has; a quarter of the shared one, which others use as well; and four times that. */
static void working_sets(size_t threads, working_set sets[SETS])
{
    size_t own = cache_or(2, 1 << 18), shared = cache_or(3, 1 << 23);
    sets[0] = (working_set){"L2", threads * own / 2};
    sets[1] = (working_set){"L3", shared / 4 > 2 * sets[0].bytes ? shared / 4 : 2 * sets[0].bytes};
    sets[2] = (working_set){"memory", 4 * shared > 1 << 27 ? 4 * shared : 1 << 27};
}

static size_t sets_of(bool quick)
{
    return quick ? 1 : SETS;
}

size_t products_largest(int threads, bool quick)
{
    working_set sets[SETS];
    working_sets((size_t)threads, sets);
    return 2 * sets[sets_of(quick) - 1].bytes; /* a matrix may take a little more than it was made for */
}

/* ---- Matrices ---------------------------------------------------------------------------------------------------- */

/* A matrix for each thread, made on it; NULL are those that were not. */
static int make(descent_trial **trials, int threads, size_t layout, size_t bytes)
{
    static const double number_bytes[] = {
        [DESCENT_WEIGHT_Q4_0] = 0.5625, [DESCENT_WEIGHT_Q4_K] = 0.5625, [DESCENT_WEIGHT_Q6_K] = 0.8203,
        [DESCENT_WEIGHT_Q8_0] = 1.0625, [DESCENT_WEIGHT_BF16] = 2,      [DESCENT_WEIGHT_F16] = 2,
        [DESCENT_WEIGHT_F32] = 4};
    size_t rows = (size_t)((double)bytes / threads / COLS / number_bytes[layouts[layout].type]) / 32 * 32;
    descent_trial_options how = {.type = layouts[layout].type,
                                 .tiled = layouts[layout].tiled,
                                 .rows = rows ? rows : 32,
                                 .cols = COLS,
                                 .vectors = MOST_VECTORS};
    descent_status failed = {.code = DESCENT_OK};
    for (int i = 0; i < threads; i++) trials[i] = NULL;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int i = 0; i < threads; i++) {
        descent_status status;
        if (descent_trial_create(&how, &trials[i], &status) != DESCENT_OK) {
#pragma omp critical
            failed = status;
        }
    }
    if (failed.code == DESCENT_OK) return EXIT_SUCCESS;
    cli_error("%s", failed.message);
    return EXIT_FAILURE;
}

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

/* Seconds that a product of each thread takes. */
static double time_products(descent_trial **trials, int threads, bool back, uint32_t vectors, uint64_t times)
{
    double begun = seconds_now();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int i = 0; i < threads; i++) (void)descent_trial_run(trials[i], back, vectors, times);
    return (seconds_now() - begun) / (double)times;
}

static uint64_t rounds_in(double seconds, double one)
{
    double rounds = seconds / one;
    return rounds < 1 ? 1 : rounds > MOST_ROUNDS ? MOST_ROUNDS : (uint64_t)rounds;
}

static void keep_least(double *least, double seconds)
{
    if (*least == 0 || seconds < *least) *least = seconds;
}

static void measure(const bench_run *b, descent_trial **trials, bench_product *p)
{
    enum { TRIES_A_REPEAT = 4 };
    size_t bytes = (size_t)p->bytes;
    double slice = b->seconds / (TRIES_A_REPEAT * 5);
    uint64_t reads = rounds_in(slice, machine_read(&b->machine, bytes, 1)), times[2];
    for (int back = 0; back < 2; back++) times[back] = rounds_in(slice, time_products(trials, b->threads, back, p->vectors, 1));
    for (int64_t i = 0; i < TRIES_A_REPEAT * b->repeats && !interrupted(); i++) {
        keep_least(&p->read, machine_read(&b->machine, bytes, reads) / (double)reads);
        for (int back = 0; back < 2; back++)
            keep_least(&p->seconds[back], time_products(trials, b->threads, back, p->vectors, times[back]));
    }
}

static int measure_layout(bench_run *b, const working_set *set, size_t layout, descent_trial **trials, progress *bar)
{
    descent_weight_type type = layouts[layout].type;
    int code = make(trials, b->threads, layout, set->bytes);
    for (size_t k = 0; k < COUNTS && code == EXIT_SUCCESS; k++) {
        bench_product *p = &b->products[b->n_products];
        bool floats = type >= DESCENT_WEIGHT_BF16;
        *p = (bench_product){.type = descent_weight_type_name(type),
                             .scales = layouts[layout].scales,
                             .set = set->name,
                             .vectors = vectors_at_once[k],
                             .peak = floats ? b->machine.f32 : b->machine.int8};
        for (int i = 0; i < b->threads; i++) {
            p->bytes += descent_trial_bytes(trials[i]);
            p->multiply_adds += descent_trial_weights(trials[i]) * p->vectors;
        }
        measure(b, trials, p);
        b->n_products++;
        progress_advance(bar, 1);
        if (interrupted()) code = EXIT_INTERRUPTED;
    }
    for (int i = 0; i < b->threads; i++) descent_trial_destroy(trials[i]);
    return code;
}

int products_measure(bench_run *b, bool quick)
{
    working_set sets[SETS];
    size_t n = sets_of(quick);
    int code = EXIT_SUCCESS;
    descent_trial **trials = calloc((size_t)b->threads, sizeof(descent_trial *));
    b->products = calloc(SETS * LAYOUTS * COUNTS, sizeof *b->products);
    if (!trials || !b->products) {
        free(trials);
        cli_error("no memory left");
        return EXIT_FAILURE;
    }
    working_sets((size_t)b->threads, sets);
    progress bar = progress_begin("products", "of them", n * LAYOUTS * COUNTS);
    for (size_t s = 0; s < n && code == EXIT_SUCCESS; s++)
        for (size_t layout = 0; layout < LAYOUTS && code == EXIT_SUCCESS; layout++)
            code = measure_layout(b, &sets[s], layout, trials, &bar);
    progress_end(&bar);
    free(trials);
    return code;
}
