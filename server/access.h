/* access.h: who may ask what: API keys, the Host check against DNS rebinding, CORS. Loop thread only. Keys are compared in
 * constant time and appear in no message.
 */
#ifndef DESCENT_SERVER_ACCESS_H
#define DESCENT_SERVER_ACCESS_H

#include "api_error.h"
#include "http.h"

typedef struct access_rules access_rules;

typedef struct access_options {
    const char *const *key_files;     /* --api-key-file, NULL-terminated; each line a key, # begins a comment. NULL: no keys */
    const char *const *allowed_hosts; /* NULL-terminated or NULL */
    const char *const *cors_origins;  /* --cors: origins, or "*"; NULL: off */
    bool loopback;                    /* bound to a loopback address */
} access_options;

/* On failure NULL, and `message` names the file and line. */
access_rules *access_create(const access_options *options, char message[HTTP_MESSAGE_SIZE]);
/* Reads the key files again (SIGHUP). On failure -1, and the old keys stay. */
int access_reload(access_rules *a, char message[HTTP_MESSAGE_SIZE]);
void access_destroy(access_rules *a);

/* Checks Host (403) and key (401) of a request whose headers are there. `open`: a path that needs no key. On true *key_group is
 * the number of its key, from 1 on, stable across reloads for a key that stays; 0 without one. */
bool access_check(const access_rules *a, const http_request *request, bool open, uint64_t *key_group, api_error *error);
/* A body must say that it is JSON (415): a page of another origin cannot send such a one without asking first (CORS). */
bool access_json(const http_request *request, api_error *error);

/* Adds CORS headers to an answer where they are on and the origin is allowed; answers a preflight and returns true. */
bool access_cors(const access_rules *a, http_request *request);

#endif
