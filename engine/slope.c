/* slope.c: the derivative of a norm along a step, and with it the energy's along the step: grad_g^T J_norm R grad_g, which a
 * family takes of each observed row where DESCENT_OBSERVE_SLOPE asks for it (nrgpt.c, cem.c). With y = (x - mean) / sigma,
 * sigma^2 = the mean square of x - mean, plus eps (RMSNorm: without the means), and g = weight y,
 *
 *     (J v)_c = weight_c (v_c - mean(v) - y_c mean(y v)) / sigma
 *
 * so that for v = weight * grad, what R = c diag(weight) makes of it, the whole is a sum of squares less what lies along y
 * (and, of LayerNorm, along 1): never negative. */
#include "slope.h"

#include <math.h>

double slope_along(const slope_norm *norm, size_t width, const float *x, const float *gradient, const float *step)
{
    double n = (double)width, mean_x = 0, mean_v = 0, square = 0, along = 0, slope = 0;
    for (size_t c = 0; c < width && norm->centred; c++) {
        mean_x += (double)x[c] / n;
        mean_v += (double)step[c] / n;
    }
    for (size_t c = 0; c < width; c++) square += ((double)x[c] - mean_x) * ((double)x[c] - mean_x) / n;
    double sigma = sqrt(square + (double)norm->eps);
    for (size_t c = 0; c < width; c++) along += ((double)x[c] - mean_x) / sigma * (double)step[c] / n;
    for (size_t c = 0; c < width; c++) {
        double y = ((double)x[c] - mean_x) / sigma;
        slope += (double)gradient[c] * (double)norm->weight[c] * ((double)step[c] - mean_v - y * along) / sigma;
    }
    return slope;
}

rate_sum rate_sum_none(void)
{
    return (rate_sum){.low = INFINITY, .high = -INFINITY};
}

void rate_sum_row(rate_sum *sum, size_t r, const double *row, size_t width, double factor, float weight)
{
    double along = factor * row[r] / (double)weight;
    sum->low = fmin(sum->low, along);
    sum->high = fmax(sum->high, along);
    for (size_t c = 0; c < width; c++) *(c == r ? &sum->on : &sum->off) += factor * row[c] * factor * row[c];
}

void rate_sum_end(const rate_sum *sum, descent_rate *rate)
{
    double all = sum->on + sum->off;
    *rate = (descent_rate){.low = sum->low, .high = sum->high, .off_diagonal = all > 0 ? sum->off / all : 0};
}
