/* bench_server.c: see bench_server.h. The child's log is the only way to learn its port; after that it is read and forgotten,
 * so that the child never waits for its reader. */
#include "bench_server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_ARGUMENTS = 32, LOG_SIZE = 1 << 15, METRICS_SIZE = 1 << 17, PATIENCE_SECONDS = 120, POLL_US = 20000 };

struct bench_server {
    uv_loop_t *loop;
    struct sockaddr_in address;
    pid_t pid; /* 0: not ours */
    uv_pipe_t log;
    bool log_open, ended; /* ended: nothing more comes from the log */
    char text[LOG_SIZE];  /* of the log, until the port is known; its begin */
    size_t bytes;
};

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    bench_server *s = handle->data;
    if (s->bytes >= sizeof s->text - 1) s->bytes = 0;
    *buffer = uv_buf_init(s->text + s->bytes, (unsigned)(sizeof s->text - 1 - s->bytes));
}

static void on_log(uv_stream_t *stream, ssize_t bytes, const uv_buf_t *buffer)
{
    (void)buffer;
    bench_server *s = stream->data;
    if (bytes < 0) {
        s->ended = true;
        (void)uv_read_stop(stream);
        return;
    }
    s->bytes += (size_t)bytes;
    s->text[s->bytes] = '\0';
}

static void on_log_closed(uv_handle_t *handle)
{
    bench_server *s = handle->data;
    s->log_open = false;
}

/* True when a GET is answered with 200. Waits for the answer, of which [size] bytes are kept, NUL-terminated. */
static bool get(const bench_server *s, const char *path, char *answer, size_t size)
{
    char ask[128];
    size_t got = 0;
    int bytes = snprintf(ask, sizeof ask, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", path);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    ssize_t n = connect(fd, (const struct sockaddr *)&s->address, sizeof s->address) == 0 &&
                send(fd, ask, (size_t)bytes, MSG_NOSIGNAL) == bytes;
    while (n > 0 && got < size - 1) {
        n = recv(fd, answer + got, size - 1 - got, 0);
        if (n > 0) got += (size_t)n;
    }
    (void)close(fd);
    answer[got] = '\0';
    return !strncmp(answer, "HTTP/1.1 200", 12);
}

static bool is_ready(const bench_server *s)
{
    char answer[32];
    return get(s, "/ready", answer, sizeof answer);
}

/* The figure of a metric without labels in the text of /metrics; -1: it is not there. */
static double metric(const char *text, const char *name)
{
    size_t bytes = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (!strncmp(line, name, bytes) && line[bytes] == ' ') return strtod(line + bytes, NULL);
    }
    return -1;
}

bool bench_server_idle(const bench_server *s)
{
    static char text[METRICS_SIZE];
    return get(s, "/metrics", text, sizeof text) && metric(text, "descent_requests_running") == 0 &&
           metric(text, "descent_requests_waiting") == 0;
}

static bool wait_until_ready(bench_server *s, char *message, size_t size)
{
    static const char mark[] = "listening on http://127.0.0.1:";
    for (long i = 0; i < (long)PATIENCE_SECONDS * 1000000 / POLL_US; i++) {
        if (s->log_open) (void)uv_run(s->loop, UV_RUN_NOWAIT);
        const char *at = s->address.sin_port ? NULL : strstr(s->text, mark);
        if (at) s->address.sin_port = htons((uint16_t)strtoul(at + sizeof mark - 1, NULL, 10));
        if (s->address.sin_port && is_ready(s)) return true;
        if (s->ended) {
            (void)snprintf(message, size, "the server ended before it was ready: %.500s", s->text);
            return false;
        }
        (void)usleep(POLL_US);
    }
    (void)snprintf(message, size, "the server was not ready after %d s", PATIENCE_SECONDS);
    return false;
}

static pid_t spawn(const char *const *arguments, int log)
{
    const char *all[MOST_ARGUMENTS] = {"descent", "serve", "--host", "127.0.0.1", "--port", "0", "--log-format", "json"};
    size_t n = 8;
    for (; *arguments && n + 1 < MOST_ARGUMENTS; arguments++) all[n++] = *arguments;
    pid_t pid = fork();
    if (pid != 0) return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* it does not outlive us, however we end */
    (void)setpgid(0, 0);                    /* Ctrl-C is ours to answer */
    if (dup2(log, STDERR_FILENO) >= 0) (void)execv("/proc/self/exe", (char *const *)all);
    _exit(127);
}

static bench_server *make(uv_loop_t *loop, char *message, size_t size)
{
    bench_server *s = calloc(1, sizeof *s);
    if (!s) {
        (void)snprintf(message, size, "no memory for a server");
        return NULL;
    }
    s->loop = loop;
    (void)uv_ip4_addr("127.0.0.1", 0, &s->address);
    return s;
}

bench_server *bench_server_start(uv_loop_t *loop, const char *const *arguments, char *message, size_t size)
{
    int ends[2];
    bench_server *s = make(loop, message, size);
    if (!s) return NULL;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        (void)snprintf(message, size, "no pipe for the server's log: %s", strerror(errno));
        free(s);
        return NULL;
    }
    s->pid = spawn(arguments, ends[1]);
    (void)close(ends[1]);
    (void)uv_pipe_init(loop, &s->log, 0);
    s->log.data = s;
    s->log_open = true;
    if (uv_pipe_open(&s->log, ends[0]) < 0) (void)close(ends[0]);
    if (s->pid > 0 && uv_read_start((uv_stream_t *)&s->log, give_buffer, on_log) == 0) {
        if (wait_until_ready(s, message, size)) return s;
    } else {
        (void)snprintf(message, size, "the server cannot be started: %s", strerror(errno));
    }
    bench_server_stop(s);
    return NULL;
}

bench_server *bench_server_at(uv_loop_t *loop, const char *url, char *message, size_t size)
{
    char host[64];
    unsigned port;
    bench_server *s = make(loop, message, size);
    if (!s) return NULL;
    if (sscanf(url, "http://%63[0-9.]:%u", host, &port) == 2 && port > 0 && port < 65536 &&
        uv_ip4_addr(host, (int)port, &s->address) == 0 && is_ready(s))
        return s;
    (void)snprintf(message, size, "no server that is ready at %s: expected http://ADDRESS:PORT, the address in numbers", url);
    free(s);
    return NULL;
}

const struct sockaddr *bench_server_address(const bench_server *server)
{
    return (const struct sockaddr *)&server->address;
}

void bench_server_stop(bench_server *server)
{
    if (!server) return;
    if (server->pid > 0) {
        (void)kill(server->pid, SIGTERM);
        (void)kill(server->pid, SIGTERM); /* again: at once */
        (void)waitpid(server->pid, NULL, 0);
    }
    if (server->log_open) uv_close((uv_handle_t *)&server->log, on_log_closed);
    while (server->log_open) (void)uv_run(server->loop, UV_RUN_ONCE);
    free(server);
}
