/* service.c: see service.h. Owns the table of routes, the order in which a request is checked before its body is read, and the
 * life of an exchange: made with the headers, answered by an endpoint, counted and logged when request and job are both over.
 *
 *     preflight -> Host, key -> path, method -> loading, ending -> length, type of the body -> (body) -> endpoint
 */
#include "service.h"

#include "utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { RETRY_SECONDS = 2, PATH_SHOWN = 120, MOST_RETRY_SECONDS = 60, SEQUENCES_A_SECOND = 8 };

/* ---- Routes ----------------------------------------------------------------------------------------------------- */

typedef struct route {
    const char *path; /* ends with a slash: everything below it, but for the root */
    const char *method;
    endpoint run;
    bool open;   /* needs no key */
    bool always; /* needs no model: answers while they load, and while the server ends */
    bool admin;  /* on --admin-listen too */
    const char *label;
} route;

static const route routes[] = {
    {"/", "GET", endpoint_page, .open = true, .always = true, .label = "/"},
    {"/app.js", "GET", endpoint_page, .open = true, .always = true, .label = "/app.js"},
    {"/app.css", "GET", endpoint_page, .open = true, .always = true, .label = "/app.css"},
    {"/health", "GET", endpoint_health, .open = true, .always = true, .admin = true, .label = "/health"},
    {"/ready", "GET", endpoint_ready, .open = true, .always = true, .admin = true, .label = "/ready"},
    {"/metrics", "GET", endpoint_metrics, .always = true, .admin = true, .label = "/metrics"},
    {"/openapi.json", "GET", endpoint_openapi, .open = true, .always = true, .label = "/openapi.json"},
    {"/props", "GET", endpoint_props, .label = "/props"},
    {"/v1/models", "GET", endpoint_models, .label = "/v1/models"},
    {"/v1/models/", "GET", endpoint_models, .label = "/v1/models/{id}"},
    {"/v1/completions", "POST", endpoint_completions, .label = "/v1/completions"},
    {"/v1/chat/completions", "POST", endpoint_chat, .label = "/v1/chat/completions"},
    {"/v1/descent/trace", "POST", endpoint_trace, .label = "/v1/descent/trace"},
    {"/v1/descent/states", "POST", endpoint_states, .label = "/v1/descent/states"},
    {"/v1/descent/scaling", "POST", endpoint_scaling, .label = "/v1/descent/scaling"},
    {"/tokenize", "POST", endpoint_tokenize, .label = "/tokenize"},
    {"/detokenize", "POST", endpoint_detokenize, .label = "/detokenize"},
    {"/tokenizer_info", "GET", endpoint_tokenizer_info, .label = "/tokenizer_info"},
};
enum { N_ROUTES = sizeof routes / sizeof *routes };

const char *const service_endpoints[] = {
    "/",
    "/app.js",
    "/app.css",
    "/health",
    "/ready",
    "/metrics",
    "/openapi.json",
    "/props",
    "/v1/models",
    "/v1/models/{id}",
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/descent/trace",
    "/v1/descent/states",
    "/v1/descent/scaling",
    "/tokenize",
    "/detokenize",
    "/tokenizer_info",
    NULL,
};

static const route *find_route(const char *path, bool admin)
{
    for (size_t i = 0; i < N_ROUTES; i++) {
        const route *r = &routes[i];
        size_t length = strlen(r->path);
        bool below = length > 1 && r->path[length - 1] == '/';
        if (admin && !r->admin) continue;
        if (below ? !strncmp(path, r->path, length) && path[length] : !strcmp(path, r->path)) return r;
    }
    return NULL;
}

static const char *allowed_methods(const route *r)
{
    return !strcmp(r->method, "GET") ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
}

static bool method_fits(const route *r, const char *method)
{
    return !strcmp(method, r->method) || (!strcmp(r->method, "GET") && !strcmp(method, "HEAD"));
}

/* ---- Answers ---------------------------------------------------------------------------------------------------- */

static const char no_memory[] =
    "{\"error\":{\"message\":\"no memory for the answer\",\"type\":\"server_error\",\"param\":null,\"code\":null}}";

void exchange_reply_text(exchange *x, unsigned status, const char *body, size_t bytes)
{
    http_reply(x->request, status, "application/json", body, bytes);
}

void exchange_reply(exchange *x, unsigned status, json_t *body)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    if (text) {
        exchange_reply_text(x, status, text, strlen(text));
    } else {
        http_add_header(x->request, "x-should-retry", "false");
        exchange_reply_text(x, 500, no_memory, sizeof no_memory - 1);
    }
    free(text);
}

static void note_error(exchange *x, const api_error *error)
{
    const char *said = error->quotes_prompt ? "(it quotes the prompt)" : error->message;
    (void)snprintf(x->log_error, sizeof x->log_error, "%.*s", (int)sizeof x->log_error - 1, said);
    x->log.error = x->log_error;
}

