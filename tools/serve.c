/* serve.c: `descent serve`: the options of a server, each with its limits and its default, and what of them cannot be told from
 * one alone. The server itself is server/serve.c. */
#include "cli.h"
#include "commands.h"
#include "input.h"
#include "session.h"
#include "terminal.h"

#include "serve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cli_command serve_command = {
    .name = "serve",
    .positional = "MODEL...",
    .summary = "Serves the models in the GGUF files MODEL, or NAME=FILE, over HTTP to clients of the OpenAI API.",
    .notes =
        "Signals: SIGTERM and Ctrl-C end the server when what it has taken on is answered, a second one at once; SIGHUP reads "
        "keys and certificate again.\n"
        "Without --api-key-file everybody who reaches the address may use it.\n"
        "Exit codes: 0 after a signal, 1 on failure, 2 for a mistake in the options.",
    .least = 1,
    .most = CLI_MAX_POSITIONALS,
};

static const char *const log_formats[] = {"json", "text", NULL};

/* The options as read: numbers as wide as the command line has them. */
typedef struct serve_values {
    const char *host, *admin, *tls_cert, *tls_key, *chat_template, *draft_steps;
    cli_list key_files, allowed_hosts, cors, proxies;
    int64_t port, json_depth, prompt_tokens, max_steps, max_sequences, max_queue, max_running, chunk, threads, stop_strings,
        stop_bytes, bias_entries, sweep_steps, connections, per_address;
    uint64_t max_body, max_body_total, cache_bytes;
    double request, header, body, idle, keepalive, vanished, stream, stall, drain_delay, drain;
    bool share_cache;
    int page_type, log_format;
} serve_values;

