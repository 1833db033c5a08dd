/* setting.h: a scheduler over a random model, and the generations a test submits to it.
 *
 * What happens in which order is made certain by a gate: a generation whose first token the scheduler's thread hands to a
 * callback that waits. What is submitted or cancelled meanwhile, the thread finds all at once when the gate opens. */
#ifndef TEST_SETTING_H
#define TEST_SETTING_H

#include "example.h"
#include "scheduled.h"

enum { SETTING_CONTEXT = 120, SETTING_TOKENS = 100, SETTING_MOST = 8 };

typedef struct setting {
    example e; /* a model of a context of SETTING_CONTEXT, a text of SETTING_TOKENS; no reference */
    descent_scheduler *scheduler;
    gathering with;
    scheduled runs[SETTING_MOST];
    size_t count; /* submitted */
} setting;

/* A model of family `kind` and a scheduler of one thread. setting_start replaces that by one of these options. */
setting setting_up(uint64_t test, size_t kind, const descent_scheduler_options *options);
void setting_start(setting *s, const descent_scheduler_options *options);
/* Waits for all, each of which must end once. A setting must lie where it stays. */
void setting_down(setting *s);
/* What remains where a test has destroyed the scheduler itself. */
void setting_release_model(setting *s);

/* The text's `count` tokens from `from` on, continued by `limit`. */
scheduled setting_ask(const setting *s, size_t from, size_t count, size_t limit);
scheduled *setting_submit(setting *s, scheduled run);
/* The scheduler's thread stands still until gathering_open. */
scheduled *setting_shut(setting *s, scheduled run);

/* It is the text that is made alone. */
void setting_expect_alone(const setting *s, const scheduled *run);
uint64_t setting_row_steps(const setting *s);

/* Callbacks for what is refused, or of no interest. */
void never_observed(void *user, const descent_observation *observation);
bool never_chosen(void *user, const descent_choice *choice);
void never_ended(void *user, const descent_generation_report *report);

#endif