void exchange_fail(exchange *x, const api_error *error)
{
    if (error->retry_after) {
        char seconds[16];
        (void)snprintf(seconds, sizeof seconds, "%u", error->retry_after);
        http_add_header(x->request, "Retry-After", seconds);
    }
    if (error->no_retry) http_add_header(x->request, "x-should-retry", "false");
    if (error->status == 503 && x->service->state == SERVICE_REFUSING) http_add_header(x->request, "Connection", "close");
    if (error->status == 401) http_add_header(x->request, "WWW-Authenticate", "Bearer");
    note_error(x, error);
    exchange_reply(x, error->status, api_error_json(error));
}

void exchange_fail_stream(exchange *x, const api_error *error)
{
    json_t *body = api_error_json(error);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    const char *said = text ? text : no_memory;
    note_error(x, error);
    http_stream_write(x->request, "data: ", 6);
    http_stream_write(x->request, said, strlen(said));
    http_stream_write(x->request, "\n\n", 2);
    http_stream_abort(x->request);
    free(text);
    json_decref(body);
}

bool service_loading(api_error *error)
{
    (void)api_fail(error, 503, NULL, "loading", "the models are still being loaded");
    error->retry_after = RETRY_SECONDS;
    return false;
}

static bool refuse_ending(api_error *error)
{
    (void)api_fail(error, 503, NULL, "draining", "the server is about to end: it takes no new work");
    error->retry_after = RETRY_SECONDS;
    return false;
}

bool service_model(const service *s, const char *name, served_model **model, api_error *error)
{
    const char *depth;
    if (name) return request_find_model(&s->models, name, model, &depth, error);
    if (s->models.count != 1)
        return api_fail(error, 400, "model", NULL,
                        "this server has %zu models: model must name one of those that /v1/models lists", s->models.count);
    *model = &s->models.items[0];
    return true;
}

bool service_admit(const service *s, size_t sequences, api_error *error)
{
    uint32_t most = s->options->max_queue;
    if (sequences > most)
        return api_fail(error, 400, NULL, "too_many_sequences",
                        "the request has %zu sequences (prompts x max(n, best_of)); the empty queue holds %" PRIu32
                        " (--max-queue)",
                        sequences, most);
    if (sequences <= most - s->sequences) return true;
    size_t seconds = 1 + s->sequences / SEQUENCES_A_SECOND;
    (void)api_fail(error, 429, NULL, "queue_full",
                   "the queue is full: %zu of %" PRIu32 " sequences are waiting or running, and this request has %zu",
                   s->sequences, most, sequences);
    error->retry_after = seconds < MOST_RETRY_SECONDS ? (unsigned)seconds : MOST_RETRY_SECONDS;
    return false;
}

/* ---- Checks, before the body ------------------------------------------------------------------------------------ */

static bool refuse_path(const char *path, bool admin, api_error *error)
{
    char shown[PATH_SHOWN], known[512] = "";
    size_t used = 0;
    (void)utf8_printable(path, strlen(path), shown, sizeof shown);
    if (!strcmp(path, "/v1/responses") || !strncmp(path, "/v1/responses/", 14))
        return api_fail(error, 404, NULL, "unknown_path", "%s is not here: use /v1/chat/completions", shown);
    for (size_t i = 0; i < N_ROUTES && used < sizeof known; i++)
        if (!admin || routes[i].admin)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s %s", used ? ", " : "", routes[i].method,
                                     routes[i].label);
    return api_fail(error, 404, NULL, "unknown_path", "there is no %s; there are %s", shown, known);
}

/* What is known of a body before it comes. Which limit a chunked one breaks shows later, and http.c answers it. */
static bool check_body(const service *s, const http_request *request, api_error *error)
{
    uint64_t declared = http_declared_length(request);
    if (declared != UINT64_MAX && declared > s->options->max_body)
        return api_fail(error, 413, NULL, "body_too_large", "a body of %llu bytes; at most %llu are taken (--max-body)",
                        (unsigned long long)declared, (unsigned long long)s->options->max_body);
    if (!access_json(request, error)) return false;
    if (declared == UINT64_MAX || http_budget_has(s->bodies, declared)) return true;
    (void)api_fail(error, 503, NULL, "bodies_full",
                   "bodies of %llu bytes are coming in or being read, and this one has %llu; at most %llu are held at once "
                   "(--max-body-total)",
                   (unsigned long long)s->bodies->used, (unsigned long long)declared, (unsigned long long)s->bodies->most);
    error->retry_after = RETRY_SECONDS;
    return false;
}

/* True where the body may come. The admin port has no keys: what it tells is no more than figures. */
static bool check(exchange *x, bool admin, api_error *error)
{
    const service *s = x->service;
    const route *r = x->route;
    const char *path = http_path(x->request), *method = http_method(x->request);
    bool open = (r && r->open) || !strcmp(method, "OPTIONS");
    if (!admin && !access_check(s->access, x->request, open, &x->key_group, error)) return false;
    if (!r) return refuse_path(path, admin, error);
    if (!method_fits(r, method)) {
        http_add_header(x->request, "Allow", allowed_methods(r));
        return api_fail(error, 405, NULL, "method_not_allowed", "%s takes %s", r->label, r->method);
    }
    if (!r->always && s->state == SERVICE_LOADING) return service_loading(error);
    if (!r->always && s->state == SERVICE_REFUSING) return refuse_ending(error);
    return strcmp(r->method, "POST") != 0 || check_body(s, x->request, error);
}

