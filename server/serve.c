/* serve.c: see serve.h. Owns the loop and everything on it: the two listeners, the timers of a drain, the signals, and the
 * thread that loads the models while /health answers already. The end is one function, `advance`, which looks at what is still
 * in the way and goes on when there is nothing; whatever may have cleared the way calls for it by `turn`.
 *
 *     loading -> ready -> draining (--drain-delay) -> refusing -> nothing in flight, or --drain -> listeners close -> the end
 */
#include "serve.h"

#include "job_queue.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

enum { N_SIGNALS = 3, ADMIN_CONNECTIONS = 64, ADMIN_BODY = 4096, OTHER_DESCRIPTORS = 64 };

/* How long, behind the end of all jobs, readers have for what was written to them. */
#define LAST_WORDS_SECONDS 2.0

typedef struct server {
    const serve_options *options;
    char *message;
    int exit_code;
    uv_loop_t loop;
    service service;
    http_server *main, *admin;
    http_options main_options, admin_options;
    http_budget bodies;
    http_handler main_handler, admin_handler;
    size_t listeners; /* not closed yet */
    uv_signal_t signals[N_SIGNALS];
    uv_timer_t turn, delay, deadline, last_words;
    uv_work_t load;
    model_options model;
    model_set loaded;           /* the loading thread's, until it is done */
    descent_status load_status; /* its failure */
    bool loading, closing, over;
} server;

serve_options serve_options_defaults(void)
{
    return (serve_options){.http = http_options_defaults(),
                           .service = {.limits = request_limits_defaults(),
                                       .max_body = http_options_defaults().max_body,
                                       .max_running = 64,
                                       .max_queue = 1024,
                                       .request_seconds = 600,
                                       .stream_seconds = 0.02,
                                       .stall_seconds = 30},
                           .model = {.scheduler = {.max_running = 64, .chunk = 128}},
                           .max_body_total = 256 << 20,
                           .drain_delay_seconds = 5,
                           .drain_seconds = 30};
}

static uint64_t milliseconds(double seconds)
{
    return seconds < 1e12 ? (uint64_t)(seconds * 1000) : UINT64_MAX / 2;
}

/* ---- The end ----------------------------------------------------------------------------------------------------- */

static void close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

static void close_timers(server *s)
{
    close_handle((uv_handle_t *)&s->turn);
    close_handle((uv_handle_t *)&s->delay);
    close_handle((uv_handle_t *)&s->deadline);
    close_handle((uv_handle_t *)&s->last_words);
    for (size_t i = 0; i < N_SIGNALS; i++) close_handle((uv_handle_t *)&s->signals[i]);
}

static void advance(uv_timer_t *timer);

static void turn(server *s)
{
    if (!s->over) (void)uv_timer_start(&s->turn, advance, 0, 0);
}

static void on_listener_closed(void *user)
{
    server *s = user;
    s->listeners--;
    turn(s);
}

static void close_listeners(server *s)
{
    s->closing = true;
    s->service.state = SERVICE_REFUSING;
    http_server *opened[] = {s->main, s->admin};
    s->main = s->admin = NULL;
    for (size_t i = 0; i < 2; i++)
        if (opened[i]) http_close(opened[i], on_listener_closed, s);
    turn(s);
}

static void advance(uv_timer_t *timer)
{
    server *s = timer->data;
    bool idle = service_idle(&s->service) && !s->loading;
    if (!s->closing && idle && s->service.state == SERVICE_REFUSING) close_listeners(s);
    if (!s->closing || !idle || s->listeners || s->over) return;
    s->over = true;
    close_timers(s);                  /* a signal ends the process from here on */
    models_close(&s->service.models); /* whose schedulers wake the queue of jobs */
    jobs_close(&s->service);
}

static void on_drained(service *drained)
{
    turn(drained->loop->data);
}

static void on_last_words(uv_timer_t *timer)
{
    server *s = timer->data;
    if (!s->closing) close_listeners(s);
}

static void on_deadline(uv_timer_t *timer)
{
    server *s = timer->data;
    s->service.state = SERVICE_REFUSING;
    if (!service_idle(&s->service)) log_line(LOG_WARNING, "the time to drain is over: what is still running is ended");
    jobs_end_all(&s->service);
    scalings_end_all(&s->service);
    (void)uv_timer_start(&s->last_words, on_last_words, milliseconds(LAST_WORDS_SECONDS), 0);
    turn(s);
}

