/* motion.h: the options of commands that say how a descent's steps move, and what they read of earlier tokens. */
#ifndef DESCENT_TOOLS_MOTION_H
#define DESCENT_TOOLS_MOTION_H

#include "cli.h"

#include "descent.h"

typedef struct motion_options {
    const char *step_scale;
    double momentum;
    int rule;
    const char *noise, *solver;
    int history;
    int64_t prompt_steps; /* 0: those of all */
} motion_options;

enum { MOTION_OPTIONS = 7 };

/* Fills table[0..MOTION_OPTIONS-1]. */
void motion_option_table(motion_options *options, cli_option *table);

/* What they say. The result is the exit code; a usage error has been told. Whether the model has it is the library's to say. */
int read_motion(const cli_command *command, const motion_options *options, descent_motion *motion, descent_solver *solver,
                descent_history *history);

#endif
