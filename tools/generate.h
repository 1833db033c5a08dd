/* generate.h: many texts at once through a batch, as eval --file needs them, and the room that a text has. */
#ifndef DESCENT_TOOLS_GENERATE_H
#define DESCENT_TOOLS_GENERATE_H

#include "session.h"
#include "terminal.h"

/* Most tokens that can follow a prompt: the last is read from the context's last position. */
size_t generation_room(const session *with, size_t prompt_count);

/* Steps until every token of every sequence is finished, rows of all side by side; or until Ctrl-C, then what was done
 * stays. Returns the first failure. `bar` (may be NULL) advances by rows. */
descent_code advance_all(const session *with, descent_sequence *const *sequences, size_t n, progress *bar,
                         descent_status *status);

#endif
