/* http_request.c: a request from its headers to its end: the daemon's access handler, which calls the handler's headers and
 * complete, the body as it comes, and what is known of a request. It lives from the first call of the access handler until the
 * end of the turn in which http_on_completed, the one place that ends it, is called. Everything an accessor returns lives as
 * long, but for the headers and the query, which are the daemon's and end in http_on_completed.
 *
 * A target may be a path, or in absolute form (http://host/path), as clients send it to proxies: then it, rather than the Host
 * header, says whom the request is for.
 *
 * An answer given by handler.headers to a request that has a body is queued in that first call: the daemon then sends it and
 * closes, and http_linger.c reads what the client still sends.
 */
#include "entropy.h"
#include "http_internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BODY_FIRST = 4096 };

/* ---- What is known of it ----------------------------------------------------------------------------------------- */

void http_set_context(http_request *request, void *context)
{
    request->context = context;
}

void *http_context(const http_request *request)
{
    return request->context;
}

const char *http_method(const http_request *request)
{
    return request->method;
}

const char *http_path(const http_request *request)
{
    return request->path;
}

const char *http_query(const http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection->mhd, MHD_GET_ARGUMENT_KIND, name);
}

const char *http_header(const http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection->mhd, MHD_HEADER_KIND, name);
}

const char *http_host(const http_request *request)
{
    return request->authority ? request->authority : http_header(request, "Host");
}

const char *http_peer(const http_request *request)
{
    return request->peer;
}

bool http_peer_is_loopback(const http_request *request)
{
    return http_address_loopback(&request->client);
}

uint64_t http_declared_length(const http_request *request)
{
    return request->declared;
}

const char *http_body(const http_request *request, size_t *bytes)
{
    *bytes = request->body.bytes;
    return request->body.text ? request->body.text : "";
}

http_body_text http_take_body(http_request *request)
{
    http_body_text body = request->body;
    request->body = (http_body_text){.budget = body.budget};
    return body;
}

void http_body_release(http_body_text *body)
{
    if (body->budget) body->budget->used -= body->room;
    free(body->text);
    *body = (http_body_text){.text = NULL};
}

bool http_budget_has(const http_budget *budget, uint64_t bytes)
{
    return !budget || bytes <= budget->most - budget->used;
}

const char *http_request_id(const http_request *request)
{
    return request->id;
}

uint64_t http_arrived(const http_request *request)
{
    return request->arrived;
}

/* ---- Its beginning ----------------------------------------------------------------------------------------------- */

/* How a request is framed, from the headers that say so. */
typedef struct framing {
    unsigned hosts;              /* HTTP/1.1 asks for one */
    unsigned lengths, encodings; /* of those headers */
    bool chunked;
    const char *length; /* of the last Content-Length */
    bool differ;
    char *forwarded; /* X-Forwarded-For's values, joined: ours */
} framing;

static void join_forwarded(framing *frame, const char *value)
{
    size_t had = frame->forwarded ? strlen(frame->forwarded) : 0, more = strlen(value);
    char *joined = realloc(frame->forwarded, had + more + 2);
    if (!joined) return;
    if (had) joined[had++] = ',';
    memcpy(joined + had, value, more + 1);
    frame->forwarded = joined;
}

static enum MHD_Result on_header(void *user, enum MHD_ValueKind kind, const char *name, const char *value)
{
    framing *frame = user;
    (void)kind;
    if (!value) return MHD_YES;
    if (!strcasecmp(name, "Host")) {
        frame->hosts++;
    } else if (!strcasecmp(name, "Content-Length")) {
        if (frame->lengths++ && strcmp(frame->length, value) != 0) frame->differ = true;
        frame->length = value;
    } else if (!strcasecmp(name, "Transfer-Encoding")) {
        frame->encodings++;
        frame->chunked = !strcasecmp(value, "chunked");
    } else if (!strcasecmp(name, "X-Forwarded-For")) {
        join_forwarded(frame, value);
    }
    return MHD_YES;
}

static void choose_id(http_request *request)
{
    const char *given = http_header(request, "X-Request-Id");
    size_t length = given ? strlen(given) : 0;
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    if (length && length < HTTP_ID_SIZE && strspn(given, allowed) == length) {
        memcpy(request->id, given, length + 1);
        return;
    }
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[16] = {0};
    if (!entropy_take(bytes, sizeof bytes)) memcpy(bytes, &request->arrived, sizeof request->arrived);
    for (size_t i = 0; i < sizeof bytes; i++) {
        request->id[2 * i] = digits[bytes[i] >> 4];
        request->id[2 * i + 1] = digits[bytes[i] & 15];
    }
    request->id[2 * sizeof bytes] = '\0';
}

