/* grow.c: see grow.h. */
#include "grow.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Most arrays of a short text never grow again. */
enum { FIRST_BYTES = 1024, FIRST_COUNT = 16 };

bool grow(void *array, size_t count, size_t more, size_t *room, size_t size)
{
    if (more <= *room - count) return true;
    size_t first = FIRST_BYTES / size > FIRST_COUNT ? FIRST_BYTES / size : FIRST_COUNT, want = *room ? *room : first;
    while (want - count < more && want <= SIZE_MAX / 2 / size) want *= 2;
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    grown = want - count >= more ? realloc(old, want * size) : NULL;
    if (!grown) return false;
    memcpy(array, &grown, sizeof grown);
    *room = want;
    return true;
}
