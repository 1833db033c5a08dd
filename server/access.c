/* access.c: see access.h. Owns the keys, each padded with zeros to one length, so that comparing takes as long whatever was
 * presented, and the lists of hosts and origins, which are the command line's. Called by service.c for every request.
 */
#include "access.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { KEY_SIZE = 256, MOST_KEYS = 4096, MOST_FILE_BYTES = 1 << 21, HOST_SIZE = 256 };

typedef struct key {
    unsigned char text[KEY_SIZE]; /* zeros behind it */
    uint64_t group;
} key;

typedef struct key_list {
    key *items;
    size_t count;
} key_list;

struct access_rules {
    access_options options;
    key_list keys;
    uint64_t last_group; /* numbers given so far: one that went is never given again */
};

/* ---- Keys ------------------------------------------------------------------------------------------------------- */

/* The whole KEY_SIZE bytes are looked at, whatever differs. */
static bool same_key(const unsigned char a[KEY_SIZE], const unsigned char b[KEY_SIZE])
{
    volatile unsigned char difference = 0;
    for (size_t i = 0; i < KEY_SIZE; i++) difference |= a[i] ^ b[i];
    return difference == 0;
}

/* The group of a key among `keys`, 0 where it is none of them. Every key is compared, whichever matches. */
static uint64_t find_group(const key_list *keys, const unsigned char text[KEY_SIZE])
{
    uint64_t group = 0;
    for (size_t i = 0; i < keys->count; i++) group |= keys->items[i].group & -(uint64_t)same_key(keys->items[i].text, text);
    return group;
}

/* Adds a line's key; blank lines and comments are none. Messages never show the key. */
static bool add_key(key_list *keys, char *line, size_t length, const char *file, size_t number, char message[HTTP_MESSAGE_SIZE])
{
    while (length && isspace((unsigned char)line[length - 1])) length--;
    while (length && isspace((unsigned char)*line)) line++, length--;
    if (!length || *line == '#') return true;
    for (size_t i = 0; i < length; i++) {
        if (line[i] > ' ' && line[i] < 0x7f) continue;
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "%s:%zu: a key is printable ASCII without spaces", file, number);
        return false;
    }
    if (length >= KEY_SIZE) {
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "%s:%zu: a key of %zu bytes; at most %d", file, number, length,
                       KEY_SIZE - 1);
        return false;
    }
    key read = {.group = 1}; /* until it is given its own */
    memcpy(read.text, line, length);
    if (find_group(keys, read.text)) return true; /* it stands there twice */
    if (keys->count == MOST_KEYS) {
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "%s:%zu: more than %d keys", file, number, MOST_KEYS);
        return false;
    }
    key *grown = realloc(keys->items, (keys->count + 1) * sizeof *grown);
    if (!grown) {
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "%s: no memory for its keys", file);
        return false;
    }
    keys->items = grown;
    keys->items[keys->count++] = read;
    return true;
}

static bool read_key_file(key_list *keys, const char *file, char message[HTTP_MESSAGE_SIZE])
{
    FILE *from = fopen(file, "re");
    struct stat about;
    if (!from || fstat(fileno(from), &about) != 0) {
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "cannot read the key file %s: %s", file, strerror(errno));
        if (from) (void)fclose(from);
        return false;
    }
    size_t before = keys->count, room = 0, number = 0, bytes = 0;
    char *line = NULL;
    bool good = true;
    for (ssize_t length; good && (length = getline(&line, &room, from)) >= 0;) {
        bytes += (size_t)length;
        good = add_key(keys, line, (size_t)length, file, ++number, message);
        if (!good || bytes <= MOST_FILE_BYTES) continue;
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "%s: more than %d bytes, which is no file of keys", file, MOST_FILE_BYTES);
        good = false;
    }
    if (good && ferror(from)) {
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "cannot read the key file %s: %s", file, strerror(errno));
        good = false;
    } else if (good && keys->count == before) {
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "%s: there is no new key in it", file);
        good = false;
    }
    if (line) explicit_bzero(line, room);
    free(line);
    (void)fclose(from);
    return good;
}

static void release_keys(key_list *keys)
{
    if (keys->items) explicit_bzero(keys->items, keys->count * sizeof *keys->items);
    free(keys->items);
    *keys = (key_list){0};
}

int access_reload(access_rules *a, char message[HTTP_MESSAGE_SIZE])
{
    key_list read = {0};
    for (const char *const *file = a->options.key_files; file && *file; file++) {
        if (read_key_file(&read, *file, message)) continue;
        release_keys(&read);
        return -1;
    }
    for (size_t i = 0; i < read.count; i++) {
        uint64_t known = find_group(&a->keys, read.items[i].text);
        read.items[i].group = known ? known : ++a->last_group;
    }
    release_keys(&a->keys);
    a->keys = read;
    return 0;
}

/* ---- Life ------------------------------------------------------------------------------------------------------- */

access_rules *access_create(const access_options *options, char message[HTTP_MESSAGE_SIZE])
{
    access_rules *a = calloc(1, sizeof *a);
    if (!a) {
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "no memory for the list of keys");
        return NULL;
    }
    a->options = *options;
    if (access_reload(a, message) == 0) return a;
    free(a);
    return NULL;
}

