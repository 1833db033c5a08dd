/* http.c: see http.h. A server: its listening socket, the accepting of connections, the daemon of libmicrohttpd that reads and
 * writes them, and the turns of the loop in which it runs.
 *
 * The daemon has no thread, no listening socket and no timeouts of its own. Its epoll descriptor is watched by the loop, and a
 * prepare handle runs it once before the loop waits, after all callbacks of that turn: so what several writes gave a stream
 * leaves in one send. Accepting is done here because the daemon would spin when descriptors run out, and counts addresses
 * without knowing of proxies.
 *
 * A server closes in three steps: `closing` is asked for; at the `last_call` who waits to be accepted is accepted and nobody
 * else, for a connection that the kernel took and nobody accepts is reset, and its client cannot know what became of what it
 * sent; when what is being said there is answered, or shortly after, it is `stopping`.
 */
#include "http_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ACCEPTS_A_TURN = 64,
    RUNS_A_TURN = 8,           /* the daemon may ask to be run again at once; others on the loop have their turn too */
    ACCEPT_AGAIN_MS = 100,     /* how long accepting stands still when descriptors ran out */
    MOST_CALLS = 10,           /* for those who still send */
    CONNECTION_MEMORY = 32768, /* the daemon's for one: request line and headers, and what is being sent */
    BACKLOG = 4096,
    PROBE_INTERVAL_SECONDS = 5,
};

http_options http_options_defaults(void)
{
    return (http_options){
        .host = "127.0.0.1",
        .port = 8080,
        .max_body = 16 << 20,
        .header_seconds = 20,
        .body_seconds = 60,
        .idle_seconds = 75,
        .keepalive_seconds = 15,
        .vanished_seconds = 30,
        .discard_bytes = 16 << 20,
        .discard_seconds = 5,
        .max_connections = 4096,
    };
}

/* ---- The daemon's turns ------------------------------------------------------------------------------------------ */

static void close_step(http_server *server);

void http_due(http_server *server)
{
    server->due = true;
}

static void on_again(uv_timer_t *timer)
{
    http_due(timer->data);
}

static void on_daemon_ready(uv_poll_t *watch, int status, int events)
{
    (void)status;
    (void)events;
    http_due(watch->data);
}

/* Runs the daemon while it asks for it, a few times at most; then sets the timer it wants. */
static void run_daemon(http_server *server)
{
    MHD_UNSIGNED_LONG_LONG wait = 0;
    bool waits = true;
    for (int i = 0; i < RUNS_A_TURN && (server->due || (waits && wait == 0)); i++) {
        server->due = false;
        (void)MHD_run(server->daemon);
        waits = MHD_get_timeout(server->daemon, &wait) == MHD_YES;
    }
    if (server->due || waits)
        (void)uv_timer_start(&server->again, on_again, server->due ? 0 : (uint64_t)wait, 0);
    else
        (void)uv_timer_stop(&server->again);
}

/* Takes back what was given up, as soon as there is any. */
static void refill_reserve(http_server *server)
{
    while (server->reserved < server->options.reserve) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd < 0) return;
        server->reserve[server->reserved++] = fd;
    }
}

static void on_turn(uv_prepare_t *turn)
{
    http_server *server = turn->data;
    if (server->due) run_daemon(server);
    if (server->reserved < server->options.reserve) refill_reserve(server);
    if (server->closing) close_step(server);
    http_connections_arm(server);
    http_requests_done(server);
}

/* ---- Accepting --------------------------------------------------------------------------------------------------- */

static void on_connection(uv_poll_t *watch, int status, int events);
static void on_accept_again(uv_timer_t *timer);

static void accept_start(http_server *server)
{
    if (server->accepting || server->closing) return;
    server->accepting = uv_poll_start(&server->accept_watch, UV_READABLE, on_connection) == 0;
}

/* Until a connection ends, or for a while: others hold descriptors too. */
static void accept_pause(http_server *server)
{
    (void)uv_poll_stop(&server->accept_watch);
    server->accepting = false;
    (void)uv_timer_start(&server->accept_again, on_accept_again, ACCEPT_AGAIN_MS, 0);
}

static void on_accept_again(uv_timer_t *timer)
{
    http_server *server = timer->data;
    if (server->open < server->options.max_connections) accept_start(server);
}

void http_place_free(http_server *server)
{
    server->open--;
    if (server->closing) return;
    accept_start(server);
}

/* Accepts up to `most` of those that wait. */
static void accept_some(http_server *server, int most)
{
    for (int i = 0; i < most; i++) {
        if (server->open >= server->options.max_connections) {
            accept_pause(server);
            return;
        }
        struct sockaddr_storage address = {0};
        socklen_t length = sizeof address;
        int fd = accept4(server->listener, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            if (!server->reserved) {
                accept_pause(server);
                return;
            }
            (void)close(server->reserve[--server->reserved]);
            continue;
        }
        if (fd < 0 && errno == EAGAIN) return;
        if (fd < 0) continue; /* this one is gone already */
        http_connection_open(server, fd, &address, length);
        http_due(server);
    }
}

