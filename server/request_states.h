/* request_states.h: what POST /v1/descent/states asks: which states of a text's descents, from where its tokens start, and how
 * they are reached into. Read from the body by request_states.c.
 */
#ifndef DESCENT_SERVER_REQUEST_STATES_H
#define DESCENT_SERVER_REQUEST_STATES_H

#include "states.h"

enum { STATES_MOST_NUMBERS = 1 << 24, STATES_MOST_CHANGES = 1024 };

typedef struct states_request {
    states_choice choice;
    uint64_t most;       /* vectors there may come to be */
    descent_reach reach; /* points to what follows */
    const char *start;   /* "embedding", "state", "noise", "previous" */
    descent_change *changes;
    descent_state *starts;
    safetensors_vector *vectors; /* numbers of starts */
    float *values;               /* numbers of changes */
} states_request;

void states_request_free(states_request *request); /* NULL is allowed */

#endif
