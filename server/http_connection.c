/* http_connection.c: a connection beside the daemon that reads and writes it: which phase it is in, that its client is still
 * there, and how it ends. Its socket is in the daemon's epoll set and, for what the daemon does not see (the first byte of a
 * request; that the client of a suspended connection left), in the loop's as well. The latter is closed in http_on_connection,
 * before the daemon closes the socket.
 *
 * A client that shuts down its write side is taken to have left, for the two look the same until something is sent to it: the
 * rows of a generation must not wait for that. So only answers made at once reach a client that half-closes.
 */
#include "http_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAY_SIZE = HTTP_ERROR_SIZE + 256 };

static void on_watch(uv_poll_t *watch, int status, int events);

/* ---- Phases ------------------------------------------------------------------------------------------------------ */

/* The events that the phase asks for. */
static int wanted_events(const http_connection *connection)
{
    if (connection->cut) return 0;
    if (connection->phase == HTTP_ANSWERING) return connection->in_flight ? UV_DISCONNECT : 0;
    bool reads = !connection->first_byte || connection->handshake_waits;
    return reads ? UV_DISCONNECT | UV_READABLE : UV_DISCONNECT;
}

static void arm(http_connection *connection)
{
    int events = wanted_events(connection);
    if (events == connection->watched) return;
    connection->watched = events;
    if (events)
        (void)uv_poll_start(&connection->watch, events, on_watch);
    else
        (void)uv_poll_stop(&connection->watch);
}

/* Before the loop waits again: a request that comes and is answered in one turn goes through all phases, and each change of
 * what is watched is a call of the system. */
static void arm_later(http_connection *connection)
{
    if (connection->arms) return;
    connection->arms = true;
    connection->next_to_arm = connection->server->to_arm;
    connection->server->to_arm = connection;
}

void http_connections_arm(http_server *server)
{
    while (server->to_arm) {
        http_connection *connection = server->to_arm;
        server->to_arm = connection->next_to_arm;
        connection->arms = false;
        if (connection->mhd) arm(connection);
    }
}

void http_connection_phase(http_connection *connection, http_phase phase)
{
    connection->phase = phase;
    connection->in_flight = false;
    if (phase == HTTP_IDLE) connection->first_byte = 0;
    arm_later(connection);
    http_clock_start(connection);
}

void http_connection_watch(http_connection *connection, bool on)
{
    connection->in_flight = on;
    arm_later(connection);
}

void http_connection_wait(http_connection *connection)
{
    connection->handshake_waits = true;
    arm_later(connection);
    MHD_suspend_connection(connection->mhd);
}

/* The handshake goes on, or ends. */
static void stop_waiting(http_connection *connection)
{
    if (!connection->handshake_waits) return;
    connection->handshake_waits = false;
    MHD_resume_connection(connection->mhd);
    http_due(connection->server);
}

/* The client of a request in flight is gone. Where nothing was sent yet, it may have closed its write side only: it is told. */
static void client_left(http_connection *connection)
{
    http_request *request = connection->request;
    http_connection_watch(connection, false);
    if (request->kind == HTTP_NO_ANSWER)
        http_connection_say(connection, 400, "the client closed its side of the connection, which cancels the request");
    http_request_gone(request);
    if (request->suspended)
        http_wake(request);
    else
        http_connection_cut(connection, 0, NULL);
}

/* The client sent its last byte before the request was whole. The daemon reads what there is and, where the end came in one
 * event with it, does not see that; once nothing is left to read it is told. */
static void check_end(http_connection *connection)
{
    char byte;
    if (recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) http_connection_cut(connection, 0, NULL);
}

