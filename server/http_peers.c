/* http_peers.c: who is at the other end: how many connections an address has, which networks are proxies whose
 * X-Forwarded-For is believed, and addresses as text. An IPv4 address mapped into IPv6 is that IPv4 address. Called by http.c
 * when it accepts, and by http_request.c for each request.
 */
#include "http_internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ADDRESS_BYTES = 16, BUCKETS = 1024 };

/* 128 bits, IPv4 as ::ffff:a.b.c.d: one form for comparing and for networks. */
typedef struct address_key {
    unsigned char bytes[ADDRESS_BYTES];
} address_key;

typedef struct network {
    address_key key;
    unsigned bits; /* of 128 */
} network;

struct http_peer_count {
    address_key key;
    uint32_t connections;
    http_peer_count *next; /* of its bucket */
};

struct http_peers {
    uint32_t most;
    network *trusted;
    size_t n_trusted;
    http_peer_count *buckets[BUCKETS];
};

static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static bool is_mapped(const address_key *key)
{
    return !memcmp(key->bytes, mapped, sizeof mapped);
}

static address_key key_of(const struct sockaddr_storage *address)
{
    address_key key = {{0}};
    if (address->ss_family == AF_INET6) {
        memcpy(key.bytes, &((const struct sockaddr_in6 *)address)->sin6_addr, ADDRESS_BYTES);
    } else {
        memcpy(key.bytes, mapped, sizeof mapped);
        memcpy(key.bytes + sizeof mapped, &((const struct sockaddr_in *)address)->sin_addr, 4);
    }
    return key;
}

static bool read_address(const char *text, struct sockaddr_storage *address)
{
    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, text, &((struct sockaddr_in *)address)->sin_addr) == 1) {
        address->ss_family = AF_INET;
        return true;
    }
    address->ss_family = AF_INET6;
    return inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)address)->sin6_addr) == 1;
}

/* ---- Trusted networks -------------------------------------------------------------------------------------------- */

/* "10.0.0.0/8", "fd00::/8", or an address alone. */
static bool read_network(const char *text, network *out)
{
    char copy[INET6_ADDRSTRLEN + 4];
    if (strlen(text) >= sizeof copy) return false;
    memcpy(copy, text, strlen(text) + 1);
    char *slash = strchr(copy, '/');
    if (slash) *slash++ = 0;
    struct sockaddr_storage address;
    if (!read_address(copy, &address)) return false;
    unsigned most = address.ss_family == AF_INET ? 32 : 128, bits = most;
    if (slash) {
        if (!*slash || strlen(slash) > 3 || strspn(slash, "0123456789") != strlen(slash)) return false;
        bits = (unsigned)strtoul(slash, NULL, 10);
        if (bits > most) return false;
    }
    out->key = key_of(&address);
    out->bits = bits + 128 - most;
    return true;
}

static bool contains(const network *net, const address_key *key)
{
    unsigned whole = net->bits / 8, rest = net->bits % 8;
    if (memcmp(net->key.bytes, key->bytes, whole) != 0) return false;
    return !rest || ((net->key.bytes[whole] ^ key->bytes[whole]) >> (8 - rest)) == 0;
}

http_peers *http_peers_create(const http_options *options, char message[HTTP_MESSAGE_SIZE])
{
    size_t count = 0;
    while (options->trusted_proxies && options->trusted_proxies[count]) count++;
    http_peers *peers = calloc(1, sizeof *peers);
    if (peers && count) peers->trusted = calloc(count, sizeof *peers->trusted);
    if (!peers || (count && !peers->trusted)) {
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "no memory for the table of addresses");
        free(peers);
        return NULL;
    }
    peers->most = options->max_per_address;
    for (size_t i = 0; i < count; i++) {
        if (read_network(options->trusted_proxies[i], &peers->trusted[peers->n_trusted++])) continue;
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "'%.100s' is no network: an address, or one with /BITS",
                       options->trusted_proxies[i]);
        http_peers_destroy(peers);
        return NULL;
    }
    return peers;
}

