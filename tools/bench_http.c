/* bench_http.c: a load over HTTP, as light as a client can be, since it shares the machine with the server: one loop, one
 * connection a stream, kept; answers are decoded (chunks, then server-sent events) and timed as their bytes come, and of a
 * chunk's JSON only what is looked for is looked at.
 */
#include "bench_load.h"

#include "json_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READ_SIZE = 1 << 16, LINE_SIZE = 1 << 14 };

/* Where in an answer its bytes are: head; then chunks, each its size in a line, data, and an empty line; the last of size 0. */
typedef enum reading { READ_HEAD, READ_CHUNK_SIZE, READ_CHUNK, READ_CHUNK_END, READ_LAST } reading;

typedef struct http_run http_run;

typedef struct http_stream {
    http_run *run;
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    size_t index, generations; /* of them begun */
    json_text request;
    uint64_t asked, last; /* uv_hrtime; last 0: no token yet */
    reading state;
    char line[LINE_SIZE]; /* of the head or of an event, as far as it is there; chunks may end within one */
    size_t line_bytes;
    size_t chunk; /* bytes of it to come */
    bool done;    /* [DONE] came */
} http_stream;

struct http_run {
    uv_loop_t *loop;
    const load *load;
    load_result *result;
    char *message;
    http_stream *streams; /* [load->streams] */
    uint32_t *prompt;
    json_text body; /* of the request being made */
    size_t connected, open, running;
    bool failed;
    char buffer[READ_SIZE];
};

static void on_closed(uv_handle_t *handle)
{
    http_stream *s = handle->data;
    s->run->open--;
    json_text_release(&s->request);
}

static void close_stream(http_stream *s)
{
    if (!uv_is_closing((uv_handle_t *)&s->tcp)) uv_close((uv_handle_t *)&s->tcp, on_closed);
}

__attribute__((format(printf, 2, 3))) static void fail(http_run *run, const char *format, ...)
{
    va_list arguments;
    if (run->failed) return;
    run->failed = true;
    va_start(arguments, format);
    (void)vsnprintf(run->message, BENCH_MESSAGE_SIZE, format, arguments);
    va_end(arguments);
    for (size_t i = 0; i < run->load->streams; i++)
        if (run->streams[i].run) close_stream(&run->streams[i]);
    uv_stop(run->loop);
}

/* ---- Asking ------------------------------------------------------------------------------------------------------ */

