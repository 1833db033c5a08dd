/* grow.c: see grow.h. */
#include "grow.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool grow(void *array, size_t count, size_t more, size_t *room, size_t size)
{
    if (more <= *room - count) return true;
    size_t want = *room ? *room : 16;
    while (want - count < more && want <= SIZE_MAX / 2 / size) want *= 2;
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    grown = want - count >= more ? realloc(old, want * size) : NULL;
    if (!grown) return false;
    memcpy(array, &grown, sizeof grown);
    *room = want;
    return true;
}
