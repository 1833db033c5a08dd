/* generate.h: from prompts to tokens: many texts at once, one token each a round, as eval --match needs them.
 *
 *     set up generation(s) -> generate_next until every one has ended
 */
#ifndef DESCENT_TOOLS_GENERATE_H
#define DESCENT_TOOLS_GENERATE_H

#include "session.h"
#include "terminal.h"

typedef enum generation_end {
    GENERATION_GOES_ON,
    GENERATION_EOS,   /* the model said so: `token` is EOS and no part of the text */
    GENERATION_LENGTH /* `limit` tokens are there */
} generation_end;

/* One text. The caller sets the first three; the sequence, which it owns, holds the prompt. */
typedef struct generation {
    descent_sequence *sequence;
    size_t prompt_count;
    size_t limit;   /* most tokens to generate, at least 1, at most generation_room */
    size_t count;   /* tokens chosen so far */
    uint32_t token; /* the last one chosen; appended to the sequence when the next is asked for */
    generation_end end;
} generation;

/* Most tokens that can follow a prompt: the last is read from the context's last position. */
size_t generation_room(const session *with, size_t prompt_count);

/* Chooses one more token of every text that goes on. `logits` [n][V] is scratch. Where Ctrl-C came (interrupted()) it
 * returns DESCENT_OK with nothing chosen. */
descent_code generate_next(const session *with, const descent_sampling *sampling, generation *texts, size_t n, float *logits,
                           descent_status *status);

/* Steps until every token of every sequence is finished, rows of all side by side; or until Ctrl-C, then what was done
 * stays. Returns the first failure. `bar` (may be NULL) advances by rows. */
descent_code advance_all(const session *with, descent_sequence *const *sequences, size_t n, progress *bar,
                         descent_status *status);

#endif