void access_destroy(access_rules *a)
{
    if (!a) return;
    release_keys(&a->keys);
    free(a);
}

/* ---- Host ------------------------------------------------------------------------------------------------------- */

static bool listed(const char *const *list, const char *text)
{
    for (; list && *list; list++)
        if (!strcasecmp(*list, text)) return true;
    return false;
}

/* The name in a Host header or a target, without port and brackets; all of it where something else follows a bracket. */
static void host_name(const char *header, char name[HOST_SIZE])
{
    size_t length = strcspn(header, ":");
    if (*header == '[') {
        const char *close = strchr(header, ']');
        bool whole = close && (!close[1] || close[1] == ':');
        length = whole ? (size_t)(close - ++header) : strlen(header);
    }
    (void)snprintf(name, HOST_SIZE, "%.*s", (int)(length < HOST_SIZE ? length : HOST_SIZE - 1), header);
}

static bool is_loopback(const char *name)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, name, &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, name, &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
    size_t length = strlen(name);
    static const char suffix[] = ".localhost"; /* reserved: RFC 6761 */
    return !strcasecmp(name, "localhost") ||
           (length >= sizeof suffix && !strcasecmp(name + length - (sizeof suffix - 1), suffix));
}

/* A page that a browser got from elsewhere may have a name that now leads to this machine: its requests say so in Host. */
static bool host_allowed(const access_rules *a, const http_request *request)
{
    const char *host = http_host(request);
    if (!a->options.loopback || a->keys.count || !host) return true;
    char name[HOST_SIZE];
    host_name(host, name);
    return is_loopback(name) || listed(a->options.allowed_hosts, name) || listed(a->options.allowed_hosts, host);
}

/* ---- Requests --------------------------------------------------------------------------------------------------- */

/* The key a request presents, padded; false where there is none, or one that is longer than any. */
static bool presented_key(const http_request *request, unsigned char text[KEY_SIZE])
{
    static const char scheme[] = "Bearer ";
    const char *header = http_header(request, "Authorization");
    memset(text, 0, KEY_SIZE);
    if (!header || strncasecmp(header, scheme, sizeof scheme - 1) != 0) return false;
    header += sizeof scheme - 1;
    while (*header == ' ') header++;
    size_t length = strlen(header);
    while (length && header[length - 1] == ' ') length--;
    if (!length || length >= KEY_SIZE) return false;
    memcpy(text, header, length);
    return true;
}

bool access_check(const access_rules *a, const http_request *request, bool open, uint64_t *key_group, api_error *error)
{
    *key_group = 0;
    if (!host_allowed(a, request))
        return api_fail(error, 403, NULL, "host_not_allowed",
                        "the Host header names neither this machine nor a host of --allowed-host; a server without keys on a "
                        "loopback address answers no other");
    if (!a->keys.count) return true;
    unsigned char text[KEY_SIZE];
    bool given = presented_key(request, text);
    uint64_t group = find_group(&a->keys, text); /* no key is all zeros */
    explicit_bzero(text, sizeof text);
    *key_group = group;
    if (open || group) return true;
    return api_fail(error, 401, NULL, "invalid_api_key",
                    given ? "the API key is none of this server's" : "this server wants an API key: Authorization: Bearer KEY");
}

bool access_json(const http_request *request, api_error *error)
{
    const char *type = http_header(request, "Content-Type");
    static const char wanted[] = "application/json";
    if (type && !strncasecmp(type, wanted, sizeof wanted - 1)) {
        const char *rest = type + sizeof wanted - 1;
        while (*rest == ' ' || *rest == '\t') rest++;
        if (!*rest || *rest == ';') return true;
    }
    return api_fail(error, 415, NULL, "unsupported_media_type", "the body must be sent as Content-Type: application/json%s",
                    type ? "" : "; the request names no type");
}

/* ---- CORS ------------------------------------------------------------------------------------------------------- */

bool access_cors(const access_rules *a, http_request *request)
{
    const char *const *origins = a->options.cors_origins;
    if (!origins || !*origins) return false;
    bool any = listed(origins, "*");
    const char *origin = http_header(request, "Origin");
    const char *method = http_header(request, "Access-Control-Request-Method");
    bool preflight = origin && method && !strcmp(http_method(request), "OPTIONS");
    http_add_header(request, "Vary",
                    preflight ? "Origin, Access-Control-Request-Method, Access-Control-Request-Headers" : "Origin");
    if (!origin || !(any || listed(origins, origin))) return false;
    http_add_header(request, "Access-Control-Allow-Origin", any ? "*" : origin);
    http_add_header(request, "Access-Control-Expose-Headers", "x-request-id, retry-after");
    if (!preflight) return false;
    const char *headers = http_header(request, "Access-Control-Request-Headers");
    http_add_header(request, "Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
    if (headers) http_add_header(request, "Access-Control-Allow-Headers", headers);
    http_add_header(request, "Access-Control-Max-Age", "7200"); /* what browsers keep at most */
    http_reply(request, 204, NULL, NULL, 0);
    return true;
}
