/* bench_server.h: the server a benchmark talks to: `descent serve` as a child process, or one that runs already. */
#ifndef DESCENT_TOOLS_BENCH_SERVER_H
#define DESCENT_TOOLS_BENCH_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

typedef struct bench_server bench_server;

/* Starts this program as `serve` with `arguments` (NULL-terminated, without --port) on a free port of 127.0.0.1, and waits
 * until it is ready. Its log is kept in memory while it runs. NULL and a message of `size` bytes on failure. */
bench_server *bench_server_start(const char *const *arguments, char *message, size_t size);
/* A server at "http://ADDRESS:PORT". */
bench_server *bench_server_at(const char *url, char *message, size_t size);
const struct sockaddr *bench_server_address(const bench_server *server);
/* True where no text is computed or waits. Asks for its /metrics, and waits for them. */
bool bench_server_idle(const bench_server *server);
/* Ends a child. NULL is allowed. */
void bench_server_stop(bench_server *server);

#endif
