/* reach.h: how a generation's prompt is reached into: what was asked (descent_reach), checked and copied, and applied to each
 * sequence that computes it. */
#ifndef DESCENT_REACH_H
#define DESCENT_REACH_H

#include "descent.h"

/* Checks what is asked of a prompt of `count` tokens, computed as the completed `how` says, and copies it. `asked` NULL: *out
 * becomes NULL. */
descent_code reach_copy(const descent_model *model, const descent_sequence_options *how, const descent_reach *asked,
                        size_t count, descent_reach **out, descent_status *status);
void reach_free(descent_reach *reach); /* NULL is allowed */

/* Behind the append of the prompt's `count` tokens, and of those chosen before a pause: interventions and starts that are known
 * by then. */
descent_code reach_apply(const descent_reach *reach, descent_sequence *sequence, size_t count, descent_status *status);

/* Whether tokens run one after another, each started from the last state of the one before; and, before the next one is
 * enrolled and with no row in a batch, its start. */
bool reach_follows(const descent_reach *reach);
descent_code reach_next(descent_sequence *sequence, descent_status *status);

#endif
