/* inspect.h: what `descent trace` has seen of a text's descents, and the forms it is shown in. The record is the server's own
 * (server/trace.h), so that a file of --json reads as an answer of /v1/descent/trace does. */
#ifndef DESCENT_TOOLS_INSPECT_H
#define DESCENT_TOOLS_INSPECT_H

#include "../server/states.h"
#include "../server/trace.h"
#include "session.h"

#include <jansson.h>
#include <stdio.h>

typedef struct inspection {
    const session *with;
    descent_depth depth;
    const uint32_t *tokens; /* [count] */
    size_t count;
    tracer_options options;
    token_trace **traces; /* [count] */
    float *logprobs;      /* [count] of each token given those before it; NaN for the first */
    uint64_t row_steps, logits_read;
    states_choice choice;
    states_record *states; /* x and g of every place; NULL: not kept */
} inspection;

/* A text's descents at `depth`, `top` guesses and the tracked tokens read of each state, the states kept too where `states`.
 * EXIT_SUCCESS, or the exit code after a message; *seen is released in either case. `tokens` and `track` outlive it. */
int inspect(const session *with, descent_depth depth, const uint32_t *tokens, size_t count, size_t top, const uint32_t *track,
            size_t n_track, bool states, inspection *seen);
void inspection_release(inspection *seen);

/* ---- Looking things up ------------------------------------------------------------------------------------------- */

size_t inspection_descents(const inspection *seen); /* of a token: layers x kinds */
/* The numbers [TRACE_NUMBERS] of state t of a token's descent; NULL where it stopped before. */
const float *inspection_at(const inspection *seen, size_t position, size_t descent, size_t t);
/* The sum of its energy terms; NaN where there are none. */
double inspection_energy(const inspection *seen, size_t position, size_t descent, size_t t);
/* T of a descent. */
size_t inspection_steps(const inspection *seen, size_t descent);
/* The lowest and highest energy of a descent over all tokens; false where it has none. */
bool inspection_range(const inspection *seen, size_t descent, double *low, double *high);
/* The reading of state t, an index into a trace's guesses and tracked; false where that state is not read. */
bool inspection_reading(const inspection *seen, size_t position, size_t descent, size_t t, size_t *reading);
/* A token as it is shown: its piece, quoted where `quoted`, escaped, or its id without a tokenizer. */
void inspect_print_token(const session *with, uint32_t token, bool quoted, FILE *to);

/* ---- Its forms --------------------------------------------------------------------------------------------------- */

void inspect_print_map(const inspection *seen, FILE *to); /* tokens x steps, in colour or shades */
void inspect_print_table(const inspection *seen, FILE *to);
void inspect_print_csv(const inspection *seen, FILE *to);
void inspect_print_svg(const inspection *seen, FILE *to);

/* ---- The theory -------------------------------------------------------------------------------------------------- */

/* Whether the energy falls where it must: slopes along the descent, and dE_own at step scales 1, 1/2, 1/4 ... 2^-halvings. A
 * table, or where `json` an object into *report. The result is the exit code. */
int inspect_theory(const session *with, descent_depth depth, const uint32_t *tokens, size_t count, unsigned halvings, bool json,
                   json_t **report);

#endif