void http_peers_destroy(http_peers *peers)
{
    if (!peers) return;
    free(peers->trusted);
    free(peers); /* every connection that was counted is over by now */
}

bool http_peers_trusted(const http_peers *peers, const struct sockaddr_storage *address)
{
    address_key key = key_of(address);
    for (size_t i = 0; i < peers->n_trusted; i++)
        if (contains(&peers->trusted[i], &key)) return true;
    return false;
}

/* ---- Counts ------------------------------------------------------------------------------------------------------ */

/* FNV-1a. An address cannot be chosen freely enough by an attacker to be worth a keyed hash. */
static http_peer_count **bucket_of(http_peers *peers, const address_key *key)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < ADDRESS_BYTES; i++) hash = (hash ^ key->bytes[i]) * 16777619u;
    return &peers->buckets[(hash ^ hash >> 16) % BUCKETS];
}

bool http_peers_add(http_peers *peers, const struct sockaddr_storage *address, http_peer_count **count)
{
    *count = NULL;
    if (!peers->most || http_peers_trusted(peers, address)) return true;
    address_key key = key_of(address);
    http_peer_count **bucket = bucket_of(peers, &key), *entry = *bucket;
    while (entry && memcmp(&entry->key, &key, sizeof key) != 0) entry = entry->next;
    if (entry && entry->connections >= peers->most) return false;
    if (!entry) {
        entry = calloc(1, sizeof *entry);
        if (!entry) return false;
        entry->key = key;
        entry->next = *bucket;
        *bucket = entry;
    }
    entry->connections++;
    *count = entry;
    return true;
}

void http_peers_remove(http_peers *peers, http_peer_count *count)
{
    if (!count || --count->connections) return;
    http_peer_count **link = bucket_of(peers, &count->key);
    while (*link != count) link = &(*link)->next;
    *link = count->next;
    free(count);
}

/* ---- Whom a request comes from ----------------------------------------------------------------------------------- */

/* One entry of X-Forwarded-For: "1.2.3.4", "1.2.3.4:5678", "::1", "[::1]:5678". */
static bool read_entry(const char *begin, const char *end, struct sockaddr_storage *address)
{
    while (begin < end && (*begin == ' ' || *begin == '\t')) begin++;
    while (end > begin && (end[-1] == ' ' || end[-1] == '\t')) end--;
    char text[INET6_ADDRSTRLEN + 8];
    size_t length = (size_t)(end - begin);
    if (!length || length >= sizeof text) return false;
    memcpy(text, begin, length);
    text[length] = 0;
    if (*text == '[') {
        char *close = strchr(text, ']');
        if (!close) return false;
        *close = 0;
        return read_address(text + 1, address);
    }
    char *colon = strchr(text, ':');
    if (colon && strchr(text, '.') && !strchr(colon + 1, ':')) *colon = 0;
    return read_address(text, address);
}

void http_peers_client(const http_peers *peers, const struct sockaddr_storage *connected, const char *forwarded,
                       struct sockaddr_storage *client)
{
    *client = *connected;
    if (!forwarded) return;
    const char *end = forwarded + strlen(forwarded);
    while (http_peers_trusted(peers, client)) {
        const char *begin = end;
        while (begin > forwarded && begin[-1] != ',') begin--;
        struct sockaddr_storage entry;
        if (!read_entry(begin, end, &entry)) return; /* the proxy that wrote it is as far as this can be followed */
        *client = entry;
        if (begin == forwarded) return;
        end = begin - 1;
    }
}

void http_address_text(const struct sockaddr_storage *address, char text[INET6_ADDRSTRLEN])
{
    address_key key = key_of(address);
    bool four = is_mapped(&key);
    if (!inet_ntop(four ? AF_INET : AF_INET6, key.bytes + (four ? sizeof mapped : 0), text, INET6_ADDRSTRLEN)) *text = 0;
}

bool http_address_loopback(const struct sockaddr_storage *address)
{
    address_key key = key_of(address);
    if (is_mapped(&key)) return key.bytes[sizeof mapped] == 127;
    return IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)key.bytes);
}
