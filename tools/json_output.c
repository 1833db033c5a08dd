/* json_output.c: see json_output.h. */
#include "json_output.h"

#include "cli.h"
#include "terminal.h"

#include <math.h>
#include <stdlib.h>

int json_output(json_t *object, size_t digits)
{
    bool failed = !object || json_dumpf(object, stdout, JSON_REAL_PRECISION(digits)) != 0;
    json_decref(object);
    if (!failed) {
        putchar('\n');
        return EXIT_SUCCESS;
    }
    if (output_flush()) cli_error("no memory left for the JSON object"); /* otherwise output_close says what failed */
    return EXIT_FAILURE;
}

json_t *json_depth(const char *text)
{
    int64_t number;
    return cli_read_integer(text, 1, INT64_MAX, &number) ? json_integer(number) : json_string(text);
}

json_t *json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}
