/* http_answer.c: the answer to a request: whole, or a stream of events. A whole one is the daemon's once it is queued, which
 * happens in its access handler only. A stream's bytes wait in `pending`, from where the daemon's content reader takes them;
 * with nothing there it suspends the connection, and the next write wakes it. The daemon runs once a turn of the loop, so that
 * what is written in between goes out together.
 */
#include "http_internal.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PENDING_FIRST = 1024, PENDING_KEPT = 64 << 10, READER_BLOCK = 16 << 10 };

/* ---- Errors of this layer ---------------------------------------------------------------------------------------- */

int http_error_json(unsigned status, const char *message, char json[HTTP_ERROR_SIZE])
{
    const char *type = status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";
    return snprintf(json, HTTP_ERROR_SIZE, "{\"error\":{\"message\":\"%.300s\",\"type\":\"%s\",\"param\":null,\"code\":null}}",
                    message, type);
}

/* ---- Memory of streams --------------------------------------------------------------------------------------------- */

static void take_spare(http_request *request)
{
    http_server *server = request->connection->server;
    request->pending = server->spare;
    request->pending_room = server->spare_room;
    server->spare = NULL;
    server->spare_room = 0;
}

static void leave_spare(http_request *request)
{
    http_server *server = request->connection->server;
    if (request->pending_room <= server->spare_room || request->pending_room > PENDING_KEPT) return;
    free(server->spare);
    server->spare = request->pending;
    server->spare_room = request->pending_room;
    request->pending = NULL;
}

/* ---- Headers ----------------------------------------------------------------------------------------------------- */

void http_add_header(http_request *request, const char *name, const char *value)
{
    if (request->kind != HTTP_NO_ANSWER) return;
    size_t name_bytes = strlen(name) + 1, value_bytes = strlen(value) + 1;
    http_header_line *grown = realloc(request->headers, (request->n_headers + 1) * sizeof *grown);
    if (!grown) return;
    request->headers = grown;
    char *text = malloc(name_bytes + value_bytes);
    if (!text) return;
    memcpy(text, name, name_bytes);
    memcpy(text + name_bytes, value, value_bytes);
    request->headers[request->n_headers++] = (http_header_line){text, text + name_bytes};
}

/* Takes over `response`, which may be NULL: memory ran out, and the connection ends without an answer. */
static void answer_with(http_request *request, http_answer_kind kind, unsigned status, const char *content_type,
                        struct MHD_Response *response)
{
    request->kind = kind;
    request->status = status;
    request->response = response;
    if (!response) return;
    if (content_type) (void)MHD_add_response_header(response, "Content-Type", content_type);
    (void)MHD_add_response_header(response, "x-request-id", request->id);
    for (size_t i = 0; i < request->n_headers; i++)
        (void)MHD_add_response_header(response, request->headers[i].name, request->headers[i].value);
}

enum MHD_Result http_answer_queue(http_request *request)
{
    http_connection *connection = request->connection;
    /* A whole answer is on its way whoever listens; the daemon notices what cannot be sent. */
    bool streams = request->kind == HTTP_STREAM && !request->ended && !request->aborted;
    http_connection_watch(connection, streams);
    if (!request->response) return MHD_NO;
    if (request->kind == HTTP_STREAM) http_stream_cork(request, true);
    enum MHD_Result queued = MHD_queue_response(connection->mhd, request->status, request->response);
    MHD_destroy_response(request->response);
    request->response = NULL;
    request->queued = true;
    return queued;
}

void http_wake(http_request *request)
{
    if (!request->suspended) return;
    request->suspended = false;
    MHD_resume_connection(request->connection->mhd);
    http_due(request->connection->server);
}

void http_answer_release(http_request *request)
{
    for (size_t i = 0; i < request->n_headers; i++) free(request->headers[i].name);
    free(request->headers);
    if (request->response) MHD_destroy_response(request->response);
    leave_spare(request);
    free(request->pending);
}

/* ---- Whole answers ----------------------------------------------------------------------------------------------- */

void http_reply(http_request *request, unsigned status, const char *content_type, const char *body, size_t bytes)
{
    if (request->kind != HTTP_NO_ANSWER) return;
    struct MHD_Response *response = MHD_create_response_from_buffer(bytes, (void *)body, MHD_RESPMEM_MUST_COPY);
    answer_with(request, HTTP_WHOLE, status, content_type, response);
    if (strcmp(request->method, "HEAD") != 0) request->sent = bytes;
    http_wake(request);
}

/* ---- Streams ----------------------------------------------------------------------------------------------------- */

/* The daemon sends a stream's head, each block and its end apart. What leaves in the same turn of the loop leaves as one: each
 * send wakes the client. (Behind the head of a connection's first answer the daemon sets TCP_NODELAY, which lets it go.) */
void http_stream_cork(http_request *request, bool on)
{
    int value = on;
    if (request->corked == on || request->connection->identity) return; /* records of TLS are sent by themselves */
    request->corked = on;
    (void)setsockopt(request->connection->fd, IPPROTO_TCP, TCP_CORK, &value, sizeof value);
}

