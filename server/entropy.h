/* entropy.h: random bytes for what must not come twice: ids, seeds that nobody gave. Any thread. */
#ifndef DESCENT_SERVER_ENTROPY_H
#define DESCENT_SERVER_ENTROPY_H

#include <stdbool.h>
#include <stddef.h>

/* Fills `out` with bytes of the system's that nobody else gets. False where the system has none: `out` is as it was. */
bool entropy_take(void *out, size_t bytes);

#endif
