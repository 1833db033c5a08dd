/* http_internal.h: what the files of http*.c share. A connection is born in http.c (accept), handed to libmicrohttpd, which
 * owns its socket from then on, and watched beside it: by a clock (http_clock.c), and by a poll handle for the first byte of a
 * request and for the client that leaves (http_connection.c). A request lives on a connection (http_request.c), its answer on
 * the request (http_answer.c). Loop thread only.
 *
 *     http_connection.phase    HEADERS -> BODY -> ANSWERING -> IDLE -> HEADERS ...
 *     its clock                header     body    comments     idle
 *     its watch                the client's first byte, and its last
 */
#ifndef DESCENT_SERVER_HTTP_INTERNAL_H
#define DESCENT_SERVER_HTTP_INTERNAL_H

#include "http.h"

#include <gnutls/abstract.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>

typedef struct http_connection http_connection;
typedef struct http_peers http_peers;
typedef struct http_peer_count http_peer_count;
typedef struct http_tls http_tls;
typedef struct http_identity http_identity;

enum { HTTP_RESERVE_MOST = 64, HTTP_CALL_MS = 200 };

struct http_server {
    uv_loop_t *loop;
    http_options options;
    http_handler handler;
    struct MHD_Daemon *daemon;
    uv_poll_t mhd_watch; /* the daemon's epoll descriptor */
    uv_prepare_t turn;   /* runs the daemon once before the loop waits, whatever woke it */
    uv_timer_t again;    /* and makes the loop not wait where the daemon has more to do */
    bool due;            /* the daemon has something to do */
    int listener;
    uint16_t port;
    uv_poll_t accept_watch;
    uv_timer_t accept_again; /* accepting stands still: no descriptors, or max_connections reached */
    bool accepting;
    http_connection *accepted;      /* being handed to the daemon */
    int reserve[HTTP_RESERVE_MOST]; /* descriptors kept for this listener, given up one by one when none is left */
    uint32_t reserved;
    http_connection *connections;    /* those the daemon has, linked */
    http_connection *to_arm;         /* those whose watch is looked after before the loop waits */
    http_request *over, **last_over; /* answered, and not told to handler.done yet */
    char *spare;                     /* [spare_room] for what the next stream writes: an earlier one's */
    size_t spare_room;
    size_t open; /* and those that linger */
    struct http_linger *lingering;
    http_peers *peers;
    http_tls *tls;                     /* NULL: plain */
    size_t handles;                    /* of libuv, not closed yet */
    bool closing, last_call, stopping; /* one after the other: see http.c */
    unsigned calls;                    /* since the last call, every HTTP_CALL_MS */
    void (*closed)(void *user);
    void *closed_user;
};

typedef enum http_phase { HTTP_IDLE, HTTP_HEADERS, HTTP_BODY, HTTP_ANSWERING } http_phase;

struct http_connection {
    http_server *server;
    struct MHD_Connection *mhd; /* NULL once it is closed */
    int fd;                     /* the daemon's */
    http_phase phase;
    uv_poll_t watch;
    uv_timer_t clock;
    int handles;         /* of those two, not closed yet */
    uint64_t first_byte; /* uv_hrtime, of the request being read; 0: not seen yet */
    bool in_flight;      /* a request whose client is watched */
    int watched;         /* events of `watch` */
    bool arms;           /* `watch` is looked after before the loop waits: in the server's list */
    bool cut;            /* nothing is watched any more */
    http_connection *next_to_arm;
    bool handshake_waits;  /* the daemon does not look at it until the client sends more of its handshake */
    bool shaken;           /* the client's side of the handshake is complete */
    bool linger;           /* the client may still be sending what nobody reads: see http_linger.c */
    http_request *request; /* NULL between requests */
    struct sockaddr_storage address;
    http_peer_count *peer;   /* NULL: not counted */
    http_identity *identity; /* certificate and key it was accepted under; NULL: plain */
    http_connection *next, *previous;
};

typedef struct http_header_line {
    char *name, *value; /* one allocation, at name */
} http_header_line;

typedef enum http_answer_kind { HTTP_NO_ANSWER, HTTP_WHOLE, HTTP_STREAM } http_answer_kind;

struct http_request {
    http_connection *connection;
    void *context;
    char *method, *path;
    char *authority; /* of a target in absolute form; NULL: it was none */
    char id[HTTP_ID_SIZE];
    struct sockaddr_storage client; /* the connection's, or what a trusted proxy says */
    char peer[INET6_ADDRSTRLEN];
    uint64_t arrived, declared;
    http_body_text body;
    bool chunked;   /* HTTP/1.1: a stream has an end of its own, rather than that of the connection */
    bool completed; /* handler.complete was called */
    bool gone;      /* handler.gone was called, or need not be */
    bool suspended; /* the daemon does not look at the connection until http_wake */

    http_header_line *headers;
    size_t n_headers;
    http_answer_kind kind;
    unsigned status;
    struct MHD_Response *response; /* until it is queued */
    bool queued;
    bool ended, aborted; /* a stream's */
    bool held;           /* a stream's begin, until there is something to say */
    bool corked;         /* the system holds what is sent */
    char *pending;       /* [pending_at, pending_end): written, not taken */
    size_t pending_at, pending_end, pending_room;
    uint64_t sent;        /* taken */
    uint64_t last_write;  /* uv_now of it, or of the last comment */
    http_request *behind; /* in the server's list of those that are over */
};

/* ---- http.c ------------------------------------------------------------------------------------------------------ */

