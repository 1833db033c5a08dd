/* golden.h: the golden models, converted, with the numbers another implementation gives for them.
 *
 * tests/golden/NAME holds the checkpoint and expected.safetensors; the converter has put NAME.gguf into the directory named
 * by DESCENT_GOLDEN_DIR. Expected: tokens [L], logits.D [L][V], and where there are any state.D [L][C], energies
 * [T][L] (energy.attn.D, energy.ff.D), of CEM [layer][T][L] (energy.attn.D, energy.mlp.D), D being T5 or Ta3.Tm1. */
#ifndef TEST_GOLDEN_H
#define TEST_GOLDEN_H

#include "descent.h"
#include "safetensors.h"

extern const char *const golden_names[]; /* ends with NULL */

typedef struct golden {
    const char *name;
    char path[512]; /* of the GGUF file */
    safetensors *expected;
    uint32_t *tokens;
    size_t count;
    bool without_depth;
    size_t least_depths; /* that there are numbers for */
} golden;

/* Ends the test program with a message where a file is missing. */
golden golden_open(const char *name);
void golden_close(golden *model);
/* The i-th depth there are logits for, and what its arrays' names end with. False past the last. */
bool golden_depth(const golden *model, size_t i, descent_depth *depth, const char **suffix);

#endif
