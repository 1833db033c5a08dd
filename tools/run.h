/* run.h: between run.c, which reads the options of `descent run`, and interactive.c, its dialogue. */
#ifndef DESCENT_TOOLS_RUN_H
#define DESCENT_TOOLS_RUN_H

#include "completion.h"

/* Reads prompts from the terminal, one a line, and continues each, until Ctrl-D or /quit. `options` are those of the
 * command line, to which /reset returns. The result is the exit code. */
int run_interactive(const session *with, const completion_options *options, int encode_flags);

#endif
