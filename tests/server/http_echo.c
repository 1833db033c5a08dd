/* http_echo.c: a program around server/http.h alone, driven by test_http.py. It prints "PORT ADMIN_PORT" when it listens,
 * serves until its standard input closes, then closes with whatever is in flight and prints its counters.
 *
 *     POST /echo            the body                 GET  /peer             the client's address and the request's id
 *     POST /later?ms=N      the body, N ms later     GET  /counters         see counters_json
 *     GET  /stream?n=N&ms=M&bytes=B&how=end|abort    N events of B bytes, M ms apart, then the end
 *       &hold=word|tick                              held until the first of them; until M ms before it
 *     GET  /flood?bytes=B   B bytes in one event, then open until the client leaves
 *     any  /refused         413 on its headers; /refused-big: with the client's body unread
 *     POST /pair            two writes in one turn of the loop
 */
#include "http.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct counters {
    unsigned long headers, complete, gone, done, turns;
} counters;

typedef struct echo {
    uv_loop_t loop;
    http_server *servers[2];
    counters counts;
    http_budget bodies;
    uv_pipe_t input;
    uv_signal_t hangup;
    uv_check_t turn;
    int closed;
} echo;

/* What a request holds while it is answered later. */
typedef struct task {
    echo *owner;
    http_request *request; /* NULL: done */
    uv_timer_t timer;
    int left;
    size_t bytes;
    bool abort, gone, says_nothing; /* the last: in its next turn */
    char *text;                     /* of an event */
} task;

static int number(const http_request *request, const char *name, int otherwise)
{
    const char *text = http_query(request, name);
    return text ? atoi(text) : otherwise;
}

static void on_task_closed(uv_handle_t *handle)
{
    task *work = handle->data;
    free(work->text);
    free(work);
}

static task *task_start(echo *owner, http_request *request, uv_timer_cb tick, int ms)
{
    task *work = calloc(1, sizeof *work);
    if (!work) abort();
    work->owner = owner;
    work->request = request;
    work->timer.data = work;
    (void)uv_timer_init(&owner->loop, &work->timer);
    (void)uv_timer_start(&work->timer, tick, (uint64_t)ms, (uint64_t)ms);
    http_set_context(request, work);
    return work;
}

static void reply_body(http_request *request)
{
    size_t bytes;
    const char *body = http_body(request, &bytes);
    http_add_header(request, "x-echo", http_method(request));
    http_reply(request, 200, "application/octet-stream", body, bytes);
}

static void on_later(uv_timer_t *timer)
{
    task *work = timer->data;
    (void)uv_timer_stop(timer);
    reply_body(work->request);
}

static void on_event(uv_timer_t *timer)
{
    task *work = timer->data;
    bool speaks = !work->says_nothing && work->left-- > 0;
    if (speaks) http_stream_write(work->request, work->text, work->bytes);
    http_stream_let_go(work->request);
    bool goes_on = speaks || work->says_nothing;
    work->says_nothing = false;
    if (goes_on) return;
    (void)uv_timer_stop(timer);
    if (work->abort)
        http_stream_abort(work->request);
    else
        http_stream_end(work->request);
}

static void start_stream(echo *owner, http_request *request)
{
    http_stream_start(request);
    task *work = task_start(owner, request, on_event, number(request, "ms", 10));
    work->left = number(request, "n", 3);
    work->bytes = (size_t)number(request, "bytes", 16);
    if (work->bytes < 10) work->bytes = 10;
    const char *how = http_query(request, "how");
    work->abort = how && !strcmp(how, "abort");
    const char *hold = http_query(request, "hold");
    if (hold) http_stream_hold(request);
    work->says_nothing = hold && !strcmp(hold, "tick");
    work->text = malloc(work->bytes);
    if (!work->text) abort();
    memset(work->text, 'x', work->bytes);
    memcpy(work->text, "data: ", 6);
    memcpy(work->text + work->bytes - 2, "\n\n", 2);
}

