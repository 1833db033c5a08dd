/* status.h: how the engine's own files report an error. See "Status" in descent.h. */
#ifndef DESCENT_STATUS_H
#define DESCENT_STATUS_H

#include "descent.h"

/* Fills *status (where not NULL) with code and the formatted message and returns code. Control bytes that a name from a
 * file may carry are replaced, so that a message is always one printable line. */
descent_code descent_fail(descent_status *status, descent_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Clears *status (where not NULL) and returns DESCENT_OK. */
descent_code descent_ok(descent_status *status);

/* calloc of count * size bytes with the overflow checked, memory aligned to 64 bytes, released with free(). NULL when it
 * does not fit; the caller reports. */
void *descent_alloc(size_t count, size_t size);

#endif