static void on_connection(uv_poll_t *watch, int status, int events)
{
    (void)status;
    (void)events;
    accept_some(watch->data, ACCEPTS_A_TURN);
}

/* ---- Listening --------------------------------------------------------------------------------------------------- */

static bool set_option(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

/* What accepted sockets inherit: events leave at once, and a peer that vanished is noticed whether it owes us an
 * acknowledgement or nothing at all. */
static bool set_options(int fd, const http_options *options)
{
    int ms = (int)http_milliseconds(options->vanished_seconds), seconds = ms / 2000;
    return set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1) && set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1) &&
           set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1) && set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds ? seconds : 1) &&
           set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL,
                      seconds > PROBE_INTERVAL_SECONDS ? PROBE_INTERVAL_SECONDS
                      : seconds                        ? seconds
                                                       : 1) &&
           set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, ms);
}

static bool bind_listener(http_server *server, const struct addrinfo *address, char message[HTTP_MESSAGE_SIZE])
{
    const http_options *options = &server->options;
    struct sockaddr_in6 bound = {0}; /* an IPv4 address has its port in the same place */
    socklen_t length = sizeof bound;
    server->listener = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (server->listener >= 0 && set_options(server->listener, options) &&
        bind(server->listener, address->ai_addr, address->ai_addrlen) == 0 && listen(server->listener, BACKLOG) == 0 &&
        getsockname(server->listener, (struct sockaddr *)&bound, &length) == 0) {
        server->port = ntohs(bound.sin6_port);
        return true;
    }
    (void)snprintf(message, HTTP_MESSAGE_SIZE, "cannot listen on %.200s port %u: %s", options->host, options->port,
                   errno == EADDRINUSE ? "the port is in use" : strerror(errno));
    return false;
}

static bool listen_socket(http_server *server, char message[HTTP_MESSAGE_SIZE])
{
    char port[8];
    (void)snprintf(port, sizeof port, "%u", server->options.port);
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *found = NULL;
    int code = getaddrinfo(server->options.host, port, &hints, &found);
    if (code != 0) {
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "cannot listen on %.200s: %s", server->options.host, gai_strerror(code));
        return false;
    }
    bool good = bind_listener(server, found, message);
    freeaddrinfo(found);
    return good;
}

static bool start_daemon(http_server *server, char message[HTTP_MESSAGE_SIZE])
{
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME;
    /* Places are counted here; the daemon frees them a little later. */
    unsigned most = server->options.max_connections + ACCEPTS_A_TURN;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)http_tls_callback()},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    server->daemon = MHD_start_daemon(
        server->tls ? flags | MHD_USE_TLS : flags, 0, NULL, NULL, http_on_request, server, MHD_OPTION_NOTIFY_COMPLETED,
        http_on_completed, server, MHD_OPTION_NOTIFY_CONNECTION, http_on_connection, server, MHD_OPTION_UNESCAPE_CALLBACK,
        http_unescape, server, MHD_OPTION_CONNECTION_LIMIT, most, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
        MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_ARRAY, server->tls ? tls : none, MHD_OPTION_END);
    if (!server->daemon) (void)snprintf(message, HTTP_MESSAGE_SIZE, "libmicrohttpd does not start");
    return server->daemon != NULL;
}

static void on_handle_closed(uv_handle_t *handle)
{
    http_handle_closed(handle->data);
}

/* Those that were initialized. */
static void close_handles(http_server *server)
{
    uv_handle_t *handles[] = {(uv_handle_t *)&server->turn,         (uv_handle_t *)&server->again,
                              (uv_handle_t *)&server->accept_again, (uv_handle_t *)&server->mhd_watch,
                              (uv_handle_t *)&server->accept_watch, NULL};
    for (uv_handle_t **handle = handles; *handle; handle++)
        if ((*handle)->data && !uv_is_closing(*handle)) uv_close(*handle, on_handle_closed);
}

static bool start_handles(http_server *server, char message[HTTP_MESSAGE_SIZE])
{
    uv_loop_t *loop = server->loop;
    (void)uv_prepare_init(loop, &server->turn);
    (void)uv_timer_init(loop, &server->again);
    (void)uv_timer_init(loop, &server->accept_again);
    server->turn.data = server->again.data = server->accept_again.data = server;
    server->handles = 3;
    int code = uv_poll_init(loop, &server->mhd_watch, MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd);
    if (code == 0) {
        server->mhd_watch.data = server;
        server->handles++;
        code = uv_poll_init(loop, &server->accept_watch, server->listener);
    }
    if (code != 0) {
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "libuv: %s", uv_strerror(code));
        return false;
    }
    server->accept_watch.data = server;
    server->handles++;
    (void)uv_prepare_start(&server->turn, on_turn);
    (void)uv_poll_start(&server->mhd_watch, UV_READABLE, on_daemon_ready);
    accept_start(server);
    return true;
}