static void start_flood(echo *owner, http_request *request)
{
    size_t bytes = (size_t)number(request, "bytes", 1 << 20);
    char *text = malloc(bytes);
    if (!text) abort();
    memset(text, 'y', bytes);
    (void)owner;
    http_stream_start(request);
    http_stream_write(request, text, bytes);
    free(text);
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory)) count++;
    if (directory) (void)closedir(directory);
    return count - 3; /* ".", ".." and the directory's own */
}

static long resident_kb(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    if (file) (void)fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int counters_json(const echo *owner, char *text, size_t size)
{
    const counters *c = &owner->counts;
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    return snprintf(text, size,
                    "{\"headers\": %lu, \"complete\": %lu, \"gone\": %lu, \"done\": %lu, \"turns\": %lu, \"connections\": %zu, "
                    "\"descriptors\": %d, \"cpu\": %.6f, \"rss_kb\": %ld, \"body_bytes\": %llu}",
                    c->headers, c->complete, c->gone, c->done, c->turns,
                    owner->servers[0] ? http_connections(owner->servers[0]) : 0, open_descriptors(), cpu, resident_kb(),
                    (unsigned long long)owner->bodies.used);
}

static void on_headers(void *user, http_request *request)
{
    echo *owner = user;
    owner->counts.headers++;
    if (strncmp(http_path(request), "/refused", 8) != 0) return;
    static const char text[] = "{\"error\": \"refused\"}";
    http_reply(request, 413, "application/json", text, sizeof text - 1);
}

static void on_complete(void *user, http_request *request)
{
    echo *owner = user;
    owner->counts.complete++;
    const char *path = http_path(request);
    char text[512];
    if (!strcmp(path, "/echo")) {
        reply_body(request);
    } else if (!strcmp(path, "/later")) {
        (void)task_start(owner, request, on_later, number(request, "ms", 50));
    } else if (!strcmp(path, "/stream")) {
        start_stream(owner, request);
    } else if (!strcmp(path, "/flood")) {
        start_flood(owner, request);
    } else if (!strcmp(path, "/counters")) {
        int bytes = counters_json(owner, text, sizeof text);
        http_reply(request, 200, "application/json", text, (size_t)bytes);
    } else if (!strcmp(path, "/peer")) {
        int bytes = snprintf(text, sizeof text, "%s %d %s", http_peer(request), http_peer_is_loopback(request),
                             http_request_id(request));
        http_reply(request, 200, "text/plain", text, (size_t)bytes);
    } else if (!strcmp(path, "/pair")) {
        http_stream_start(request);
        http_stream_write(request, "data: a\n\n", 9);
        http_stream_write(request, "data: b\n\n", 9);
        http_stream_end(request);
    } else {
        int bytes = snprintf(text, sizeof text, "nothing at %.400s", path);
        http_reply(request, 404, "text/plain", text, (size_t)bytes);
    }
}

static void on_gone(void *user, http_request *request)
{
    ((echo *)user)->counts.gone++;
    http_stream_write(request, "lost", 4);
}

static void on_done(void *user, http_request *request)
{
    ((echo *)user)->counts.done++;
    task *work = http_context(request);
    if (work) uv_close((uv_handle_t *)&work->timer, on_task_closed);
}

/* ---- The program ------------------------------------------------------------------------------------------------- */

static void on_server_closed(void *user)
{
    echo *owner = user;
    if (++owner->closed < 2) return;
    uv_close((uv_handle_t *)&owner->hangup, NULL);
    uv_close((uv_handle_t *)&owner->turn, NULL);
}

static void on_room(uv_handle_t *handle, size_t size, uv_buf_t *buffer)
{
    static char nowhere[64];
    (void)handle;
    (void)size;
    *buffer = uv_buf_init(nowhere, sizeof nowhere);
}

static void on_input(uv_stream_t *stream, ssize_t bytes, const uv_buf_t *buffer)
{
    echo *owner = stream->data;
    (void)buffer;
    if (bytes >= 0) return;
    uv_close((uv_handle_t *)stream, NULL);
    for (int i = 0; i < 2; i++) {
        http_close(owner->servers[i], on_server_closed, owner);
        owner->servers[i] = NULL;
    }
}

static void on_hangup(uv_signal_t *hangup, int number_)
{
    echo *owner = hangup->data;
    char message[HTTP_MESSAGE_SIZE] = "ok";
    (void)number_;
    (void)http_reload_tls(owner->servers[0], message);
    printf("reload: %s\n", message);
    (void)fflush(stdout);
}

static void on_turn(uv_check_t *turn)
{
    ((echo *)turn->data)->counts.turns++;
}

/* "name=value" arguments, named as the options are. */
static void read_options(int argc, char **argv, http_options *options, const char **trusted)
{
    size_t n_trusted = 0;
    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value) continue;
        *value++ = 0;
        const struct {
            const char *name;
            double *to;
        } seconds[] = {{"header_seconds", &options->header_seconds},     {"body_seconds", &options->body_seconds},
                       {"idle_seconds", &options->idle_seconds},         {"keepalive_seconds", &options->keepalive_seconds},
                       {"vanished_seconds", &options->vanished_seconds}, {"discard_seconds", &options->discard_seconds}};
        for (size_t k = 0; k < sizeof seconds / sizeof *seconds; k++)
            if (!strcmp(argv[i], seconds[k].name)) *seconds[k].to = atof(value);
        if (!strcmp(argv[i], "max_body")) options->max_body = strtoull(value, NULL, 10);
        if (!strcmp(argv[i], "max_body_total")) options->bodies->most = strtoull(value, NULL, 10);
        if (!strcmp(argv[i], "discard_bytes")) options->discard_bytes = strtoull(value, NULL, 10);
        if (!strcmp(argv[i], "max_connections")) options->max_connections = (uint32_t)atoi(value);
        if (!strcmp(argv[i], "max_per_address")) options->max_per_address = (uint32_t)atoi(value);
        if (!strcmp(argv[i], "tls_cert")) options->tls_cert = value;
        if (!strcmp(argv[i], "tls_key")) options->tls_key = value;
        if (!strcmp(argv[i], "host")) options->host = value;
        if (!strcmp(argv[i], "port")) options->port = (uint16_t)atoi(value);
        if (!strcmp(argv[i], "trusted") && n_trusted < 7) trusted[n_trusted++] = value;
        if (!strcmp(argv[i], "descriptors")) {
            rlim_t most = (rlim_t)atoi(value);
            (void)setrlimit(RLIMIT_NOFILE, &(struct rlimit){most, most});
        }
    }
}

