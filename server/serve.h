/* serve.h: a whole server, from its options to its exit code: listeners, models, signals, the end. One a process. */
#ifndef DESCENT_SERVER_SERVE_H
#define DESCENT_SERVER_SERVE_H

#include "service.h"

enum { SERVE_MESSAGE_SIZE = 768 };

typedef struct serve_options {
    const char *const *models; /* [n_models] FILE or NAME=FILE */
    size_t n_models;
    model_options model; /* scheduler.cache.byte_limit is that of all models together; 0: descent_cache_bytes_by_default */
    http_options http;
    const char *admin_host; /* NULL: no second listener */
    uint16_t admin_port;
    access_options access; /* .loopback is found out here */
    service_options service;
    uint64_t max_body_total;    /* bytes of bodies that are coming in or being read: 256 MiB */
    double drain_delay_seconds; /* from SIGTERM on, new requests are still served for so long: 5 */
    double drain_seconds;       /* from SIGTERM on, requests in flight may take so long: 30 */
    log_format log_format;
} serve_options;

serve_options serve_options_defaults(void);

/* Serves until SIGTERM or SIGINT, and returns the process's exit code. Where the server never came to serve, or a listener
 * failed, `message` says why, in a line; it is empty otherwise. Takes over the process's signals and its limit of descriptors.
 */
int serve(const serve_options *options, char message[SERVE_MESSAGE_SIZE]);

#endif
