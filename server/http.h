/* http.h: HTTP over libmicrohttpd, driven by a libuv loop: listeners, connections, bodies, answers, streams, limits of time and
 * size, and clients that leave. Knows nothing of models or JSON; what to answer is the handler's affair (service.c).
 *
 * Everything here runs on the loop's thread, callbacks too; nothing here may be called from another one.
 *
 *     headers arrive -> handler.headers (may answer: no key, no such path, body too large; what the client still sends is then
 *     read and discarded up to a limit, so that it reads the answer) -> body arrives -> handler.complete -> http_reply, or
 *     http_stream_start, _write ..., _end -> the answer is out -> handler.done
 *
 * A client that leaves in between (FIN, RST, vanished) is told by handler.gone, once, and then handler.done. A FIN counts as
 * leaving where complete has returned without an answer, and during a stream: that only the sending side was shut is not to be
 * seen.
 */
#ifndef DESCENT_SERVER_HTTP_H
#define DESCENT_SERVER_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum { HTTP_MESSAGE_SIZE = 512, HTTP_ID_SIZE = 129 };

/* Memory of bodies: of those that are coming, and of those that http_take_body has given out. Listeners may share one, which
 * outlives them and what was taken. Loop thread only. */
typedef struct http_budget {
    uint64_t most, used; /* bytes */
} http_budget;

/* NULL has room for anything. */
bool http_budget_has(const http_budget *budget, uint64_t bytes);

/* A body on its own. */
typedef struct http_body_text {
    char *text; /* [bytes], NUL-terminated; NULL where it is empty */
    size_t bytes, room;
    http_budget *budget;
} http_body_text;

typedef struct http_server http_server;
typedef struct http_request http_request; /* from its headers until handler.done returns */

typedef struct http_handler {
    void (*headers)(void *user, http_request *request);
    void (*complete)(void *user, http_request *request);
    /* Nobody reads the answer any more: stop the work; writing is allowed and lost. */
    void (*gone)(void *user, http_request *request);
    void (*done)(void *user, http_request *request); /* the last call, where the request has no headers any more; releases
                                                        what http_set_context was given */
    void *user;
} http_handler;

/* Defaults are in http_options_defaults and in serve's --help. Seconds are absolute, each with a timer of its own. */
typedef struct http_options {
    const char *host;               /* address to bind, "127.0.0.1" */
    uint16_t port;                  /* 0: any free one */
    const char *tls_cert, *tls_key; /* PEM files; NULL: plain */
    uint64_t max_body;              /* bytes; more is a 413: handler.headers' where it is declared, or http's own */
    http_budget *bodies;            /* what has no room in it is a 503; NULL: no bound */
    double header_seconds;          /* from accepting, or the first byte of a later request, to the end of the headers */
    double body_seconds;            /* from there to the end of its body */
    double idle_seconds;            /* keep-alive without a request */
    double keepalive_seconds;       /* between SSE comments of a stream with nothing to say */
    double vanished_seconds;        /* without an acknowledgement, or without room for more: the client is gone */
    uint64_t discard_bytes;         /* read and discarded behind an early answer: 16 MiB or ... */
    double discard_seconds;         /* ... 5 s */
    uint32_t max_connections;       /* more wait to be accepted */
    uint32_t reserve;               /* descriptors kept for this listener when the process runs out of them, 64 at most */
    uint32_t max_per_address;       /* 0: no limit */
    const char *const
        *trusted_proxies; /* networks in CIDR, NULL-terminated: exempt from it, and believed about X-Forwarded-For */
} http_options;

http_options http_options_defaults(void);

/* Listens. On failure -1, and `message` says what is in the way (a port in use: which). Both outlive the server. The soft limit
 * of descriptors is raised to the hard one by the caller before. */
int http_listen(uv_loop_t *loop, const http_options *options, const http_handler *handler, http_server **server,
                char message[HTTP_MESSAGE_SIZE]);
uint16_t http_port(const http_server *server);
/* Reads certificate and key again; connections that stand keep theirs. On failure -1, and the old ones stay. */
int http_reload_tls(http_server *server, char message[HTTP_MESSAGE_SIZE]);
size_t http_connections(const http_server *server);
/* Stops listening, answers whoever has connected and asks within a moment, ends what is open (streams by closing the
 * connection), frees everything; `closed` is called on the loop when no handle is left. */
void http_close(http_server *server, void (*closed)(void *user), void *user);

/* ---- A request --------------------------------------------------------------------------------------------------- */

void http_set_context(http_request *request, void *context);
void *http_context(const http_request *request);

const char *http_method(const http_request *request);
const char *http_path(const http_request *request);                     /* without authority and query, percent-decoded */
const char *http_query(const http_request *request, const char *name);  /* ?name=value, percent-decoded; NULL: none */
const char *http_header(const http_request *request, const char *name); /* NULL: none; the first where there are several */
const char *http_host(const http_request *request);                     /* the target's authority, or else the Host header */
const char *http_peer(const http_request *request);                     /* the client's address as text; see trusted_proxies */
bool http_peer_is_loopback(const http_request *request);
/* Content-Length as declared; UINT64_MAX where the body is chunked or there is none. */
uint64_t http_declared_length(const http_request *request);
/* The whole body, behind handler.complete; NUL-terminated for convenience, but may hold NULs. */
const char *http_body(const http_request *request, size_t *bytes);
/* The same, to keep behind handler.done: the caller's to release, and the request has none any more. */
http_body_text http_take_body(http_request *request);
void http_body_release(http_body_text *body);
/* The client's X-Request-Id where it is [A-Za-z0-9._-]{1,128}, or one made here. Sent back as x-request-id. */
const char *http_request_id(const http_request *request);
uint64_t http_arrived(const http_request *request); /* uv_hrtime of its first byte */

/* ---- Its answer -------------------------------------------------------------------------------------------------- */

/* Adds a header to the answer, before http_reply or http_stream_start; name and value are copied. */
void http_add_header(http_request *request, const char *name, const char *value);
/* The whole answer; the body is copied. The first answer counts, a second call is ignored. With HEAD the body is left out. */
void http_reply(http_request *request, unsigned status, const char *content_type, const char *body, size_t bytes);
/* Status 200 and headers of text/event-stream go out now, with a first comment. */
void http_stream_start(http_request *request);
/* After that: they wait until http_stream_let_go, or for the fifth of a second that the system holds what a socket sends, so
 * that what is written before leaves with them. Behind TLS, and mostly with a connection's first stream, they do not wait. */
void http_stream_hold(http_request *request);
void http_stream_let_go(http_request *request);
/* Appends bytes, copied; memory grows as the reader is slow, so the writer bounds what it writes. */
void http_stream_write(http_request *request, const char *data, size_t bytes);
size_t http_stream_pending(const http_request *request); /* bytes written here and not yet taken by the socket */
void http_stream_end(http_request *request);             /* the final chunk */
void http_stream_abort(http_request *request);           /* after what was written the connection ends without a final chunk */
bool http_answered(const http_request *request);
unsigned http_status(const http_request *request);     /* of the answer; 0: none yet */
uint64_t http_sent_bytes(const http_request *request); /* of the answer's body so far */

#endif