static char *copy_text(const char *text, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (!copy) return NULL;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    return copy;
}

/* Bytes of "http://host:port" at the start of a target in absolute form, and in *scheme those before the host; 0: it is none.
 */
static size_t find_authority(const char *target, size_t *scheme)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < 2; i++) {
        *scheme = strlen(schemes[i]);
        if (!strncasecmp(target, schemes[i], *scheme)) return *scheme + strcspn(target + *scheme, "/");
    }
    return 0;
}

static bool set_target(http_request *request, const char *target)
{
    size_t scheme, behind = find_authority(target, &scheme);
    const char *path = target + behind;
    if (behind && !*path) path = "/";
    request->path = copy_text(path, strlen(path));
    if (behind) request->authority = copy_text(target + scheme, behind - scheme);
    return request->path && (request->authority || !behind);
}

static void request_free(http_request *request)
{
    http_answer_release(request);
    free(request->method);
    free(request->path);
    free(request->authority);
    http_body_release(&request->body);
    free(request);
}

/* Fills what the headers say. */
static http_request *request_create(http_connection *connection, const char *url, const char *method, framing *frame)
{
    http_request *request = calloc(1, sizeof *request);
    if (!request) return NULL;
    request->connection = connection;
    request->body.budget = connection->server->options.bodies;
    request->method = copy_text(method, strlen(method));
    if (!request->method || !set_target(request, url)) {
        request_free(request);
        return NULL;
    }
    /* A pipelined request was there before its turn came, and one that was there when it was accepted was not waited for. */
    request->arrived = connection->first_byte ? connection->first_byte : uv_hrtime();
    (void)MHD_get_connection_values(connection->mhd, MHD_HEADER_KIND, on_header, frame);
    request->declared = frame->length && !frame->encodings ? strtoull(frame->length, NULL, 10) : UINT64_MAX;
    http_peers_client(connection->server->peers, &connection->address, frame->forwarded, &request->client);
    http_address_text(&request->client, request->peer);
    choose_id(request);
    return request;
}

static void refuse(http_request *request, unsigned status, const char *message)
{
    char json[HTTP_ERROR_SIZE];
    int bytes = http_error_json(status, message, json);
    http_add_header(request, "Connection", "close");
    http_reply(request, status, "application/json", json, (size_t)bytes);
}

/* Refuses what two readers could take for different requests (RFC 9112, 3.2 and 6.3), and what is too long. */
static void check_framing(http_request *request, const framing *frame)
{
    if (frame->encodings && !(frame->chunked && frame->encodings == 1))
        refuse(request, 501, "the only transfer encoding of a body understood here is chunked");
    else if ((frame->encodings && frame->lengths) || frame->differ)
        refuse(request, 400, "more than one header says how long the body is");
    else if (frame->hosts > 1 || (request->chunked && !frame->hosts))
        refuse(request, 400, "a request of HTTP/1.1 has one Host header");
    else if (request->authority && (!*request->authority || strchr(request->authority, '@')))
        refuse(request, 400, "the target must name a host, and no user");
    else if (request->declared != UINT64_MAX && request->declared > request->connection->server->options.max_body)
        refuse(request, 413, "the body is longer than this server takes");
}

static enum MHD_Result headers_arrived(http_connection *connection, const char *url, const char *method, const char *version,
                                       void **slot)
{
    framing frame = {0};
    http_request *request = request_create(connection, url, method, &frame);
    if (!request) {
        free(frame.forwarded);
        return MHD_NO;
    }
    *slot = connection->request = request;
    request->chunked = strcmp(version, "HTTP/1.0") != 0;
    http_connection_phase(connection, HTTP_BODY);
    const http_handler *handler = &connection->server->handler;
    handler->headers(handler->user, request);
    if (request->kind == HTTP_NO_ANSWER) check_framing(request, &frame);
    free(frame.forwarded);
    bool body = frame.encodings || (request->declared != UINT64_MAX && request->declared > 0);
    if (request->kind == HTTP_NO_ANSWER || !body)
        return MHD_YES; /* what has no body is answered in the last call, and stays open */
    connection->linger = true;
    http_connection_phase(connection, HTTP_ANSWERING);
    return http_answer_queue(request);
}

/* ---- Its body and its end ---------------------------------------------------------------------------------------- */

