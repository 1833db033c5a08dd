/* slope.h: how steeply the energy falls along a step, for who looks inside. */
#ifndef DESCENT_SLOPE_H
#define DESCENT_SLOPE_H

#include "descent.h"

/* The norm that makes g of x. */
typedef struct slope_norm {
    const float *weight; /* [C] */
    float eps;
    bool centred; /* LayerNorm; otherwise RMSNorm */
} slope_norm;

/* gradient^T J step, J = dg/dx of the norm at x: what the energy loses per unit of a small move of x by -step, when
 * `gradient` is its gradient at g = norm(x). Arrays are [width]; sums are in double, in order of the index. */
double slope_along(const slope_norm *norm, size_t width, const float *x, const float *gradient, const float *step);

/* A matrix R beside the norm's weight, row by row: begin with rate_sum_none, add rows 0 .. C-1 times `factor`, and end. */
typedef struct rate_sum {
    double low, high, on, off;
} rate_sum;
rate_sum rate_sum_none(void);
void rate_sum_row(rate_sum *sum, size_t r, const double *row, size_t width, double factor, float weight);

void rate_sum_end(const rate_sum *sum, descent_rate *rate);

#endif