static void on_watch(uv_poll_t *watch, int status, int events)
{
    http_connection *connection = watch->data;
    if (connection->cut) return;
    if (status != 0) connection->watched = 0; /* libuv has stopped it: a reset */
    if (connection->phase == HTTP_ANSWERING) {
        if (connection->in_flight) client_left(connection);
        return;
    }
    if (!connection->first_byte) connection->first_byte = uv_hrtime();
    if (connection->phase == HTTP_IDLE) http_connection_phase(connection, HTTP_HEADERS);
    stop_waiting(connection);
    if (status != 0 || events & UV_DISCONNECT)
        check_end(connection);
    else
        arm_later(connection);
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

void http_connection_say(http_connection *connection, unsigned status, const char *message)
{
    char json[HTTP_ERROR_SIZE], text[SAY_SIZE];
    int length = http_error_json(status, message, json);
    const char *id = connection->request ? connection->request->id : "";
    const char *later = status == 429 || status == 503 ? "Retry-After: 1\r\n" : "";
    int bytes = snprintf(
        text, sizeof text,
        "HTTP/1.1 %u %s\r\nConnection: close\r\nContent-Type: application/json\r\n%s%s%s%sContent-Length: %d\r\n\r\n%s", status,
        MHD_get_reason_phrase_for(status), later, *id ? "x-request-id: " : "", id, *id ? "\r\n" : "", length, json);
    if (bytes < 0 || bytes >= (int)sizeof text) return;
    if (!connection->identity)
        (void)send(connection->fd, text, (size_t)bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    else if (connection->request)
        http_tls_send(connection->mhd, text, (size_t)bytes);
    connection->linger = true;
}

void http_connection_cut(http_connection *connection, unsigned status, const char *message)
{
    if (status) http_connection_say(connection, status, message);
    if (status && connection->request) connection->request->status = status;
    /* Behind what was sent. An event tells the daemon, which closes; a watch would be told again and again. */
    (void)shutdown(connection->fd, SHUT_RDWR);
    connection->cut = true;
    arm_later(connection);
    stop_waiting(connection);
    http_due(connection->server);
}

static void on_handle_closed(uv_handle_t *handle)
{
    http_connection *connection = handle->data;
    http_server *server = connection->server;
    if (--connection->handles == 0) free(connection);
    http_handle_closed(server);
}

static void connection_closed(http_connection *connection)
{
    http_server *server = connection->server;
    connection->mhd = NULL;
    if (connection->next) connection->next->previous = connection->previous;
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        server->connections = connection->next;
    http_identity_release(connection->identity);
    uv_close((uv_handle_t *)&connection->watch, on_handle_closed);
    uv_close((uv_handle_t *)&connection->clock, on_handle_closed);
    int kept = connection->linger && !server->stopping ? fcntl(connection->fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (kept >= 0) {
        http_linger_start(server, kept, connection->peer);
    } else {
        http_peers_remove(server->peers, connection->peer);
        http_place_free(server);
    }
}

/* ---- Beginnings -------------------------------------------------------------------------------------------------- */

void http_on_connection(void *server, struct MHD_Connection *mhd, void **slot, enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*slot) connection_closed(*slot);
        *slot = NULL;
        return;
    }
    http_connection *connection = ((http_server *)server)->accepted;
    ((http_server *)server)->accepted = NULL;
    connection->mhd = mhd;
    *slot = connection;
    if (connection->identity) http_tls_begin(connection);
}

void http_connection_open(http_server *server, int fd, const struct sockaddr_storage *address, socklen_t length)
{
    http_connection *connection = calloc(1, sizeof *connection);
    http_peer_count *peer = NULL;
    if (!connection || uv_poll_init(server->loop, &connection->watch, fd) != 0) {
        free(connection);
        (void)close(fd);
        return;
    }
    server->open++;
    connection->server = server;
    connection->fd = fd;
    connection->address = *address;
    connection->watch.data = connection->clock.data = connection;
    (void)uv_timer_init(server->loop, &connection->clock);
    connection->handles = 2;
    server->handles += 2;
    connection->next = server->connections;
    if (connection->next) connection->next->previous = connection;
    server->connections = connection;
    bool welcome = http_peers_add(server->peers, address, &peer);
    connection->peer = peer;
    if (!welcome) {
        http_connection_say(connection, 429, "too many connections from this address");
        connection_closed(connection);
        (void)close(fd);
        return;
    }
    if (server->tls) connection->identity = http_tls_identity(server->tls);
    server->accepted = connection;
    if (MHD_add_connection(server->daemon, fd, (const struct sockaddr *)address, length) != MHD_YES) {
        /* The socket is closed. Where the daemon had begun with it, so is the connection. */
        if (server->accepted) connection_closed(connection);
        server->accepted = NULL;
        return;
    }
    http_connection_phase(connection, HTTP_HEADERS); /* the first request's are due from here on */
}