/* The daemon is run before the loop waits again. */
void http_due(http_server *server);
/* A libuv handle of the server is closed; the last one ends it. */
void http_handle_closed(http_server *server);
/* A connection, or what lingers of one, is over: its place is free. */
void http_place_free(http_server *server);

/* ---- http_connection.c ------------------------------------------------------------------------------------------- */

/* Hands an accepted socket to the daemon, or closes it. */
void http_connection_open(http_server *server, int fd, const struct sockaddr_storage *address, socklen_t length);
void http_connection_phase(http_connection *connection, http_phase phase);
/* Before the loop waits: what is watched of connections follows what became of them. */
void http_connections_arm(http_server *server);
/* While a request is in flight: tells handler.gone when the client leaves. Stopped when its answer no longer depends on it. */
void http_connection_watch(http_connection *connection, bool on);
/* Inside the daemon's callbacks, during a handshake: it goes on when the client has sent more. */
void http_connection_wait(http_connection *connection);
/* Ends the connection, with `status` and a message as JSON where an answer can still be put on the wire. From outside of the
 * daemon's callbacks. */
void http_connection_cut(http_connection *connection, unsigned status, const char *message);
/* That answer alone, past the daemon; the caller closes. */
void http_connection_say(http_connection *connection, unsigned status, const char *message);
/* The daemon's callbacks. */
void http_on_connection(void *server, struct MHD_Connection *mhd, void **slot, enum MHD_ConnectionNotificationCode code);

/* ---- http_request.c ---------------------------------------------------------------------------------------------- */

enum MHD_Result http_on_request(void *server, struct MHD_Connection *mhd, const char *url, const char *method,
                                const char *version, const char *data, size_t *bytes, void **slot);
void http_on_completed(void *user, struct MHD_Connection *mhd, void **slot, enum MHD_RequestTerminationCode code);
/* Behind all that clients wait for in a turn of the loop: handler.done of the requests that are over, in order. */
void http_requests_done(http_server *server);
size_t http_unescape(void *server, struct MHD_Connection *mhd, char *text);
/* Tells handler.gone, once. */
void http_request_gone(http_request *request);

/* ---- http_answer.c ----------------------------------------------------------------------------------------------- */

/* Gives the answer to the daemon, inside its access handler. */
enum MHD_Result http_answer_queue(http_request *request);
/* The daemon looks at the connection again. */
void http_wake(http_request *request);
void http_answer_release(http_request *request);
/* {"error": {...}} of this layer's own refusals, into `json`. */
enum { HTTP_ERROR_SIZE = 512 };
int http_error_json(unsigned status, const char *message, char json[HTTP_ERROR_SIZE]);
/* While on, what a stream sends waits in the socket. */
void http_stream_cork(http_request *request, bool on);
/* The server says something so that proxies do not close a quiet stream. */
void http_stream_comment(http_request *request);

/* ---- http_clock.c ------------------------------------------------------------------------------------------------ */

uint64_t http_milliseconds(double seconds);
/* Sets the clock for the phase the connection is in, from now on. */
void http_clock_start(http_connection *connection);

/* ---- http_linger.c ----------------------------------------------------------------------------------------------- */

/* Reads and discards what still comes on a socket whose answer is out, up to the options' bytes and seconds, then closes it.
 * Takes over fd, and the count of its peer. */
void http_linger_start(http_server *server, int fd, http_peer_count *peer);
void http_linger_end_all(http_server *server);
/* One of them has just sent something. */
bool http_linger_receives(const http_server *server);

/* ---- http_peers.c ------------------------------------------------------------------------------------------------ */

/* On failure NULL, and `message` says which network is wrong. */
http_peers *http_peers_create(const http_options *options, char message[HTTP_MESSAGE_SIZE]);
void http_peers_destroy(http_peers *peers);
bool http_peers_trusted(const http_peers *peers, const struct sockaddr_storage *address);
/* Counts a connection of this address. False where it has as many as it may; *count is NULL where nothing is counted. */
bool http_peers_add(http_peers *peers, const struct sockaddr_storage *address, http_peer_count **count);
void http_peers_remove(http_peers *peers, http_peer_count *count);
/* Whom a request comes from: the address that connected or, where that is a trusted proxy, the last one of X-Forwarded-For that
 * is not. `forwarded` is the header's values, joined by commas; NULL: none. */
void http_peers_client(const http_peers *peers, const struct sockaddr_storage *connected, const char *forwarded,
                       struct sockaddr_storage *client);
void http_address_text(const struct sockaddr_storage *address, char text[INET6_ADDRSTRLEN]);
bool http_address_loopback(const struct sockaddr_storage *address);

/* ---- http_tls.c -------------------------------------------------------------------------------------------------- */

http_tls *http_tls_create(const char *cert, const char *key, char message[HTTP_MESSAGE_SIZE]);
int http_tls_reload(http_tls *tls, char message[HTTP_MESSAGE_SIZE]);
void http_tls_destroy(http_tls *tls);
/* What is shown to connections accepted now. Counted: released by http_identity_release. */
http_identity *http_tls_identity(http_tls *tls);
void http_identity_release(http_identity *identity);
/* For MHD_OPTION_HTTPS_CERT_CALLBACK. */
gnutls_certificate_retrieve_function2 *http_tls_callback(void);
/* A session begins: the daemon, which would try its handshake again and again while nothing comes, waits instead. */
void http_tls_begin(http_connection *connection);
/* Sends on an established session; what the socket does not take at once is lost. */
void http_tls_send(struct MHD_Connection *mhd, const char *data, size_t bytes);

#endif
