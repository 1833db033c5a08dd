/* log.h: one line a request on standard error, as a JSON object or, with --log-format text, for people; and lines of the
 * server's own life. Prompts, generated text and keys never appear: there is no field for them. Any thread. */
#ifndef DESCENT_SERVER_LOG_H
#define DESCENT_SERVER_LOG_H

#include <stddef.h>
#include <stdint.h>

typedef enum log_format { LOG_JSON, LOG_TEXT } log_format;
typedef enum log_level { LOG_INFO, LOG_WARNING, LOG_ERROR } log_level;

void log_set_format(log_format format);
/* "time", "level", "message". Control characters in the message are escaped. */
void log_line(log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct log_request {
    const char *id, *method, *path, *peer;
    unsigned status;                                /* 0: the client left before an answer */
    double seconds, queue_seconds, compute_seconds; /* of the text that took longest; compute: prompt and generation */
    const char *model; /* as requested; NULL where no model was involved: the fields below are then left out */
    const char *steps; /* T as text, "12", "3x2", "none" */
    uint64_t prompt_tokens, cached_tokens, generated_tokens, token_steps;
    uint32_t sequences;
    const char *finish;  /* "stop", "length", "cancelled", "error", ...; NULL: left out */
    const char *ignored; /* the first unknown field, once per name in a process; NULL: left out */
    const char *error;   /* the message of the answer's error; NULL: left out. Never holds text of a prompt */
} log_request;
void log_request_line(const log_request *request);

#endif