/* What holds no handle. */
static void server_free(http_server *server)
{
    if (server->daemon) MHD_stop_daemon(server->daemon);
    if (server->listener >= 0) (void)close(server->listener);
    free(server->spare);
    while (server->reserved) (void)close(server->reserve[--server->reserved]);
    http_tls_destroy(server->tls);
    http_peers_destroy(server->peers);
    free(server);
}

int http_listen(uv_loop_t *loop, const http_options *options, const http_handler *handler, http_server **out,
                char message[HTTP_MESSAGE_SIZE])
{
    http_server *server = calloc(1, sizeof *server);
    *out = NULL;
    if (!server) {
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "no memory for a server");
        return -1;
    }
    server->loop = loop;
    server->options = *options;
    if (server->options.reserve > HTTP_RESERVE_MOST) server->options.reserve = HTTP_RESERVE_MOST;
    server->handler = *handler;
    server->listener = -1;
    server->last_over = &server->over;
    bool good = (server->peers = http_peers_create(options, message)) != NULL;
    if (good && options->tls_cert) good = (server->tls = http_tls_create(options->tls_cert, options->tls_key, message)) != NULL;
    if (!good || !listen_socket(server, message) || !start_daemon(server, message)) {
        server_free(server);
        return -1;
    }
    if (!start_handles(server, message)) {
        server->closing = true; /* freed when the handles are closed */
        close_handles(server);
        return -1;
    }
    refill_reserve(server);
    *out = server;
    return 0;
}

uint16_t http_port(const http_server *server)
{
    return server->port;
}

int http_reload_tls(http_server *server, char message[HTTP_MESSAGE_SIZE])
{
    return server->tls ? http_tls_reload(server->tls, message) : 0;
}

size_t http_connections(const http_server *server)
{
    return server->open;
}

/* ---- Closing ----------------------------------------------------------------------------------------------------- */

void http_handle_closed(http_server *server)
{
    if (--server->handles || !server->closing) return;
    void (*closed)(void *) = server->closed;
    void *user = server->closed_user;
    server_free(server);
    if (closed) closed(user);
}

static void on_called(uv_timer_t *timer)
{
    http_server *server = timer->data;
    server->calls++;
}

static void start_last_call(http_server *server)
{
    server->last_call = true;
    accept_some(server, BACKLOG);
    uv_close((uv_handle_t *)&server->accept_watch, on_handle_closed); /* before its descriptor goes */
    (void)close(server->listener);
    server->listener = -1;
    (void)uv_timer_start(&server->accept_again, on_called, HTTP_CALL_MS, HTTP_CALL_MS);
    (void)uv_timer_start(&server->again, on_again, 0, 0);
}

/* Somebody has asked, or may be about to, and has no answer yet; or still sends, and would lose the one he has to a reset. */
static bool is_awaited(const http_server *server)
{
    if (server->calls < MOST_CALLS && http_linger_receives(server)) return true;
    if (server->calls > 0) return false;
    for (const http_connection *connection = server->connections; connection; connection = connection->next) {
        const http_request *request = connection->request;
        bool asks = connection->phase == HTTP_HEADERS || connection->phase == HTTP_BODY;
        if (asks || (request && request->kind == HTTP_WHOLE)) return true;
    }
    return false;
}

static void close_now(http_server *server)
{
    server->stopping = true;
    for (http_connection *connection = server->connections; connection; connection = connection->next) {
        http_request *request = connection->request;
        if (!request) http_connection_cut(connection, 0, NULL); /* in a handshake it may be suspended */
        if (!request) continue;
        if (request->completed && request->kind != HTTP_WHOLE && !request->ended && !request->aborted)
            http_request_gone(request);
        http_wake(request);
    }
    (void)uv_poll_stop(&server->mhd_watch);
    MHD_stop_daemon(server->daemon); /* resumes and closes them: http_on_completed, http_on_connection */
    server->daemon = NULL;
    http_linger_end_all(server);
    close_handles(server);
}

/* Not from inside the daemon's callbacks, where http_close may have been called: from on_turn. */
static void close_step(http_server *server)
{
    if (!server->last_call)
        start_last_call(server);
    else if (!server->stopping && !is_awaited(server))
        close_now(server);
}

void http_close(http_server *server, void (*closed)(void *user), void *user)
{
    if (server->closing) return;
    server->closing = true;
    server->closed = closed;
    server->closed_user = user;
    (void)uv_poll_stop(&server->accept_watch);
    (void)uv_timer_start(&server->again, on_again, 0, 0); /* the loop comes by on_turn without waiting */
}
