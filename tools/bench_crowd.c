/* bench_crowd.c: see bench_load.h: connections that hold a server's attention and ask for no text. What they get they do not
 * look at. */
#include "bench_load.h"

#include <stdlib.h>
#include <string.h>

enum { DRIBBLE_MS = 450, RETURN_MS = 200, CROWD_READ_SIZE = 4096 };

static const char request[] = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"; /* 19 s of bytes: within --header-time */

typedef struct member {
    crowd *crowd;
    uv_tcp_t tcp;
    uv_timer_t timer; /* the next byte, or the next try */
    uv_connect_t connect;
    bool dribbles, open, connected; /* open: `tcp` is a handle */
    size_t said;                    /* bytes of the request */
} member;

struct crowd {
    uv_loop_t *loop;
    struct sockaddr_storage server;
    member *members; /* [count] */
    size_t count, connected;
    size_t handles; /* not closed yet */
    bool closing;
    char buffer[CROWD_READ_SIZE];
};

static void come(uv_timer_t *timer);

static void on_handle_closed(uv_handle_t *handle)
{
    member *m = handle->data;
    m->crowd->handles--;
}

/* The connection is over: its handle is made anew for the next one. */
static void on_left(uv_handle_t *handle)
{
    member *m = handle->data;
    crowd *c = m->crowd;
    c->handles--;
    m->open = false;
    if (!c->closing) (void)uv_timer_start(&m->timer, come, RETURN_MS, 0);
}

static void leave(member *m)
{
    if (m->connected) m->crowd->connected--;
    m->connected = false;
    (void)uv_timer_stop(&m->timer);
    if (!uv_is_closing((uv_handle_t *)&m->tcp)) uv_close((uv_handle_t *)&m->tcp, on_left);
}

static void on_answer(uv_stream_t *tcp, ssize_t bytes, const uv_buf_t *buffer)
{
    (void)buffer;
    if (bytes < 0) leave(tcp->data);
}

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    member *m = handle->data;
    *buffer = uv_buf_init(m->crowd->buffer, CROWD_READ_SIZE);
}

static void say_a_byte(uv_timer_t *timer)
{
    member *m = timer->data;
    uv_buf_t byte = uv_buf_init((char *)request + m->said, 1);
    if (uv_try_write((uv_stream_t *)&m->tcp, &byte, 1) < 0) {
        leave(m);
        return;
    }
    m->said = (m->said + 1) % (sizeof request - 1);
}

static void on_connected(uv_connect_t *connect, int status)
{
    member *m = connect->data;
    if (status == UV_ECANCELED || m->crowd->closing) return;
    if (status < 0 || uv_read_start((uv_stream_t *)&m->tcp, give_buffer, on_answer) < 0) {
        leave(m);
        return;
    }
    m->connected = true;
    m->crowd->connected++;
    m->said = 0;
    size_t index = (size_t)(m - m->crowd->members);
    if (m->dribbles) (void)uv_timer_start(&m->timer, say_a_byte, 1 + index % DRIBBLE_MS, DRIBBLE_MS);
}

static void come(uv_timer_t *timer)
{
    member *m = timer->data;
    if (uv_tcp_init(m->crowd->loop, &m->tcp) < 0) return;
    m->crowd->handles++;
    m->open = true;
    m->tcp.data = m->connect.data = m;
    if (uv_tcp_connect(&m->connect, &m->tcp, (const struct sockaddr *)&m->crowd->server, on_connected) < 0) leave(m);
}

crowd *crowd_open(uv_loop_t *loop, const struct sockaddr *server, size_t idle, size_t dribbling)
{
    crowd *c = calloc(1, sizeof *c);
    member *members = calloc(idle + dribbling ? idle + dribbling : 1, sizeof *members);
    if (!c || !members) {
        free(c);
        free(members);
        return NULL;
    }
    c->loop = loop;
    c->members = members;
    c->count = idle + dribbling;
    memcpy(&c->server, server, server->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
    for (size_t i = 0; i < c->count; i++) {
        member *m = &members[i];
        *m = (member){.crowd = c, .dribbles = i >= idle};
        (void)uv_timer_init(loop, &m->timer);
        c->handles++;
        m->timer.data = m;
        come(&m->timer);
    }
    return c;
}

size_t crowd_connected(const crowd *c)
{
    return c->connected;
}

void crowd_close(crowd *c)
{
    c->closing = true;
    for (size_t i = 0; i < c->count; i++) {
        member *m = &c->members[i];
        if (m->open) leave(m);
        uv_close((uv_handle_t *)&m->timer, on_handle_closed);
    }
    while (c->handles > 0) (void)uv_run(c->loop, UV_RUN_ONCE);
    free(c->members);
    free(c);
}