int main(int argc, char **argv)
{
    static echo owner;
    const char *trusted[8] = {NULL};
    http_options options = http_options_defaults();
    options.port = 0;
    options.trusted_proxies = trusted;
    options.bodies = &owner.bodies;
    owner.bodies.most = UINT64_MAX;
    read_options(argc, argv, &options, trusted);
    (void)uv_loop_init(&owner.loop);
    http_handler handler = {on_headers, on_complete, on_gone, on_done, &owner};
    http_options admin = http_options_defaults();
    admin.port = 0;
    admin.reserve = 4;
    char message[HTTP_MESSAGE_SIZE];
    if (http_listen(&owner.loop, &options, &handler, &owner.servers[0], message) != 0 ||
        http_listen(&owner.loop, &admin, &handler, &owner.servers[1], message) != 0) {
        fprintf(stderr, "%s\n", message);
        return 1;
    }
    owner.input.data = owner.hangup.data = owner.turn.data = &owner;
    (void)uv_pipe_init(&owner.loop, &owner.input, 0);
    (void)uv_pipe_open(&owner.input, 0);
    (void)uv_read_start((uv_stream_t *)&owner.input, on_room, on_input);
    (void)uv_signal_init(&owner.loop, &owner.hangup);
    (void)uv_signal_start(&owner.hangup, on_hangup, SIGHUP);
    (void)uv_check_init(&owner.loop, &owner.turn);
    (void)uv_check_start(&owner.turn, on_turn);
    printf("%u %u\n", http_port(owner.servers[0]), http_port(owner.servers[1]));
    (void)fflush(stdout);
    (void)uv_run(&owner.loop, UV_RUN_DEFAULT);
    char text[512];
    (void)counters_json(&owner, text, sizeof text);
    printf("%s\n", text);
    return uv_loop_close(&owner.loop) == 0 ? 0 : 2;
}