/* Room for `bytes` and a NUL: twice what there was, but no more than the body may become. */
static bool make_room(http_body_text *body, uint64_t bytes, uint64_t most)
{
    uint64_t room = body->room ? body->room : BODY_FIRST;
    if (bytes < body->room) return true;
    while (room <= bytes) room *= 2;
    if (room - 1 > most) room = most + 1;
    if (room <= bytes) room = bytes + 1;
    if (!http_budget_has(body->budget, room - body->room)) return false;
    char *grown = realloc(body->text, room);
    if (!grown) return false;
    if (body->budget) body->budget->used += room - body->room;
    body->text = grown;
    body->room = room;
    return true;
}

static bool keep_body(http_request *request, const char *data, size_t bytes)
{
    http_body_text *body = &request->body;
    uint64_t most = request->connection->server->options.max_body;
    if (request->declared < most) most = request->declared;
    if (!make_room(body, body->bytes + bytes, most)) return false;
    memcpy(body->text + body->bytes, data, bytes);
    body->bytes += bytes;
    body->text[body->bytes] = 0;
    return true;
}

static enum MHD_Result body_arrived(http_request *request, const char *data, size_t bytes)
{
    if (request->kind != HTTP_NO_ANSWER) return MHD_YES;
    unsigned status = 0;
    if (bytes > request->connection->server->options.max_body - request->body.bytes)
        status = 413;
    else if (!keep_body(request, data, bytes))
        status = 503;
    if (!status) return MHD_YES;
    /* The daemon takes no answer in the middle of a body. */
    http_connection_say(request->connection, status,
                        status == 413 ? "the body is longer than this server takes"
                                      : "the server has no room for this body now: others are coming in");
    request->status = status;
    request->gone = true;
    return MHD_NO;
}

static enum MHD_Result body_complete(http_request *request)
{
    http_connection *connection = request->connection;
    if (!request->completed) {
        request->completed = true;
        http_connection_phase(connection, HTTP_ANSWERING);
        const http_handler *handler = &connection->server->handler;
        if (!strcmp(request->method, "GET")) http_requests_done(connection->server); /* it may ask what came before it */
        if (request->kind == HTTP_NO_ANSWER) handler->complete(handler->user, request);
    }
    if (request->gone) return MHD_NO;
    if (request->kind != HTTP_NO_ANSWER) return http_answer_queue(request);
    http_connection_watch(connection, true);
    request->suspended = true;
    MHD_suspend_connection(connection->mhd);
    return MHD_YES;
}

enum MHD_Result http_on_request(void *server, struct MHD_Connection *mhd, const char *url, const char *method,
                                const char *version, const char *data, size_t *bytes, void **slot)
{
    (void)server;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (!*slot) return headers_arrived(info->socket_context, url, method, version, slot);
    if (!*bytes) return body_complete(*slot);
    enum MHD_Result result = body_arrived(*slot, data, *bytes);
    *bytes = 0;
    return result;
}

void http_request_gone(http_request *request)
{
    if (request->gone) return;
    request->gone = true;
    const http_handler *handler = &request->connection->server->handler;
    handler->gone(handler->user, request);
}

void http_requests_done(http_server *server)
{
    for (http_request *request; (request = server->over) != NULL;) {
        server->over = request->behind;
        if (!server->over) server->last_over = &server->over;
        server->handler.done(server->handler.user, request);
        request_free(request);
    }
}

void http_on_completed(void *user, struct MHD_Connection *mhd, void **slot, enum MHD_RequestTerminationCode code)
{
    http_request *request = *slot;
    (void)user;
    (void)mhd;
    if (!request) return;
    *slot = NULL;
    http_connection *connection = request->connection;
    http_server *server = connection->server;
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK && !request->aborted) http_request_gone(request);
    http_stream_cork(request, false);
    connection->request = NULL;
    request->behind = NULL;
    *server->last_over = request;
    server->last_over = &request->behind;
    http_connection_phase(connection, HTTP_IDLE); /* or it is about to be closed, which ends that too */
}

/* %00 stays as it is: a path is a C string. In place; returns the new length. */
size_t http_unescape(void *server, struct MHD_Connection *mhd, char *text)
{
    (void)server;
    (void)mhd;
    char *out = text;
    for (const char *in = text; *in; out++) {
        char hex[3] = {0};
        if (*in == '%' && in[1] && in[2]) memcpy(hex, in + 1, 2);
        if (strspn(hex, "0123456789abcdefABCDEF") == 2 && strcmp(hex, "00") != 0) {
            *out = (char)strtoul(hex, NULL, 16);
            in += 3;
        } else {
            *out = *in++;
        }
    }
    *out = 0;
    return (size_t)(out - text);
}
