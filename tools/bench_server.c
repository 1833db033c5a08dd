/* bench_server.c: see bench_server.h. The child's log is the only way to learn its port. It goes into memory, not through a
 * pipe: whoever had to read there would take time from what is measured, the child's and the client's, at every line. */
#include "bench_server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_ARGUMENTS = 32, LOG_SIZE = 1 << 15, METRICS_SIZE = 1 << 17, PATIENCE_SECONDS = 120, POLL_US = 20000 };

struct bench_server {
    struct sockaddr_in address;
    pid_t pid;           /* 0: not ours, or over */
    int log;             /* what it writes; not ours: -1 */
    char text[LOG_SIZE]; /* the begin of that, NUL-terminated */
};

static void read_log(bench_server *s)
{
    ssize_t bytes = pread(s->log, s->text, sizeof s->text - 1, 0);
    s->text[bytes > 0 ? bytes : 0] = '\0';
}

/* True once, when the child has ended. */
static bool has_ended(bench_server *s)
{
    if (waitpid(s->pid, NULL, WNOHANG) != s->pid) return false;
    s->pid = 0;
    return true;
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
        bool ended = has_ended(s);
        if (!s->address.sin_port) read_log(s);
        const char *at = s->address.sin_port ? NULL : strstr(s->text, mark);
        if (at) s->address.sin_port = htons((uint16_t)strtoul(at + sizeof mark - 1, NULL, 10));
        if (ended) {
            read_log(s);
            (void)snprintf(message, size, "the server ended before it was ready: %.500s", s->text);
            return false;
        }
        if (s->address.sin_port && is_ready(s)) return true;
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

static bench_server *make(char *message, size_t size)
{
    bench_server *s = calloc(1, sizeof *s);
    if (!s) {
        (void)snprintf(message, size, "no memory for a server");
        return NULL;
    }
    s->log = -1;
    (void)uv_ip4_addr("127.0.0.1", 0, &s->address);
    return s;
}

bench_server *bench_server_start(const char *const *arguments, char *message, size_t size)
{
    bench_server *s = make(message, size);
    if (!s) return NULL;
    s->log = memfd_create("log", MFD_CLOEXEC);
    if (s->log >= 0) s->pid = spawn(arguments, s->log);
    if (s->pid > 0) {
        if (wait_until_ready(s, message, size)) return s;
    } else {
        s->pid = 0;
        (void)snprintf(message, size, "the server cannot be started: %s", strerror(errno));
    }
    bench_server_stop(s);
    return NULL;
}

bench_server *bench_server_at(const char *url, char *message, size_t size)
{
    char host[64];
    unsigned port;
    bench_server *s = make(message, size);
    if (!s) return NULL;
    if (sscanf(url, "http://%63[0-9.]:%u", host, &port) == 2 && port > 0 && port < 65536 &&
        uv_ip4_addr(host, (int)port, &s->address) == 0 && is_ready(s))
        return s;
    (void)snprintf(message, size, "no server that is ready at %s: expected http://ADDRESS:PORT, the address in numbers", url);
    bench_server_stop(s);
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
    if (server->log >= 0) (void)close(server->log);
    free(server);
}
