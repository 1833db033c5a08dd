/* bench_load.h: the work a load benchmark does twice, over HTTP and in process, and what it measures of it.
 *
 * A load is `streams` clients at once, each asking for `generations` texts one after the other. Which text, its prompt, its T,
 * its seed, is a function of (load number, stream, generation) alone, so that both ways do the same.
 *
 *     bench_serve.c    the command: a server, a scheduler, loads, the table
 *     bench_load.c     texts, and what is measured
 *     bench_http.c     a load over sockets
 *     bench_crowd.c    connections that want nothing, or read slowly
 *     bench_engine.c   a load through libdescent's scheduler
 */
#ifndef DESCENT_TOOLS_BENCH_LOAD_H
#define DESCENT_TOOLS_BENCH_LOAD_H

#include "input.h"

#include "descent.h"

#include <uv.h>

enum { BENCH_MESSAGE_SIZE = 768 };

typedef struct load_shape {
    const descent_model *model;
    const char *name;          /* as the server calls the model */
    const asked_depth *depths; /* [n_depths] the T that texts take turns at */
    size_t n_depths;
    size_t prompt_tokens, tokens; /* of each text */
} load_shape;

typedef struct load {
    const load_shape *shape;
    size_t streams, generations;
    uint64_t number; /* no two loads of a number have prompts in common */
} load;

/* The text of a stream's generation: fills prompt [shape->prompt_tokens]. */
void load_text(const load *l, size_t stream, size_t generation, uint32_t *prompt, const asked_depth **depth, int64_t *seed);

typedef struct load_samples {
    double *values; /* seconds */
    size_t count, room;
    bool failed; /* memory ran out: some are missing */
} load_samples;

void load_samples_add(load_samples *samples, double value);
/* Nearest rank, share 0..1; NaN without samples. Sorts them. */
double load_samples_at(load_samples *samples, double share);
void load_samples_release(load_samples *samples);

typedef struct load_result {
    double seconds;
    uint64_t tokens, row_steps;
    load_samples first;   /* from a request to its first token */
    load_samples between; /* between two tokens of a text */
} load_result;

void load_result_release(load_result *result);

/* Runs a load and adds to *result. False and a message where anything but the tokens asked for came. */
bool bench_engine_run(descent_scheduler *scheduler, const load *l, load_result *result, char message[BENCH_MESSAGE_SIZE]);
bool bench_http_run(uv_loop_t *loop, const struct sockaddr *server, const load *l, load_result *result,
                    char message[BENCH_MESSAGE_SIZE]);

/* Connections on the loop from now on: `idle` of them say nothing at all, `dribbling` send a request for /health a byte every
 * 0.45 s, and then the next; `slow` send `request` (copied), and read its answer a byte a second, through buffers as small as
 * may be. One that the server closes comes back. NULL without memory. */
typedef struct crowd crowd;
typedef struct crowd_shape {
    size_t idle, dribbling, slow;
    const char *request; /* may be NULL without slow ones */
} crowd_shape;
crowd *crowd_open(uv_loop_t *loop, const struct sockaddr *server, const crowd_shape *shape);
size_t crowd_connected(const crowd *c); /* idle and dribbling ones */
size_t crowd_reading(const crowd *c);   /* slow ones whose answer has begun */
void crowd_close(crowd *c);             /* runs the loop until they are gone */

#endif