static serve_values defaults(void)
{
    serve_options d = serve_options_defaults();
    return (serve_values){.host = "127.0.0.1",
                          .draft_steps = "auto",
                          .port = 8080,
                          .json_depth = d.service.limits.json_depth,
                          .prompt_tokens = (int64_t)d.service.limits.prompt_tokens,
                          .max_steps = d.service.limits.steps,
                          .max_sequences = d.service.limits.sequences,
                          .max_queue = d.service.max_queue,
                          .max_running = d.service.max_running,
                          .chunk = d.model.scheduler.chunk,
                          .stop_strings = d.service.limits.stop_strings,
                          .stop_bytes = d.service.limits.stop_bytes,
                          .bias_entries = d.service.limits.logit_bias,
                          .sweep_steps = (int64_t)d.service.limits.sweep_token_steps,
                          .connections = d.http.max_connections,
                          .per_address = d.http.max_per_address,
                          .max_body = d.service.max_body,
                          .max_body_total = d.max_body_total,
                          .request = d.service.request_seconds,
                          .header = d.http.header_seconds,
                          .body = d.http.body_seconds,
                          .idle = d.http.idle_seconds,
                          .keepalive = d.http.keepalive_seconds,
                          .vanished = d.http.vanished_seconds,
                          .stream = d.service.stream_seconds,
                          .stall = d.service.stall_seconds,
                          .drain_delay = d.drain_delay_seconds,
                          .drain = d.drain_seconds,
                          .log_format = terminal_is(stderr) ? LOG_TEXT : LOG_JSON};
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

enum { MOST_OPTIONS = 48 };

static cli_option count(const char *name, int64_t *to, int64_t low, int64_t high, const char *help)
{
    return cli_defaulted(cli_integer(0, name, to, low, high, help));
}

static cli_option seconds(const char *name, double *to, const char *help)
{
    cli_option option = cli_defaulted(cli_real(0, name, to, 0, 1e9, help));
    option.value_name = "SECONDS";
    return option;
}

static cli_option seconds_above(const char *name, double *to, const char *help)
{
    cli_option option = seconds(name, to, help);
    option.open_low = true;
    return option;
}

static cli_option *network_options(serve_values *v, cli_option *table)
{
    *table++ = cli_defaulted(cli_text(0, "host", "ADDRESS", &v->host, "address to listen on; 0.0.0.0 or :: for all"));
    *table++ = count("port", &v->port, 0, 65535, "port to listen on; 0: any free one, which the log names");
    *table++ = cli_text(0, "admin-listen", "HOST:PORT", &v->admin,
                        "answer /health, /ready and /metrics here too, without keys, even when the main port is full");
    *table++ = cli_text(0, "tls-cert", "FILE", &v->tls_cert, "serve https with this certificate chain (PEM)");
    *table++ = cli_text(0, "tls-key", "FILE", &v->tls_key, "and this private key (PEM)");
    *table++ = cli_repeated(0, "api-key-file", "FILE", &v->key_files,
                            "demand a key of this file, one a line; may be repeated; off by default");
    *table++ =
        cli_flag(0, "share-cache", &v->share_cache,
                 "what was computed for one key's prompts serves other keys too, who can tell so from the time it takes");
    *table++ = cli_repeated(0, "allowed-host", "NAME", &v->allowed_hosts,
                            "on a loopback address without keys: answer requests whose Host is NAME; may be repeated");
    *table++ = cli_repeated(0, "cors", "ORIGIN", &v->cors,
                            "let pages of this origin use the server, * for all; may be repeated; off by default");
    *table++ = cli_repeated(0, "trusted-proxy", "NETWORK", &v->proxies,
                            "believe X-Forwarded-For from this network, 10.0.0.0/8, and leave it out of --max-per-address; may "
                            "be repeated");
    *table++ = count("max-connections", &v->connections, 1, 1 << 20, "connections at once");
    *table++ = count("max-per-address", &v->per_address, 0, 1 << 20, "connections of one address at once; 0: no limit");
    *table++ = seconds_above("header-time", &v->header, "time for a request's headers to come");
    *table++ = seconds_above("body-time", &v->body, "time for its body to come");
    *table++ = seconds_above("idle-time", &v->idle, "time a connection may be kept without a request");
    *table++ = seconds("stream-interval", &v->stream,
                       "time between two sends of a stream, up to five times that among more than 5: tokens that come faster "
                       "go out together; 0: each by itself");
    *table++ = seconds_above("sse-keepalive", &v->keepalive, "time between comments of a stream that has nothing to say");
    *table++ = seconds_above("vanished-time", &v->vanished,
                             "time without an acknowledgement, or with no room for more, after which a client is gone");
    return table;
}

static cli_option *request_options(serve_values *v, cli_option *table)
{
    *table++ = cli_defaulted(cli_bytes(0, "max-body", &v->max_body, "bytes of a request's body"));
    *table++ = cli_defaulted(cli_bytes(0, "max-body-total", &v->max_body_total,
                                       "bytes of all bodies that are coming in or being read; more are a 503"));
    *table++ = count("json-depth", &v->json_depth, 1, 1024, "nesting of its JSON");
    *table++ = count("prompt-tokens", &v->prompt_tokens, 0, INT64_C(1) << 32, "tokens of a prompt; 0: the model's context");
    *table++ = count("max-steps", &v->max_steps, 1, DESCENT_MAX_STEPS, "recursion depth T of each kind of sub-layer");
    *table++ =
        cli_defaulted(cli_text(0, "draft-steps", "N", &v->draft_steps,
                               "steps after which NRGPT's tokens are asked what may follow, to begin it at once, where a "
                               "request does not say: auto, as it is fastest, or 0, never; texts are the same"));
    *table++ = count("max-sequences", &v->max_sequences, 1, 65536, "sequences of a request: prompts x max(n, best_of)");
    *table++ = count("stop-strings", &v->stop_strings, 0, 65536, "stop strings of a request");
    *table++ = count("stop-bytes", &v->stop_bytes, 1, 1 << 20, "bytes of a stop string");
    *table++ = count("logit-bias-entries", &v->bias_entries, 0, 1 << 24, "tokens that a request's logit_bias names");
    *table++ = count("max-sweep-token-steps", &v->sweep_steps, 1, INT64_C(1) << 50,
                     "token-steps of a scaling experiment (/v1/descent/scaling), all its inputs at all its depths");
    *table++ = seconds_above("request-time", &v->request, "time for a request: its texts end there, with finish_reason length");
    *table++ = cli_text(0, "chat-template", "NAME", &v->chat_template,
                        "plain, chatml, llama2 or llama3, for models whose file names none");
    return table;
}

static cli_option *engine_options(serve_values *v, cli_option *table)
{
    *table++ = count("max-queue", &v->max_queue, 1, 1 << 20, "sequences waiting or running, of all models; more are a 429");
    *table++ = count("max-running", &v->max_running, 1, 4096, "sequences of a model that are computed at once");
    *table++ =
        count("chunk", &v->chunk, 1, 65536, "tokens of prompts in flight at once: what a new prompt may delay others by");
    *table++ = cli_integer('t', "threads", &v->threads, 1, 1024, "threads of a model; all the machine lets us use by default");
    *table++ = cli_defaulted(cli_choice(0, "page-type", &v->page_type, page_type_names, "numbers the history is kept in"));
    *table++ = cli_bytes(0, "cache-bytes", &v->cache_bytes,
                         "most memory for the histories of all models; half of what the machine lets us use by default");
    *table++ = seconds_above("stall", &v->stall, "/health is 503 when there is work and no step was made for so long");
    *table++ = seconds("drain-delay", &v->drain_delay, "after SIGTERM new requests are still served for so long");
    *table++ = seconds("drain", &v->drain, "after SIGTERM running requests may take so long");
    *table++ = cli_choice(0, "log-format", &v->log_format, log_formats,
                          "lines of standard error as JSON objects or for people; json by default, text on a terminal");
    return table;
}

/* ---- From values to options ------------------------------------------------------------------------------------- */

/* Splits "HOST:PORT", "[::1]:9090"; false with a message. */
static bool read_admin(const char *text, char host[128], uint16_t *port)
{
    int64_t number;
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    bool bracket = length > 2 && text[0] == '[' && text[length - 1] == ']';
    const char *from = bracket ? text + 1 : text;
    if (bracket) length -= 2;
    if (!length || length >= 128 || !cli_read_integer(colon + 1, 0, 65535, &number)) {
        (void)cli_usage_error(&serve_command, "--admin-listen must be HOST:PORT, such as 127.0.0.1:9090, got \"%s\"", text);
        return false;
    }
    (void)snprintf(host, 128, "%.*s", (int)length, from);
    *port = (uint16_t)number;
    return true;
}

static serve_options collect(const serve_values *v, int drafts, const cli_arguments *arguments)
{
    serve_options o = serve_options_defaults();
    o.models = arguments->positional;
    o.n_models = arguments->count;
    o.model.chat_template = v->chat_template;
    o.model.scheduler =
        (descent_scheduler_options){.cache = {.page_type = (descent_page_type)v->page_type, .byte_limit = v->cache_bytes},
                                    .threads = (uint32_t)v->threads,
                                    .chunk = (uint32_t)v->chunk,
                                    .max_running = (uint32_t)v->max_running};
    o.http.host = v->host;
    o.http.port = (uint16_t)v->port;
    o.http.tls_cert = v->tls_cert;
    o.http.tls_key = v->tls_key;
    o.http.max_body = v->max_body;
    o.http.header_seconds = v->header;
    o.http.body_seconds = v->body;
    o.http.idle_seconds = v->idle;
    o.http.keepalive_seconds = v->keepalive;
    o.http.vanished_seconds = v->vanished;
    o.http.max_connections = (uint32_t)v->connections;
    o.http.max_per_address = (uint32_t)v->per_address;
    o.http.trusted_proxies = v->proxies.items;
    o.access = (access_options){
        .key_files = v->key_files.items, .allowed_hosts = v->allowed_hosts.items, .cors_origins = v->cors.items};
    o.service.limits = (request_limits){.json_depth = (unsigned)v->json_depth,
                                        .prompt_tokens = (uint64_t)v->prompt_tokens,
                                        .steps = (uint32_t)v->max_steps,
                                        .sequences = (uint32_t)v->max_sequences,
                                        .stop_strings = (uint32_t)v->stop_strings,
                                        .stop_bytes = (uint32_t)v->stop_bytes,
                                        .logit_bias = (uint32_t)v->bias_entries,
                                        .sweep_token_steps = (uint64_t)v->sweep_steps,
                                        .draft_steps = drafts};
    o.service.max_body = v->max_body;
    o.max_body_total = v->max_body_total;
    o.service.max_running = (uint32_t)v->max_running;
    o.service.max_queue = (uint32_t)v->max_queue;
    o.service.request_seconds = v->request;
    o.service.stream_seconds = v->stream;
    o.service.stall_seconds = v->stall;
    o.service.share_cache = v->share_cache;
    o.drain_delay_seconds = v->drain_delay;
    o.drain_seconds = v->drain;
    o.log_format = (log_format)v->log_format;
    return o;
}

static int run_server(const serve_values *v, const cli_arguments *arguments)
{
    char admin_host[128], message[SERVE_MESSAGE_SIZE];
    int drafts, exit_code = read_draft_steps(&serve_command, v->draft_steps, &drafts);
    if (exit_code != EXIT_SUCCESS) return exit_code;
    serve_options options = collect(v, drafts, arguments);
    if (!v->tls_cert != !v->tls_key)
        return cli_usage_error(&serve_command, "--tls-cert and --tls-key come together; %s is missing",
                               v->tls_cert ? "--tls-key" : "--tls-cert");
    if (v->max_body_total < v->max_body)
        return cli_usage_error(&serve_command, "--max-body-total must be at least --max-body, one body");
    if (v->chat_template && chat_template_find(v->chat_template) == CHAT_NONE)
        return cli_usage_error(&serve_command, "--chat-template must be plain, chatml, llama2 or llama3, got \"%s\"",
                               v->chat_template);
    if (v->admin) {
        if (!read_admin(v->admin, admin_host, &options.admin_port)) return EXIT_USAGE;
        options.admin_host = admin_host;
    }
    cli_keep_memory();
    int code = serve(&options, message);
    if (*message) cli_error("%s", message);
    return code;
}

int command_serve(int argc, char **argv)
{
    cli_option table[MOST_OPTIONS];
    cli_arguments arguments;
    serve_values values = defaults();
    const cli_option *end = engine_options(&values, request_options(&values, network_options(&values, table)));
    cli_outcome outcome = cli_parse(&serve_command, table, (size_t)(end - table), argc, argv, &arguments);
    int code = outcome == CLI_RUN ? run_server(&values, &arguments) : outcome == CLI_HELP ? EXIT_SUCCESS : EXIT_USAGE;
    free(values.key_files.items);
    free(values.allowed_hosts.items);
    free(values.cors.items);
    free(values.proxies.items);
    return code;
}
