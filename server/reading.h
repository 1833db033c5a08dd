/* reading.h: a request's body, read into what is asked for. Parsing and tokenizing megabytes takes seconds on a busy machine,
 * and the loop writes everybody's streams: a long body is read on another thread.
 */
#ifndef DESCENT_SERVER_READING_H
#define DESCENT_SERVER_READING_H

#include "json_text.h"
#include "service.h"

typedef struct reading reading;

struct reading {
    exchange *exchange; /* the loop's: `read` leaves it alone */
    const service *service;
    http_body_text body;        /* ours */
    api_error error;            /* .status 0: none */
    request_kind kind;          /* of the request to be read */
    generation_request request; /* what was read: `use` takes it, or it is released */
    json_text answer;           /* or what there is to answer at once */
    void (*read)(reading *r);
    void (*use)(reading *r);
    uv_work_t work;
};

/* Takes the exchange's body and calls `read` with it, at once or on another thread, where of the service only models and
 * options may be looked at, which stay as they are; then, on the loop's thread, `use`, which answers. A request whose reading
 * failed is refused with `error`, one whose client has left is forgotten: without `use`. */
void reading_start(exchange *x, request_kind kind, void (*read)(reading *r), void (*use)(reading *r));

#endif