/* Makes the next text's request. */
static void make_request(http_stream *s)
{
    http_run *run = s->run;
    const load_shape *shape = run->load->shape;
    const asked_depth *depth;
    int64_t seed;
    json_text *body = &run->body, *out = &s->request;
    load_text(run->load, s->index, s->generations++, run->prompt, &depth, &seed);
    json_text_clear(body);
    json_text_put(body, "{\"model\":\"");
    json_text_put(body, shape->name);
    if (strcmp(depth->text, "none") != 0) {
        json_text_put(body, "@");
        json_text_put(body, depth->text);
    }
    json_text_put(body, "\",\"prompt\":[");
    for (size_t i = 0; i < shape->prompt_tokens; i++) {
        if (i > 0) json_text_put(body, ",");
        json_text_unsigned(body, run->prompt[i]);
    }
    json_text_put(body, "],\"max_tokens\":");
    json_text_unsigned(body, shape->tokens);
    json_text_put(body, ",\"ignore_eos\":true,\"seed\":");
    json_text_integer(body, seed);
    json_text_put(body, ",\"stream\":true,\"stream_options\":{\"include_usage\":true},"
                        "\"descent\":{\"draft_steps\":0}}"); /* both sides do the same */
    json_text_clear(out);
    json_text_put(out, "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                       "Content-Length: ");
    json_text_unsigned(out, body->bytes);
    json_text_put(out, "\r\n\r\n");
    json_text_bytes(out, body->text, body->bytes);
    out->failed |= body->failed;
}

static void on_written(uv_write_t *write, int status)
{
    const http_stream *s = write->data;
    if (status < 0 && status != UV_ECANCELED) fail(s->run, "writing a request: %s", uv_strerror(status));
}

/* Sends what the socket takes at once, which nearly always is all of it. */
static int send_request(http_stream *s)
{
    uv_buf_t buffer = uv_buf_init(s->request.text, (unsigned)s->request.bytes);
    int sent = uv_try_write((uv_stream_t *)&s->tcp, &buffer, 1);
    if (sent == (int)s->request.bytes) return 0;
    if (sent == UV_EAGAIN) sent = 0;
    if (sent < 0) return sent;
    buffer.base += sent;
    buffer.len -= (size_t)sent;
    s->write.data = s;
    return uv_write(&s->write, (uv_stream_t *)&s->tcp, &buffer, 1, on_written);
}

static void ask(http_stream *s)
{
    make_request(s);
    if (s->request.failed) {
        fail(s->run, "no memory for a request");
        return;
    }
    s->state = READ_HEAD;
    s->line_bytes = 0;
    s->done = false;
    s->last = 0;
    s->asked = uv_hrtime();
    int status = send_request(s);
    if (status < 0) fail(s->run, "writing a request: %s", uv_strerror(status));
}

/* ---- Reading an answer ------------------------------------------------------------------------------------------- */

/* The number behind `key` in a chunk; 0 where it is not there. */
static uint64_t number_after(const char *json, const char *key)
{
    const char *at = strstr(json, key);
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* True for a token's chunk: looked for where it says so. */
static bool is_token(const char *line, size_t bytes)
{
    static const char end[] = "\"finish_reason\":null}],\"usage\":null}";
    size_t behind = sizeof end - 1;
    return bytes >= behind && !memcmp(line + bytes - behind, end, behind);
}

/* A line of server-sent events, NUL-terminated. */
static void read_event(http_stream *s, const char *line, size_t bytes)
{
    http_run *run = s->run;
    if (strncmp(line, "data: ", 6) != 0) return;
    if (!strcmp(line + 6, "[DONE]")) {
        s->done = true;
    } else if (is_token(line, bytes)) {
        uint64_t now = uv_hrtime();
        load_samples_add(s->last ? &run->result->between : &run->result->first,
                         (double)(now - (s->last ? s->last : s->asked)) / 1e9);
        s->last = now;
    } else if (strstr(line, "\"usage\":{")) {
        uint64_t tokens = number_after(line, "\"completion_tokens\":");
        run->result->tokens += tokens;
        run->result->row_steps += number_after(line, "\"descent_steps\":");
        if (tokens != run->load->shape->tokens)
            fail(run, "a text has %" PRIu64 " tokens, %zu were asked for", tokens, run->load->shape->tokens);
    } else if (strstr(line, "{\"error\":")) {
        fail(run, "the server says: %.300s", line + 6);
    }
}

/* The line that goes on at *at, NUL-terminated, without "\r\n", and its *bytes: where it began there it stays there, else it is
 * put together in s->line. NULL: its end is not there yet. */
static const char *take_line(http_stream *s, char **at, const char *end, size_t *bytes)
{
    char *from = *at, *line = from, *newline = memchr(from, '\n', (size_t)(end - from));
    *bytes = (size_t)((newline ? newline : end) - from);
    *at += *bytes + (newline != NULL);
    if (!newline || s->line_bytes > 0) {
        if (*bytes > sizeof s->line - 1 - s->line_bytes) {
            fail(s->run, "a line of more than %d bytes from the server", LINE_SIZE - 1);
            return NULL;
        }
        memcpy(s->line + s->line_bytes, from, *bytes);
        s->line_bytes += *bytes;
        if (!newline) return NULL;
        line = s->line;
        *bytes = s->line_bytes;
        s->line_bytes = 0;
    }
    if (*bytes && line[*bytes - 1] == '\r') (*bytes)--;
    line[*bytes] = '\0';
    return line;
}

static void end_of_answer(http_stream *s)
{
    http_run *run = s->run;
    if (!s->done) {
        fail(run, "an answer ended without [DONE]");
        return;
    }
    if (s->generations < run->load->generations) {
        ask(s);
        return;
    }
    if (--run->running == 0) uv_stop(run->loop);
}

/* The head goes on at *at. */
static void read_head(http_stream *s, char **at, const char *end)
{
    size_t bytes;
    const char *line = take_line(s, at, end, &bytes);
    if (!line) return;
    int shown = end - *at < 400 ? (int)(end - *at) : 400;
    if (!strncmp(line, "HTTP/", 5) && strncmp(line, "HTTP/1.1 200", 12) != 0)
        fail(s->run, "the server answers %.60s ... %.*s", line, shown, *at);
    if (bytes == 0) s->state = READ_CHUNK_SIZE;
}

static void read_data(http_stream *s, char **at, const char *end)
{
    const char *from = *at;
    size_t bytes;
    const char *line = take_line(s, at, (size_t)(end - from) < s->chunk ? end : from + s->chunk, &bytes);
    s->chunk -= (size_t)(*at - from);
    if (s->chunk == 0) s->state = READ_CHUNK_END;
    if (line) read_event(s, line, bytes);
}

static size_t hex_value(char c)
{
    return (size_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10) & 15;
}

static void read_bytes(http_stream *s, char *at, const char *end)
{
    while (at < end && !s->run->failed) {
        if (s->state == READ_HEAD) {
            read_head(s, &at, end);
        } else if (s->state == READ_CHUNK) {
            read_data(s, &at, end);
        } else {
            char c = *at++;
            if (s->state == READ_CHUNK_SIZE && c != '\r' && c != '\n') s->chunk = s->chunk * 16 + hex_value(c);
            if (c != '\n') continue;
            if (s->state == READ_CHUNK_SIZE)
                s->state = s->chunk ? READ_CHUNK : READ_LAST;
            else if (s->state == READ_CHUNK_END)
                s->state = READ_CHUNK_SIZE;
            else
                end_of_answer(s);
        }
    }
}

static void on_read(uv_stream_t *tcp, ssize_t bytes, const uv_buf_t *buffer)
{
    http_stream *s = tcp->data;
    if (bytes > 0)
        read_bytes(s, buffer->base, buffer->base + bytes);
    else if (bytes < 0)
        fail(s->run, "a connection of a stream ended: %s", uv_strerror((int)bytes));
}

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    const http_stream *s = handle->data;
    *buffer = uv_buf_init(s->run->buffer, READ_SIZE);
}

/* ---- A run ------------------------------------------------------------------------------------------------------- */

static void on_connected(uv_connect_t *connect, int status)
{
    http_stream *s = connect->data;
    if (status == UV_ECANCELED) return;
    if (status == 0) status = uv_read_start((uv_stream_t *)&s->tcp, give_buffer, on_read);
    if (status < 0)
        fail(s->run, "connecting to the server: %s", uv_strerror(status));
    else if (++s->run->connected == s->run->load->streams)
        uv_stop(s->run->loop);
}

static void connect_streams(http_run *run, const struct sockaddr *server)
{
    for (size_t i = 0; i < run->load->streams && !run->failed; i++) {
        http_stream *s = &run->streams[i];
        s->index = i;
        s->tcp.data = s->connect.data = s;
        int status = uv_tcp_init(run->loop, &s->tcp);
        if (status == 0) {
            s->run = run;
            run->open++;
            (void)uv_tcp_nodelay(&s->tcp, 1);
            status = uv_tcp_connect(&s->connect, &s->tcp, server, on_connected);
        }
        if (status < 0) fail(run, "connecting to the server: %s", uv_strerror(status));
    }
}

bool bench_http_run(uv_loop_t *loop, const struct sockaddr *server, const load *l, load_result *result,
                    char message[BENCH_MESSAGE_SIZE])
{
    http_run *run = calloc(1, sizeof *run);
    http_stream *streams = calloc(l->streams, sizeof *streams);
    uint32_t *prompt = calloc(l->shape->prompt_tokens, sizeof *prompt);
    bool good = run && streams && prompt;
    if (good) {
        *run = (http_run){.loop = loop, .load = l, .result = result, .message = message, .streams = streams, .prompt = prompt};
        connect_streams(run, server);
        while (!run->failed && run->connected < l->streams) (void)uv_run(loop, UV_RUN_DEFAULT);
        uint64_t started = uv_hrtime();
        run->running = l->streams;
        for (size_t i = 0; i < l->streams && !run->failed; i++) ask(&streams[i]);
        while (!run->failed && run->running > 0) (void)uv_run(loop, UV_RUN_DEFAULT);
        result->seconds += (double)(uv_hrtime() - started) / 1e9;
        for (size_t i = 0; i < l->streams; i++)
            if (streams[i].run) close_stream(&streams[i]);
        while (run->open > 0) (void)uv_run(loop, UV_RUN_ONCE);
        good = !run->failed;
    } else {
        (void)snprintf(message, BENCH_MESSAGE_SIZE, "no memory for %zu streams", l->streams);
    }
    if (run) json_text_release(&run->body);
    free(prompt);
    free(streams);
    free(run);
    return good;
}
