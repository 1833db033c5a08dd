/* status.c: building messages, and the one allocator the engine uses. Owns nothing. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LINE = 64, LARGE = 2 << 20 }; /* bytes of a cache line, and of the system's large pages */

descent_code descent_fail(descent_status *status, descent_code code, const char *format, ...)
{
    if (status) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(status->message, sizeof status->message, format, arguments);
        va_end(arguments);
        for (char *c = status->message; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
        status->code = code;
    }
    return code;
}

descent_code descent_ok(descent_status *status)
{
    if (status) {
        status->code = DESCENT_OK;
        status->message[0] = '\0';
    }
    return DESCENT_OK;
}

void memory_is_large(void *memory, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* as good without */
#else
    (void)memory;
    (void)bytes;
#endif
}

void *descent_alloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > (size_t)1 << 47) return NULL;
    size_t unit = bytes >= LARGE ? LARGE : LINE, rounded = (bytes + unit - 1) & ~(unit - 1);
    void *memory = aligned_alloc(unit, rounded ? rounded : unit);
    if (memory && unit == LARGE) memory_is_large(memory, rounded);
    if (memory) memset(memory, 0, rounded ? rounded : unit);
    return memory;
}

void descent_free(void *memory)
{
    free(memory);
}
