/* compare.h: equality as the numbers section of the models' definition has it for f32 against float64. A failed
 * comparison fails the running test and says where, how far, and the words given (format as printf's). */
#ifndef TEST_COMPARE_H
#define TEST_COMPARE_H

#include <stdbool.h>
#include <stddef.h>

/* Says what is compared in messages that follow: the model, its seed, the way it was run. */
void compare_about(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Within 2e-5 * max(1, |expected|). */
void compare_logits(const float *got, const double *expected, size_t rows, size_t vocab, const char *where);
/* Within 2e-5 * max(1, largest |expected| of the row). */
void compare_states(const float *got, const double *expected, size_t rows, size_t width, const char *where);
/* Within 1e-4 * max(1, |expected|); NaN where NaN is expected. */
void compare_energy(double got, double expected, const char *what, size_t step, size_t position);
/* The same bits; NaN equals NaN. */
void compare_bits(const float *got, const float *expected, size_t count, const char *what);

/* Fails the running test with a message behind what compare_about said. */
_Noreturn void compare_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Largest error seen so far as a part of what is allowed, by kind of number. For the curious: DESCENT_TEST_MARGINS. */
void compare_report(void);

#endif
