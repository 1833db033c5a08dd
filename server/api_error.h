/* api_error.h: what a request is refused with: {"error": {"message", "type", "param", "code"}} and its HTTP status. Values;
 * no thread of their own. */
#ifndef DESCENT_SERVER_API_ERROR_H
#define DESCENT_SERVER_API_ERROR_H

#include "descent.h"

#include <jansson.h>

enum { API_MESSAGE_SIZE = 1024, API_PARAM_SIZE = 128 };

typedef struct api_error {
    unsigned status; /* 0: no error */
    char message[API_MESSAGE_SIZE];
    char param[API_PARAM_SIZE]; /* "descent.steps"; empty: null */
    const char *code;           /* "context_length_exceeded"; NULL: null. A literal */
    unsigned retry_after;       /* seconds, 1..60; 0: no header */
    bool no_retry;              /* x-should-retry: false */
    bool quotes_prompt;         /* the message names a character or word of a prompt: the log leaves it out */
} api_error;

/* Fills *error and returns false, so that a reader can `return api_fail(...)`. Message and param become valid UTF-8, cut to
 * their room; `param` may be NULL. The type follows from the status: 400 invalid_request_error, 401 authentication_error, 403
 * permission_error, 404 not_found_error, 405, 413, 415 invalid_request_error, 429 rate_limit_error, 5xx server_error. */
bool api_fail(api_error *error, unsigned status, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* From the engine's: BAD_ARGUMENT 400, UNSUPPORTED 400 unsupported_parameter, LIMIT 400 (names both numbers), DIVERGED 400
 * descent_diverged, else 500 with no_retry. */
bool api_fail_status(api_error *error, const char *param, const descent_status *status);

/* The body. New reference; NULL without memory. */
json_t *api_error_json(const api_error *error);

#endif
