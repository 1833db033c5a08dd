/* compare.c: tolerances in one place, so that no test has its own. */
#include "compare.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char about[512];
static double worst_logit, worst_state, worst_energy;

void compare_about(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(about, sizeof about, format, arguments);
    va_end(arguments);
}

_Noreturn void compare_fail(const char *format, ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    fail_msg("%s: %s", about, message);
    abort(); /* fail_msg does not return, and does not say so */
}

/* True when |got - expected| <= allowed; a NaN is never close. */
static bool close_enough(double got, double expected, double allowed, double *worst)
{
    double part = fabs(got - expected) / allowed;
    if (part > *worst) *worst = part;
    return part <= 1.0;
}

void compare_logits(const float *got, const double *expected, size_t rows, size_t vocab, const char *where)
{
    for (size_t i = 0; i < rows * vocab; i++)
        if (!close_enough((double)got[i], expected[i], 2e-5 * fmax(1.0, fabs(expected[i])), &worst_logit))
            compare_fail("%s: logit %zu of row %zu is %.9g, expected %.9g", where, i % vocab, i / vocab, (double)got[i],
                         expected[i]);
}

void compare_states(const float *got, const double *expected, size_t rows, size_t width, const char *where)
{
    for (size_t r = 0; r < rows; r++) {
        double largest = 1.0;
        for (size_t c = 0; c < width; c++) largest = fmax(largest, fabs(expected[r * width + c]));
        for (size_t c = 0; c < width; c++)
            if (!close_enough((double)got[r * width + c], expected[r * width + c], 2e-5 * largest, &worst_state))
                compare_fail("%s: x[%zu] of row %zu is %.9g, expected %.9g (largest of the row %.9g)", where, c, r,
                             (double)got[r * width + c], expected[r * width + c], largest);
    }
}

void compare_energy(double got, double expected, const char *what, size_t step, size_t position)
{
    if (isnan(got) && isnan(expected)) return;
    if (!close_enough(got, expected, 1e-4 * fmax(1.0, fabs(expected)), &worst_energy))
        compare_fail("%s at step %zu, position %zu is %.9g, expected %.9g", what, step, position, got, expected);
}

void compare_bits(const float *got, const float *expected, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&got[i], &expected[i], sizeof *got) && !(isnan(got[i]) && isnan(expected[i])))
            compare_fail("%s: number %zu of %zu is %.9g, expected the bits of %.9g", what, i, count, (double)got[i],
                         (double)expected[i]);
}

void compare_report(void)
{
    if (getenv("DESCENT_TEST_MARGINS"))
        fprintf(stderr, "largest error as a part of what is allowed: logits %.3f, states %.3f, energies %.3f\n", worst_logit,
                worst_state, worst_energy);
}
