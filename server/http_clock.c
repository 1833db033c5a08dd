/* http_clock.c: the absolute limits of time of a connection. Each connection has one timer, and its phase says what it
 * measures: waiting for a request, its headers, its body, or the silence of a stream. Nothing that arrives in a phase sets it
 * back. The library's own timeouts, which any byte sets back, are off.
 */
#include "http_internal.h"

enum { MOST_MILLISECONDS = 1 << 30 };

uint64_t http_milliseconds(double seconds)
{
    double ms = seconds * 1000;
    if (!(ms > 1)) return 1; /* NaN too */
    return ms < MOST_MILLISECONDS ? (uint64_t)ms : MOST_MILLISECONDS;
}

static void on_clock(uv_timer_t *timer);

/* A stream's clock is not set at each write, but when it fires: to what is left. */
static void keep_stream_alive(http_connection *connection)
{
    http_request *request = connection->request;
    if (!request || request->kind != HTTP_STREAM || request->ended || request->aborted) return;
    uint64_t most = http_milliseconds(connection->server->options.keepalive_seconds);
    uint64_t quiet = uv_now(connection->server->loop) - request->last_write;
    if (quiet >= most) {
        http_stream_comment(request);
        quiet = 0;
    }
    (void)uv_timer_start(&connection->clock, on_clock, most - quiet, 0);
}

static void on_clock(uv_timer_t *timer)
{
    http_connection *connection = timer->data;
    switch (connection->phase) {
    case HTTP_IDLE:
        http_connection_cut(connection, 0, NULL);
        break;
    case HTTP_HEADERS:
        http_connection_cut(connection, connection->first_byte ? 408 : 0, "the headers did not arrive in time");
        break;
    case HTTP_BODY:
        http_connection_cut(connection, 408, "the body did not arrive in time");
        break;
    case HTTP_ANSWERING:
        keep_stream_alive(connection);
        break;
    }
}

void http_clock_start(http_connection *connection)
{
    const http_options *options = &connection->server->options;
    double seconds = 0;
    switch (connection->phase) {
    case HTTP_IDLE:
        seconds = options->idle_seconds;
        break;
    case HTTP_HEADERS:
        seconds = options->header_seconds;
        break;
    case HTTP_BODY:
        seconds = options->body_seconds;
        break;
    case HTTP_ANSWERING:
        if (!connection->request || connection->request->kind != HTTP_STREAM) {
            (void)uv_timer_stop(&connection->clock);
            return;
        }
        seconds = options->keepalive_seconds;
        break;
    }
    (void)uv_timer_start(&connection->clock, on_clock, http_milliseconds(seconds), 0);
}