static void on_delay(uv_timer_t *timer)
{
    server *s = timer->data;
    s->service.state = SERVICE_REFUSING;
    turn(s);
}

static void reload(server *s)
{
    char why[HTTP_MESSAGE_SIZE];
    if (access_reload(s->service.access, why) != 0)
        log_line(LOG_ERROR, "the keys stay as they were: %s", why);
    else if (s->options->access.key_files && *s->options->access.key_files)
        log_line(LOG_INFO, "keys read again");
    if (!s->options->http.tls_cert || !s->main) return;
    if (http_reload_tls(s->main, why) != 0)
        log_line(LOG_ERROR, "the certificate stays as it was: %s", why);
    else
        log_line(LOG_INFO, "certificate read again");
}

static void on_signal(uv_signal_t *handle, int signum)
{
    server *s = handle->data;
    if (signum == SIGHUP) {
        reload(s);
        return;
    }
    if (s->closing || s->service.state == SERVICE_DRAINING || s->service.state == SERVICE_REFUSING) _exit(128 + signum);
    bool served = s->service.state == SERVICE_READY;
    s->service.state = served ? SERVICE_DRAINING : SERVICE_REFUSING;
    log_line(LOG_INFO, "%s: new requests are served for %g s more, those running may take %g s; again: at once",
             signum == SIGTERM ? "SIGTERM" : "SIGINT", served ? s->options->drain_delay_seconds : 0.0,
             s->options->drain_seconds);
    if (served) (void)uv_timer_start(&s->delay, on_delay, milliseconds(s->options->drain_delay_seconds), 0);
    (void)uv_timer_start(&s->deadline, on_deadline, milliseconds(s->options->drain_seconds), 0);
    turn(s);
}

/* ---- Saying where it is ------------------------------------------------------------------------------------------ */

/* "http://127.0.0.1:8080": of an address that means all of them, the one by which this machine reaches itself. */
static void write_url(const server *s, bool reachable, char *url, size_t size)
{
    const char *host = s->options->http.host;
    if (reachable && !strcmp(host, "0.0.0.0")) host = "127.0.0.1";
    if (reachable && !strcmp(host, "::")) host = "::1";
    bool bracket = strchr(host, ':') != NULL;
    (void)snprintf(url, size, "%s://%s%s%s:%u", s->options->http.tls_cert ? "https" : "http", bracket ? "[" : "", host,
                   bracket ? "]" : "", (unsigned)http_port(s->main));
}

/* A prompt that the model can spell. */
static json_t *example_prompt(const served_model *m)
{
    static const char *const texts[] = {"ROMEO:", "In the beginning", "max_10,(,3,2,2,),=", "0", "a"};
    for (size_t i = 0; m->tokenizer && i < sizeof texts / sizeof *texts; i++) {
        uint32_t *tokens;
        size_t count;
        if (descent_tokenizer_encode(m->tokenizer, texts[i], strlen(texts[i]), 0, &tokens, &count, NULL) != DESCENT_OK)
            continue;
        descent_free(tokens);
        if (count) return json_string(texts[i]);
    }
    return json_pack("[i]", 0);
}

/* The body of a request at the model's own T, where it is one number; new memory. */
static char *example_body(const served_model *m)
{
    char depth[16];
    (void)descent_depth_format(m->model, m->info->trained, depth);
    json_t *body = json_pack("{s:s, s:o, s:i}", "model", m->id, "prompt", example_prompt(m), "max_tokens", 60);
    char *end;
    long steps = strtol(depth, &end, 10);
    if (end != depth && !*end) (void)json_object_set_new(body, "descent", json_pack("{s:I}", "steps", (json_int_t)steps));
    char *text = body ? json_dumps(body, 0) : NULL;
    json_decref(body);
    return text;
}

