/* trace.h: what one text's descents looked like, collected from the engine's observations and shown as a table or as
 * JSON. The descent shown for a generated token is the one that chose it: of the token before it. */
#ifndef DESCENT_TOOLS_TRACE_H
#define DESCENT_TOOLS_TRACE_H

#include "session.h"

#include <jansson.h>
#include <stdio.h>

typedef struct trace {
    size_t first;               /* the first position that is kept: the prompt's last */
    descent_observation *steps; /* without their vectors */
    size_t count, room;
    bool incomplete; /* memory ran out: the rest was dropped */
} trace;

/* What it is made of, as flags of an observer; and one more observation. `first` is set before. */
enum { TRACE_OBSERVES = DESCENT_OBSERVE_ENERGY | DESCENT_OBSERVE_CONVERGENCE | DESCENT_OBSERVE_FINAL };
void trace_add(trace *to, const descent_observation *observation);
void trace_release(trace *of);

/* A block per generated token: its text, the energy's course, and a line per step. `tokens` [count] are those chosen. */
void trace_print(const trace *of, const session *with, const uint32_t *tokens, size_t count, FILE *to);

/* An array with one object per generated token; NULL when memory ran out. */
json_t *trace_json(const trace *of, const session *with, const uint32_t *tokens, size_t count);

/* A token's text as JSON: its piece, or "bytes:\xe2\x80" where that alone is no UTF-8, or null without a tokenizer. */
json_t *token_json(const session *with, uint32_t token);

#endif
