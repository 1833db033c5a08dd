/* reference_llama.h: Llama's two sub-layers in float64, as reference_cem.c composes them with CEM's. See reference.h. */
#ifndef TEST_REFERENCE_LLAMA_H
#define TEST_REFERENCE_LLAMA_H

#include "reference.h"

/* What a sub-layer adds to x, from g = norm(x) of every token: g and out are [count][C]. */
void reference_llama_attention(const test_model *model, size_t layer, page_rounding round_page, const double *g, size_t count,
                               double *out);
void reference_swiglu(const test_model *model, size_t layer, const double *g, size_t count, double *out);

#endif