/* A request to copy into a shell. */
static void print_example(const server *s)
{
    char url[160], line[1024], *body = example_body(&s->service.models.items[0]);
    const char *const *keys = s->options->access.key_files;
    write_url(s, true, url, sizeof url);
    int used = snprintf(line, sizeof line, "curl %s%s/v1/completions%s -H 'Content-Type: application/json' -d '",
                        s->options->http.tls_cert ? "-k " : "", url, keys && *keys ? " -H \"Authorization: Bearer $KEY\"" : "");
    for (const char *c = body; c && *c && used < (int)sizeof line - 8; c++)
        used += *c == '\'' ? snprintf(line + used, sizeof line - (size_t)used, "'\\''") : (line[used] = *c, 1);
    free(body);
    (void)snprintf(line + used, sizeof line - (size_t)used, "'");
    if (s->options->log_format == LOG_TEXT)
        (void)fprintf(stderr, "\nAsk it, from another terminal:\n\n    %s\n\n", line);
    else
        log_line(LOG_INFO, "ready; try: %s", line);
}

/* ---- Models ------------------------------------------------------------------------------------------------------ */

/* On the loading thread. */
static void say_loaded(void *user, const served_model *m)
{
    (void)user;
    char depth[16];
    log_line(LOG_INFO, "serving %s: %s %s, T %s, context %u, %llu parameters in %s", m->id, m->info->family, m->info->variant,
             descent_depth_format(m->model, m->info->trained, depth), (unsigned)m->info->context,
             (unsigned long long)m->info->parameters, m->info->weight_type);
}

static void load_models(uv_work_t *work)
{
    server *s = work->data;
    if (models_open(s->options->models, s->options->n_models, &s->model, &s->loaded, say_loaded, NULL, &s->load_status)) return;
    if (s->load_status.code == DESCENT_OK) s->load_status.code = DESCENT_NO_MEMORY;
}

static void on_loaded(uv_work_t *work, int cancelled)
{
    (void)cancelled;
    server *s = work->data;
    s->loading = false;
    if (s->load_status.code != DESCENT_OK) {
        (void)snprintf(s->message, SERVE_MESSAGE_SIZE, "%s", s->load_status.message);
        s->exit_code = EXIT_FAILURE;
        close_listeners(s);
        return;
    }
    s->service.models = s->loaded;
    metrics_set_models(s->service.metrics, &s->service.models);
    if (s->service.state == SERVICE_LOADING) {
        s->service.state = SERVICE_READY;
        print_example(s);
    }
    turn(s);
}

/* The memory for histories is the process's: every model gets the same part of it. */
static uint64_t cache_share(const serve_options *options)
{
    uint64_t all = options->model.scheduler.cache.byte_limit;
    if (!all) all = descent_cache_bytes_by_default();
    return all / options->n_models ? all / options->n_models : 1;
}

/* ---- Start ------------------------------------------------------------------------------------------------------- */

/* As many descriptors as the system lets us have; where they are fewer than the connections wished for, so many connections:
 * accepting one more would fail, and what has no descriptor left cannot even say so. */
static uint32_t fit_descriptors(uint32_t connections)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return connections;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return connections;
    uint64_t others = OTHER_DESCRIPTORS + ADMIN_CONNECTIONS;
    uint64_t room = limit.rlim_cur > 2 * others ? limit.rlim_cur - others : limit.rlim_cur / 2;
    if (room >= connections) return connections;
    log_line(LOG_WARNING, "%llu connections at once instead of %u: the process may have %llu descriptors",
             (unsigned long long)room, connections, (unsigned long long)limit.rlim_cur);
    return room ? (uint32_t)room : 1;
}

static bool is_loopback_address(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
    return !strcasecmp(host, "localhost");
}

static bool open_listeners(server *s)
{
    const serve_options *o = s->options;
    s->main_options = o->http;
    s->main_options.bodies = &s->bodies;
    s->main_options.max_connections = fit_descriptors(o->http.max_connections);
    s->main_handler = service_handler(&s->service);
    if (http_listen(&s->loop, &s->main_options, &s->main_handler, &s->main, s->message) != 0) return false;
    s->listeners++;
    if (!o->admin_host) return true;
    s->admin_options = s->main_options;
    s->admin_options.host = o->admin_host;
    s->admin_options.port = o->admin_port;
    s->admin_options.tls_cert = s->admin_options.tls_key = NULL;
    s->admin_options.max_connections = s->admin_options.reserve = ADMIN_CONNECTIONS;
    s->admin_options.max_per_address = 0;
    s->admin_options.max_body = ADMIN_BODY;
    s->admin_handler = service_admin_handler(&s->service);
    if (http_listen(&s->loop, &s->admin_options, &s->admin_handler, &s->admin, s->message) != 0) return false;
    s->listeners++;
    return true;
}