/* The daemon closes the connection when read_stream returns this, but does not clean up (0.9.75): the socket would stay open
 * until no older connection is left. It does look at every connection that has a timeout of its own each time it runs. */
static ssize_t close_connection(http_request *request, ssize_t how)
{
    (void)MHD_set_connection_option(request->connection->mhd, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
    http_due(request->connection->server);
    return how;
}

static ssize_t read_stream(void *user, uint64_t position, char *out, size_t most)
{
    http_request *request = user;
    (void)position;
    if (request->gone) return close_connection(request, MHD_CONTENT_READER_END_WITH_ERROR);
    size_t bytes = request->pending_end - request->pending_at;
    if (bytes) {
        if (bytes > most) bytes = most;
        memcpy(out, request->pending + request->pending_at, bytes);
        request->pending_at += bytes;
        request->sent += bytes;
        if (request->ended) http_stream_cork(request, true);
        if (request->pending_at == request->pending_end) {
            request->pending_at = request->pending_end = 0;
            if (request->pending_room > PENDING_KEPT) { /* the reader was slow once */
                free(request->pending);
                request->pending = NULL;
                request->pending_room = 0;
            }
        }
        return (ssize_t)bytes;
    }
    if (request->aborted) return close_connection(request, MHD_CONTENT_READER_END_WITH_ERROR);
    if (request->ended && !request->chunked) return close_connection(request, MHD_CONTENT_READER_END_OF_STREAM);
    if (request->ended) return MHD_CONTENT_READER_END_OF_STREAM;
    if (!request->held) http_stream_cork(request, false);
    request->suspended = true;
    MHD_suspend_connection(request->connection->mhd);
    return 0;
}

void http_stream_start(http_request *request)
{
    if (request->kind != HTTP_NO_ANSWER) return;
    struct MHD_Response *response;
    bool head = !strcmp(request->method, "HEAD");
    if (head)
        response = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    else
        response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, READER_BLOCK, read_stream, request, NULL);
    answer_with(request, head ? HTTP_WHOLE : HTTP_STREAM, 200, "text/event-stream", response);
    if (response) {
        (void)MHD_add_response_header(response, "Cache-Control", "no-cache");
        (void)MHD_add_response_header(response, "X-Accel-Buffering", "no");
    }
    http_stream_comment(request);
    if (request->connection->phase == HTTP_ANSWERING) http_clock_start(request->connection);
    http_wake(request);
}

void http_stream_hold(http_request *request)
{
    if (request->kind == HTTP_STREAM) request->held = true;
}

void http_stream_let_go(http_request *request)
{
    if (!request->held) return;
    request->held = false;
    if (request->suspended) http_stream_cork(request, false);
}

/* Makes room for `bytes` more behind pending_end. */
static bool make_room(http_request *request, size_t bytes)
{
    if (!request->pending) take_spare(request);
    size_t waiting = request->pending_end - request->pending_at;
    if (request->pending_room - request->pending_end >= bytes) return true;
    if (request->pending_at && request->pending_room - waiting >= bytes && waiting <= request->pending_at) {
        memcpy(request->pending, request->pending + request->pending_at, waiting);
    } else {
        size_t room = request->pending_room ? request->pending_room : PENDING_FIRST;
        while (room - waiting < bytes) {
            if (room > SIZE_MAX / 2) return false;
            room *= 2;
        }
        char *grown = malloc(room);
        if (!grown) return false;
        if (waiting) memcpy(grown, request->pending + request->pending_at, waiting);
        free(request->pending);
        request->pending = grown;
        request->pending_room = room;
    }
    request->pending_at = 0;
    request->pending_end = waiting;
    return true;
}

void http_stream_write(http_request *request, const char *data, size_t bytes)
{
    if (request->kind != HTTP_STREAM || request->gone || request->ended || request->aborted || !bytes) return;
    request->last_write = uv_now(request->connection->server->loop);
    if (!make_room(request, bytes)) {
        http_stream_abort(request); /* a stream with a hole in it would be taken for whole */
        return;
    }
    memcpy(request->pending + request->pending_end, data, bytes);
    request->pending_end += bytes;
    http_wake(request);
}

void http_stream_comment(http_request *request)
{
    static const char comment[] = ": keep-alive\n\n";
    http_stream_write(request, comment, sizeof comment - 1);
}

size_t http_stream_pending(const http_request *request)
{
    return request->pending_end - request->pending_at;
}

/* Nothing more is written: from here the daemon notices a client that left. */
static void finish(http_request *request, bool *how)
{
    if (request->kind != HTTP_STREAM || request->gone || request->ended || request->aborted) return;
    *how = true;
    if (request->queued) http_connection_watch(request->connection, false);
    http_wake(request);
}

void http_stream_end(http_request *request)
{
    finish(request, &request->ended);
}

void http_stream_abort(http_request *request)
{
    finish(request, &request->aborted);
}

bool http_answered(const http_request *request)
{
    return request->kind != HTTP_NO_ANSWER;
}

unsigned http_status(const http_request *request)
{
    return request->status;
}

uint64_t http_sent_bytes(const http_request *request)
{
    return request->sent;
}
