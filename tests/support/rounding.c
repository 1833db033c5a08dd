/* rounding.c: the reference run with rounded vectors, and what the engine is then compared with. */
#include "rounding.h"

#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WAYS = 4 };

static double distance(const double *a, const double *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrt(sum / (double)count);
}

rounding rounding_of(const test_model *model, const reference_request *request, const reference_run *exact)
{
    rounding farthest = {0, 0};
    for (uint64_t way = 1; way <= WAYS; way++) {
        reference_round_vectors(way);
        reference_run run = reference_compute(model, request);
        reference_round_vectors(0);
        farthest.logits = fmax(farthest.logits, distance(run.logits, exact->logits, run.count * run.vocab));
        farthest.states = fmax(farthest.states, distance(run.states, exact->states, run.count * run.width));
        reference_free(&run);
    }
    return farthest;
}

static void compare_part(const float *got, const double *exact, size_t count, double rounded, const char *what)
{
    double *wide = test_alloc(count, sizeof *wide);
    for (size_t i = 0; i < count; i++) wide[i] = (double)got[i];
    double far = distance(wide, exact, count), size = 0;
    for (size_t i = 0; i < count; i++) size = fmax(size, fabs(exact[i]));
    free(wide);
    if (getenv("DESCENT_TEST_MARGINS"))
        fprintf(stderr, "%s: off by %.2g, %.2f of what rounding does\n", what, far, far / rounded);
    if (!(far <= 3 * rounded + 2e-5 * fmax(1, size)))
        compare_fail("%s are %.3g from the reference, where rounding its vectors takes it %.3g", what, far, rounded);
}

void compare_rounded(const outcome *got, const reference_run *exact, const rounding *allowed)
{
    compare_part(got->logits, exact->logits, exact->count * exact->vocab, allowed->logits, "logits");
    compare_part(got->states, exact->states, exact->count * exact->width, allowed->states, "states");
}
