/* history.h: at which of its states an earlier token is read, and how deep a prompt's tokens go: what was asked, checked, and
 * what of it makes a difference. */
#ifndef DESCENT_HISTORY_H
#define DESCENT_HISTORY_H

#include "model.h"

/* Checks what is asked beside the (completed) rest. What changes nothing becomes zero; prompt_steps stay, as another depth may
 * be asked of the same sequence. */
descent_code history_complete(const descent_model *model, descent_sequence_options *options, descent_status *status);
/* The check alone, at a depth. */
descent_code history_check(const descent_history *history, descent_depth depth, descent_status *status);

/* Of completed ones. */
bool histories_equal(const descent_history *a, const descent_history *b);

/* The T of the token at `position`. */
descent_depth history_depth(const descent_history *history, descent_depth depth, size_t position);

/* Row steps of the tokens before history->prompt, of a model that has one T; 0: there are none. */
uint32_t history_prompt_steps(const descent_history *history, descent_depth depth);

/* What tells pages at that depth apart: the policy, OWN where the others come to the same, and of LATEST the prompt's T. */
descent_history history_seed(const descent_history *history, descent_depth depth);

/* Tokens from history->prompt on are computed otherwise than tokens of a longer prompt would be in their place. */
bool history_uneven(const descent_history *history, descent_depth depth);

#endif
