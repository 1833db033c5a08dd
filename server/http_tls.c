/* http_tls.c: certificate and key of a TLS listener. GnuTLS asks for them at each handshake, so that a new pair is shown to new
 * connections without the daemon being stopped; a pair lives until the last connection accepted under it is closed. Called by
 * http.c, http_connection.c, and by GnuTLS inside the daemon.
 */
#include "http_internal.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHAIN_MOST = 16, KEY_ID_SIZE = 64 };

struct http_identity {
    size_t references;
    gnutls_pcert_st chain[CHAIN_MOST];
    unsigned certificates;
    gnutls_privkey_t key;
};

struct http_tls {
    const char *cert, *key; /* files */
    http_identity *identity;
};

/* ---- A pair from its files --------------------------------------------------------------------------------------- */

static bool fail(char message[HTTP_MESSAGE_SIZE], const char *file, int code)
{
    (void)snprintf(message, HTTP_MESSAGE_SIZE, "%.300s: %s", file, gnutls_strerror(code));
    return false;
}

static bool read_chain(http_identity *identity, const char *file, char message[HTTP_MESSAGE_SIZE])
{
    gnutls_datum_t pem = {0};
    int code = gnutls_load_file(file, &pem);
    if (code < 0) return fail(message, file, code);
    unsigned count = CHAIN_MOST;
    code = gnutls_pcert_list_import_x509_raw(identity->chain, &count, &pem, GNUTLS_X509_FMT_PEM, 0);
    gnutls_free(pem.data);
    if (code < 0) return fail(message, file, code);
    identity->certificates = count;
    return true;
}

static bool read_key(http_identity *identity, const char *file, char message[HTTP_MESSAGE_SIZE])
{
    gnutls_datum_t pem = {0};
    int code = gnutls_load_file(file, &pem);
    if (code < 0) return fail(message, file, code);
    code = gnutls_privkey_init(&identity->key);
    if (code == 0) code = gnutls_privkey_import_x509_raw(identity->key, &pem, GNUTLS_X509_FMT_PEM, NULL, 0);
    gnutls_memset(pem.data, 0, pem.size);
    gnutls_free(pem.data);
    return code < 0 ? fail(message, file, code) : true;
}

/* Says at the start what would otherwise fail each handshake. */
static bool keys_match(const http_identity *identity)
{
    unsigned char ids[2][KEY_ID_SIZE];
    size_t sizes[2] = {KEY_ID_SIZE, KEY_ID_SIZE};
    gnutls_pubkey_t public;
    if (gnutls_pubkey_init(&public) != 0) return false;
    bool match = gnutls_pubkey_import_privkey(public, identity->key, 0, 0) == 0 &&
                 gnutls_pubkey_get_key_id(public, GNUTLS_KEYID_USE_SHA256, ids[0], &sizes[0]) == 0 &&
                 gnutls_pubkey_get_key_id(identity->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, ids[1], &sizes[1]) == 0 &&
                 sizes[0] == sizes[1] && !memcmp(ids[0], ids[1], sizes[0]);
    gnutls_pubkey_deinit(public);
    return match;
}

static http_identity *identity_read(const http_tls *tls, char message[HTTP_MESSAGE_SIZE])
{
    http_identity *identity = calloc(1, sizeof *identity);
    if (!identity) {
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "no memory for certificate and key");
        return NULL;
    }
    identity->references = 1;
    bool good = read_chain(identity, tls->cert, message) && read_key(identity, tls->key, message);
    if (good && !keys_match(identity)) {
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "%.200s is not the key of %.200s", tls->key, tls->cert);
        good = false;
    }
    if (good) return identity;
    http_identity_release(identity);
    return NULL;
}

void http_identity_release(http_identity *identity)
{
    if (!identity || --identity->references) return;
    for (unsigned i = 0; i < identity->certificates; i++) gnutls_pcert_deinit(&identity->chain[i]);
    if (identity->key) gnutls_privkey_deinit(identity->key);
    free(identity);
}

/* ---- The listener's ---------------------------------------------------------------------------------------------- */

http_tls *http_tls_create(const char *cert, const char *key, char message[HTTP_MESSAGE_SIZE])
{
    http_tls *tls = calloc(1, sizeof *tls);
    if (!tls) {
        (void)snprintf(message, HTTP_MESSAGE_SIZE, "no memory for certificate and key");
        return NULL;
    }
    tls->cert = cert;
    tls->key = key;
    if (http_tls_reload(tls, message) == 0) return tls;
    free(tls);
    return NULL;
}

int http_tls_reload(http_tls *tls, char message[HTTP_MESSAGE_SIZE])
{
    http_identity *identity = identity_read(tls, message);
    if (!identity) return -1;
    http_identity_release(tls->identity);
    tls->identity = identity;
    return 0;
}

void http_tls_destroy(http_tls *tls)
{
    if (!tls) return;
    http_identity_release(tls->identity);
    free(tls);
}

http_identity *http_tls_identity(http_tls *tls)
{
    tls->identity->references++;
    return tls->identity;
}

/* ---- For GnuTLS -------------------------------------------------------------------------------------------------- */

static int show(gnutls_session_t session, const gnutls_datum_t *authorities, int n_authorities,
                const gnutls_pk_algorithm_t *algorithms, int n_algorithms, gnutls_pcert_st **chain, unsigned *certificates,
                gnutls_privkey_t *key)
{
    (void)authorities;
    (void)n_authorities;
    (void)algorithms;
    (void)n_algorithms;
    /* The daemon has made its connection the session's pointer. */
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(gnutls_session_get_ptr(session), MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    http_identity *identity = ((http_connection *)info->socket_context)->identity;
    *chain = identity->chain;
    *certificates = identity->certificates;
    *key = identity->key;
    return 0;
}

gnutls_certificate_retrieve_function2 *http_tls_callback(void)
{
    return show;
}

/* libmicrohttpd 0.9.75 takes a socket for readable until its handshake is over, and runs it again and again. */
static ssize_t pull(gnutls_transport_ptr_t transport, void *data, size_t bytes)
{
    http_connection *connection = transport;
    ssize_t got = recv(connection->fd, data, bytes, 0);
    if (got < 0 && errno == EAGAIN && !connection->shaken) {
        http_connection_wait(connection);
        errno = EAGAIN;
    }
    return got;
}

/* The client's last message of a handshake, in every version. */
static int on_finished(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming, const gnutls_datum_t *message)
{
    (void)type;
    (void)when;
    (void)message;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(gnutls_session_get_ptr(session), MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (incoming) ((http_connection *)info->socket_context)->shaken = true;
    return 0;
}

void http_tls_begin(http_connection *connection)
{
    gnutls_session_t session = MHD_get_connection_info(connection->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)->tls_session;
    gnutls_transport_ptr_t receiving, sending;
    gnutls_transport_get_ptr2(session, &receiving, &sending);
    gnutls_transport_set_ptr2(session, connection, sending);
    gnutls_transport_set_pull_function(session, pull);
    gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_FINISHED, GNUTLS_HOOK_POST, on_finished);
}

void http_tls_send(struct MHD_Connection *mhd, const char *data, size_t bytes)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (info) (void)gnutls_record_send(info->tls_session, data, bytes);
}
