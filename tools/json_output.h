/* json_output.h: how a command with --json ends: one object, on one line. */
#ifndef DESCENT_TOOLS_JSON_OUTPUT_H
#define DESCENT_TOOLS_JSON_OUTPUT_H

#include <jansson.h>

/* Writes the object, reals with `digits` significant digits, and releases it. NULL stands for one that memory did not
 * suffice for. The result is the exit code. */
int json_output(json_t *object, size_t digits);

/* A depth as it is written on the command line: a number for "12", text for "3x2" and "none". */
json_t *json_depth(const char *text);

/* A number, or null where JSON has no word for it. */
json_t *json_number(double value);

#endif
