/* api_error.c: see api_error.h. Messages are put together from numbers, names and what the engine says; whatever those were,
 * what comes out is valid UTF-8, so that it always becomes JSON. */
#include "api_error.h"

#include "utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Cuts an unfinished character at the end, where there was no more room; other bytes that are no character become '?'. */
static void make_valid(char *text)
{
    size_t bytes = strlen(text), length;
    for (size_t at; (at = utf8_first_invalid(text, bytes)) < bytes;) {
        if (utf8_scan(text + at, bytes - at, &length) == UTF8_UNFINISHED)
            text[bytes = at] = '\0';
        else
            text[at] = '?';
    }
}

bool api_fail(api_error *error, unsigned status, const char *param, const char *code, const char *format, ...)
{
    *error = (api_error){.status = status, .code = code};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    make_valid(error->message);
    if (param) (void)snprintf(error->param, sizeof error->param, "%s", param);
    make_valid(error->param);
    return false;
}

bool api_fail_status(api_error *error, const char *param, const descent_status *status)
{
    switch (status->code) {
    case DESCENT_BAD_ARGUMENT:
    case DESCENT_LIMIT:
        return api_fail(error, 400, param, NULL, "%s", status->message);
    case DESCENT_UNSUPPORTED:
        return api_fail(error, 400, param, "unsupported_parameter", "%s", status->message);
    case DESCENT_DIVERGED:
        return api_fail(error, 400, param, "descent_diverged", "%s", status->message);
    default:
        (void)api_fail(error, 500, param, NULL, "%s", status->message);
        error->no_retry = true;
        return false;
    }
}

static const char *type_of(unsigned status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

json_t *api_error_json(const api_error *error)
{
    return json_pack("{s{ss ss ss? ss?}}", "error", "message", error->message, "type", type_of(error->status), "param",
                     error->param[0] ? error->param : NULL, "code", error->code);
}