/* ---- The life of an exchange ------------------------------------------------------------------------------------ */

static exchange *exchange_open(service *s, http_request *request, bool admin)
{
    exchange *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->service = s;
    x->request = request;
    x->route = find_route(http_path(request), admin);
    (void)snprintf(x->log_id, sizeof x->log_id, "%s", http_request_id(request));
    (void)snprintf(x->log_method, sizeof x->log_method, "%s", http_method(request));
    (void)snprintf(x->log_path, sizeof x->log_path, "%s", http_path(request));
    (void)snprintf(x->log_peer, sizeof x->log_peer, "%s", http_peer(request));
    x->log.id = x->log_id;
    x->log.method = x->log_method;
    x->log.path = x->log_path;
    x->log.peer = x->log_peer;
    x->next = s->exchanges;
    if (x->next) x->next->previous = x;
    s->exchanges = x;
    http_set_context(request, x);
    return x;
}

static void count_rejection(const exchange *x)
{
    metrics *m = x->service->metrics;
    unsigned status = x->log.status;
    if (x->route && x->route->always && status != 401) return; /* a probe's no is an answer */
    if (status == 401 || status == 403)
        metrics_count_rejection(m, METRICS_UNAUTHORIZED);
    else if (status == 413)
        metrics_count_rejection(m, METRICS_TOO_LARGE);
    else if (status == 503 && x->service->state == SERVICE_LOADING)
        metrics_count_rejection(m, METRICS_LOADING);
    else if (status == 503 && x->service->state == SERVICE_REFUSING)
        metrics_count_rejection(m, METRICS_DRAINING);
    else if (status == 429 || status == 503)
        metrics_count_rejection(m, METRICS_QUEUE_FULL);
    else if (status >= 400 && status < 500)
        metrics_count_rejection(m, METRICS_INVALID);
}

/* Request and job are over: the line of the log and the figures say the same. */
static void exchange_close(exchange *x)
{
    service *s = x->service;
    metrics_count_request(s->metrics, x->route ? x->route->label : "other", x->log.status);
    metrics_observe(s->metrics, METRICS_REQUEST_SECONDS, x->log.seconds);
    count_rejection(x);
    log_request_line(&x->log);
    if (x->next) x->next->previous = x->previous;
    *(x->previous ? &x->previous->next : &s->exchanges) = x->next;
    free(x);
    if (s->state == SERVICE_REFUSING && service_idle(s) && s->drained) s->drained(s);
}

bool service_idle(const service *s)
{
    return !s->exchanges;
}

void exchange_settle(exchange *x)
{
    if (!x->request && !x->job && !x->scaling && !x->reading) exchange_close(x);
}

bool exchange_may_begin(exchange *x)
{
    if (x->route->always || x->service->state != SERVICE_REFUSING) return true;
    api_error error = {0};
    (void)refuse_ending(&error);
    exchange_fail(x, &error);
    return false;
}

static void begin(service *s, http_request *request, bool admin)
{
    exchange *x = exchange_open(s, request, admin);
    if (!x) {
        http_reply(request, 500, "application/json", no_memory, sizeof no_memory - 1);
        return;
    }
    api_error error = {0};
    if (!admin && access_cors(s->access, request)) return;
    if (x->route && !strcmp(http_method(request), "OPTIONS")) {
        http_add_header(request, "Allow", allowed_methods(x->route));
        http_reply(request, 204, NULL, NULL, 0);
        return;
    }
    if (check(x, admin, &error)) return;
    exchange_fail(x, &error);
}

static void on_headers(void *user, http_request *request)
{
    begin(user, request, false);
}

static void on_admin_headers(void *user, http_request *request)
{
    begin(user, request, true);
}

static void on_complete(void *user, http_request *request)
{
    (void)user;
    exchange *x = http_context(request);
    if (exchange_may_begin(x)) x->route->run(x);
}

static void on_gone(void *user, http_request *request)
{
    (void)user;
    exchange *x = http_context(request);
    if (!x) return;
    x->gone = true;
    if (x->job) job_gone(x->job);
    if (x->scaling) scaling_gone(x->scaling);
}

static void on_done(void *user, http_request *request)
{
    (void)user;
    exchange *x = http_context(request);
    if (!x) return;
    x->log.status = http_status(request);
    x->log.seconds = (double)(uv_hrtime() - http_arrived(request)) / 1e9;
    x->request = NULL;
    exchange_settle(x);
}

http_handler service_handler(service *s)
{
    return (http_handler){.headers = on_headers, .complete = on_complete, .gone = on_gone, .done = on_done, .user = s};
}

http_handler service_admin_handler(service *s)
{
    return (http_handler){.headers = on_admin_headers, .complete = on_complete, .gone = on_gone, .done = on_done, .user = s};
}
