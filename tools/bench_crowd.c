/* bench_crowd.c: see bench_load.h: connections that hold a server's attention, and ask for no text or do not read theirs. What
 * they get they do not look at. */
#include "bench_load.h"

#include <stdlib.h>
#include <string.h>

enum { DRIBBLE_MS = 450, SLOW_MS = 1000, RETURN_MS = 200, CROWD_READ_SIZE = 4096, SLOW_BUFFER = 2048 };

typedef enum manner { IDLE, DRIBBLING, SLOW } manner;

static const char probe[] = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"; /* 19 s of bytes: within --header-time */

typedef struct member {
    crowd *crowd;
    uv_tcp_t tcp;
    uv_timer_t timer; /* the next byte, or the next try */
    uv_connect_t connect;
    uv_write_t write;
    manner manner;
    bool open, connected, reading; /* open: `tcp` is a handle; reading: a slow one's answer has begun */
    size_t said;                   /* bytes of the probe */
} member;

struct crowd {
    uv_loop_t *loop;
    struct sockaddr_storage server;
    member *members; /* [count] */
    size_t count;
    char *request;  /* of the slow ones */
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
    m->connected = m->reading = false;
    (void)uv_timer_stop(&m->timer);
    if (!uv_is_closing((uv_handle_t *)&m->tcp)) uv_close((uv_handle_t *)&m->tcp, on_left);
}

static void on_answer(uv_stream_t *tcp, ssize_t bytes, const uv_buf_t *buffer)
{
    (void)buffer;
    member *m = tcp->data;
    if (bytes < 0)
        leave(m);
    else if (bytes > 0 && m->manner == SLOW) {
        m->reading = true;
        (void)uv_read_stop(tcp); /* for a second */
    }
}

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    member *m = handle->data;
    *buffer = uv_buf_init(m->crowd->buffer, m->manner == SLOW ? 1 : CROWD_READ_SIZE);
}

static void say_a_byte(uv_timer_t *timer)
{
    member *m = timer->data;
    uv_buf_t byte = uv_buf_init((char *)probe + m->said, 1);
    if (uv_try_write((uv_stream_t *)&m->tcp, &byte, 1) < 0) {
        leave(m);
        return;
    }
    m->said = (m->said + 1) % (sizeof probe - 1);
}

static void read_a_byte(uv_timer_t *timer)
{
    member *m = timer->data;
    (void)uv_read_start((uv_stream_t *)&m->tcp, give_buffer, on_answer);
}

static void on_asked(uv_write_t *write, int status)
{
    if (status < 0 && status != UV_ECANCELED) leave(write->data);
}

static bool begin(member *m)
{
    crowd *c = m->crowd;
    uint64_t first = 1 + (uint64_t)(m - c->members) % DRIBBLE_MS; /* not all at once */
    if (m->manner == DRIBBLING) (void)uv_timer_start(&m->timer, say_a_byte, first, DRIBBLE_MS);
    if (uv_read_start((uv_stream_t *)&m->tcp, give_buffer, on_answer) < 0) return false;
    if (m->manner != SLOW) return true;
    uv_buf_t request = uv_buf_init(c->request, (unsigned)strlen(c->request));
    m->write.data = m;
    (void)uv_timer_start(&m->timer, read_a_byte, SLOW_MS, SLOW_MS);
    return uv_write(&m->write, (uv_stream_t *)&m->tcp, &request, 1, on_asked) == 0;
}

static void on_connected(uv_connect_t *connect, int status)
{
    member *m = connect->data;
    if (status == UV_ECANCELED || m->crowd->closing) return;
    if (status < 0) {
        leave(m);
        return;
    }
    m->connected = true;
    m->said = 0;
    if (!begin(m)) leave(m);
}

static void come(uv_timer_t *timer)
{
    member *m = timer->data;
    int small = SLOW_BUFFER;
    if (uv_tcp_init_ex(m->crowd->loop, &m->tcp, m->crowd->server.ss_family) < 0) return;
    m->crowd->handles++;
    m->open = true;
    m->tcp.data = m->connect.data = m;
    if (m->manner == SLOW) (void)uv_recv_buffer_size((uv_handle_t *)&m->tcp, &small);
    if (uv_tcp_connect(&m->connect, &m->tcp, (const struct sockaddr *)&m->crowd->server, on_connected) < 0) leave(m);
}

crowd *crowd_open(uv_loop_t *loop, const struct sockaddr *server, const crowd_shape *shape)
{
    size_t quiet = shape->idle + shape->dribbling, count = quiet + shape->slow;
    crowd *c = calloc(1, sizeof *c);
    member *members = calloc(count ? count : 1, sizeof *members);
    char *request = strdup(shape->request ? shape->request : "");
    if (!c || !members || !request) {
        free(c);
        free(members);
        free(request);
        return NULL;
    }
    c->loop = loop;
    c->members = members;
    c->count = count;
    c->request = request;
    memcpy(&c->server, server, server->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
    for (size_t i = 0; i < c->count; i++) {
        member *m = &members[i];
        *m = (member){.crowd = c, .manner = i < shape->idle ? IDLE : i < quiet ? DRIBBLING : SLOW};
        (void)uv_timer_init(loop, &m->timer);
        c->handles++;
        m->timer.data = m;
        come(&m->timer);
    }
    return c;
}

size_t crowd_connected(const crowd *c)
{
    size_t count = 0;
    for (size_t i = 0; i < c->count; i++) count += c->members[i].connected && c->members[i].manner != SLOW;
    return count;
}

size_t crowd_reading(const crowd *c)
{
    size_t count = 0;
    for (size_t i = 0; i < c->count; i++) count += c->members[i].reading;
    return count;
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
    free(c->request);
    free(c);
}
