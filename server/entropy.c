/* entropy.c: see entropy.h. A request takes a few bytes three times; the system is asked for many at once. */
#include "entropy.h"

#include <pthread.h>
#include <string.h>
#include <uv.h>

enum { POOL_BYTES = 2048 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char pool[POOL_BYTES];
static size_t left; /* the first so many were not given away */

bool entropy_take(void *out, size_t bytes)
{
    if (bytes > POOL_BYTES) return uv_random(NULL, NULL, out, bytes, 0, NULL) == 0;
    (void)pthread_mutex_lock(&lock);
    if (left < bytes && uv_random(NULL, NULL, pool, POOL_BYTES, 0, NULL) == 0) left = POOL_BYTES;
    bool enough = left >= bytes;
    if (enough) {
        left -= bytes;
        memcpy(out, pool + left, bytes);
        memset(pool + left, 0, bytes); /* nobody finds here later what somebody has */
    }
    (void)pthread_mutex_unlock(&lock);
    return enough;
}
