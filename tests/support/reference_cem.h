/* reference_cem.h: the CEM family in float64, read off models' definition: layers of two descents each. See reference.h. */
#ifndef TEST_REFERENCE_CEM_H
#define TEST_REFERENCE_CEM_H

#include "reference.h"

reference_run reference_cem(const test_model *model, const reference_request *request);
double reference_cem_energy(const test_model *model, descent_site site, const double *keys, page_rounding round_page,
                            const double *g);

#endif
