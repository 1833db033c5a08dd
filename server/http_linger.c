/* http_linger.c: sockets whose answer is out while the client still sends. Closing them would make the kernel answer what comes
 * with a reset, and a client that is still writing its 5 MB would then never read why they were refused. So the write side is
 * shut, and what comes is read and discarded until the client closes, or up to a limit of bytes and of time. They count as
 * connections until then.
 */
#include "http_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10, READS_A_TURN = 4 };

typedef struct http_linger {
    http_server *server;
    int fd;
    uint64_t left;     /* bytes */
    uint64_t received; /* uv_now of the last, or of its beginning */
    http_peer_count *peer;
    uv_poll_t watch;
    uv_timer_t clock;
    int handles;
    struct http_linger *next, *previous;
} http_linger;

static void on_handle_closed(uv_handle_t *handle)
{
    http_linger *linger = handle->data;
    http_server *server = linger->server;
    if (--linger->handles == 0) free(linger);
    http_handle_closed(server);
}

static void linger_end(http_linger *linger)
{
    http_server *server = linger->server;
    if (linger->next) linger->next->previous = linger->previous;
    if (linger->previous)
        linger->previous->next = linger->next;
    else
        server->lingering = linger->next;
    uv_close((uv_handle_t *)&linger->watch, on_handle_closed); /* before its descriptor goes */
    uv_close((uv_handle_t *)&linger->clock, on_handle_closed);
    (void)close(linger->fd);
    http_peers_remove(server->peers, linger->peer);
    http_place_free(server);
}

static void on_readable(uv_poll_t *watch, int status, int events)
{
    http_linger *linger = watch->data;
    (void)events;
    static char nowhere[READ_BYTES]; /* nobody reads it; the loop is one thread */
    for (int i = 0; i < READS_A_TURN && status == 0; i++) {
        ssize_t bytes = recv(linger->fd, nowhere, sizeof nowhere, MSG_DONTWAIT);
        if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (bytes <= 0 || (uint64_t)bytes >= linger->left)
            status = UV_EOF;
        else
            linger->left -= (uint64_t)bytes;
        linger->received = uv_now(linger->server->loop);
    }
    if (status) linger_end(linger);
}

static void on_time(uv_timer_t *clock)
{
    linger_end(clock->data);
}

void http_linger_start(http_server *server, int fd, http_peer_count *peer)
{
    http_linger *linger = calloc(1, sizeof *linger);
    if (!linger || uv_poll_init(server->loop, &linger->watch, fd) != 0) {
        free(linger);
        (void)close(fd);
        http_peers_remove(server->peers, peer);
        http_place_free(server);
        return;
    }
    linger->server = server;
    linger->fd = fd;
    linger->left = server->options.discard_bytes;
    linger->received = uv_now(server->loop);
    linger->peer = peer;
    linger->watch.data = linger->clock.data = linger;
    (void)uv_timer_init(server->loop, &linger->clock);
    linger->handles = 2;
    server->handles += 2;
    linger->next = server->lingering;
    if (linger->next) linger->next->previous = linger;
    server->lingering = linger;
    (void)shutdown(fd, SHUT_WR);
    (void)uv_timer_start(&linger->clock, on_time, http_milliseconds(server->options.discard_seconds), 0);
    if (uv_poll_start(&linger->watch, UV_READABLE, on_readable) != 0) linger_end(linger);
}

bool http_linger_receives(const http_server *server)
{
    for (const http_linger *linger = server->lingering; linger; linger = linger->next)
        if (uv_now(server->loop) - linger->received < HTTP_CALL_MS) return true;
    return false;
}

void http_linger_end_all(http_server *server)
{
    while (server->lingering) linger_end(server->lingering);
}
