/* commands.h: the subcommands, one function each, one file each. argv[0] is the subcommand's own name; the result is the
 * process's exit code: 0, 1 on failure, 2 for a mistake in the command line, 130 when Ctrl-C ended it. */
#ifndef DESCENT_TOOLS_COMMANDS_H
#define DESCENT_TOOLS_COMMANDS_H

int command_run(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_trace(int argc, char **argv);
int command_scale(int argc, char **argv);
int command_info(int argc, char **argv);
int command_quantize(int argc, char **argv);
int command_serve(int argc, char **argv);
int command_bench(int argc, char **argv);

#endif
