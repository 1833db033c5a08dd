/* reference_nrgpt.h: the NRGPT family in float64, read off models' definition: one block applied T times. See reference.h. */
#ifndef TEST_REFERENCE_NRGPT_H
#define TEST_REFERENCE_NRGPT_H

#include "reference.h"

reference_run reference_nrgpt(const test_model *model, const reference_request *request);
double reference_nrgpt_energy(const test_model *model, descent_site site, const double *keys, page_rounding round_page,
                              const double *g);

#endif