static void watch_signals(server *s)
{
    static const int signals[N_SIGNALS] = {SIGTERM, SIGINT, SIGHUP};
    (void)signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < N_SIGNALS; i++) {
        (void)uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
        (void)uv_signal_start(&s->signals[i], on_signal, signals[i]);
    }
    uv_timer_t *timers[] = {&s->turn, &s->delay, &s->deadline, &s->last_words};
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        (void)uv_timer_init(&s->loop, timers[i]);
        timers[i]->data = s;
    }
}

static bool start(server *s)
{
    const serve_options *o = s->options;
    access_options who = o->access;
    who.loopback = is_loopback_address(o->http.host);
    s->service.access = access_create(&who, s->message);
    if (!s->service.access) return false;
    s->service.metrics = metrics_create(service_endpoints);
    if (!s->service.metrics) {
        (void)snprintf(s->message, SERVE_MESSAGE_SIZE, "no memory for the server's figures");
        return false;
    }
    if (!open_listeners(s)) return false;
    char url[160];
    write_url(s, false, url, sizeof url);
    log_line(LOG_INFO, "listening on %s", url);
    if (!who.loopback && !(who.key_files && *who.key_files))
        log_line(LOG_WARNING, "whoever reaches %s may use it: there are no keys (--api-key-file)", o->http.host);
    if (s->admin) log_line(LOG_INFO, "/health, /ready and /metrics also on port %u of %s", http_port(s->admin), o->admin_host);
    s->model.scheduler.notify = job_queue_wake;
    s->model.scheduler.notify_user = s->service.ready;
    s->load.data = s;
    s->loading = uv_queue_work(&s->loop, &s->load, load_models, on_loaded) == 0;
    if (!s->loading) (void)snprintf(s->message, SERVE_MESSAGE_SIZE, "no thread to load the models on");
    return s->loading;
}

/* The loop waits for a core until a thread lets go of one, as those that compute do whenever they wait for each other, or until
 * the system's next tick. Else it would stop one of them in the middle of its part, for which all others wait, whenever there
 * is something to say. On a core that is idle it runs at once, as ever. Threads started before this keep what they have. */
static void give_way(uint32_t threads)
{
    if ((threads ? threads : descent_threads_by_default()) == 1) return; /* it waits for nobody */
#ifdef SCHED_BATCH
    if (sched_getscheduler(0) != SCHED_OTHER) return; /* whoever started us has chosen */
    (void)sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){.sched_priority = 0});
#endif
}

int serve(const serve_options *options, char message[SERVE_MESSAGE_SIZE])
{
    server s = {
        .options = options,
        .message = message,
        .model = options->model,
        .bodies = {.most = options->max_body_total},
        .service = {
            .loop = &s.loop, .options = &options->service, .bodies = &s.bodies, .started = time(NULL), .drained = on_drained}};
    message[0] = '\0';
    log_set_format(options->log_format);
    s.model.scheduler.cache.byte_limit = cache_share(options);
    if (uv_loop_init(&s.loop) != 0) {
        (void)snprintf(message, SERVE_MESSAGE_SIZE, "no descriptors for an event loop: %s", strerror(errno));
        return EXIT_FAILURE;
    }
    s.loop.data = &s;
    watch_signals(&s);
    if (jobs_open(&s.service) != 0) {
        (void)snprintf(message, SERVE_MESSAGE_SIZE, "no memory for the queue of generations");
        s.exit_code = EXIT_FAILURE;
        close_timers(&s);
    } else if (!start(&s)) {
        s.exit_code = EXIT_FAILURE;
        close_listeners(&s);
    }
    give_way(options->model.scheduler.threads);
    (void)uv_run(&s.loop, UV_RUN_DEFAULT);
    access_destroy(s.service.access);
    metrics_destroy(s.service.metrics);
    json_text_release(&s.service.spare);
    if (s.exit_code == EXIT_SUCCESS) log_line(LOG_INFO, "ended");
    (void)uv_loop_close(&s.loop);
    return s.exit_code;
}
