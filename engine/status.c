/* status.c: building messages, and the one allocator the engine uses. Owns nothing. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void *descent_alloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > (size_t)1 << 47) return NULL;
    size_t rounded = (bytes + 63) & ~(size_t)63;
    void *memory = aligned_alloc(64, rounded ? rounded : 64);
    if (memory) memset(memory, 0, rounded ? rounded : 64);
    return memory;
}

void descent_free(void *memory)
{
    free(memory);
}
