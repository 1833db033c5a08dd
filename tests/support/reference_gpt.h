/* reference_gpt.h: the authors' baselines in float64, read off models' definition: GPT's blocks one behind the other, or the
 * one block of GPT_Rec_parallel applied T times. See reference.h. */
#ifndef TEST_REFERENCE_GPT_H
#define TEST_REFERENCE_GPT_H

#include "reference.h"

reference_run reference_gpt(const test_model *model, const reference_request *request);
reference_run reference_gpt_rec_parallel(const test_model *model, const reference_request *request);

#endif
