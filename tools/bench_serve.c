/* bench_serve.c: `descent bench serve`: what HTTP costs. The same texts come from a server, over sockets, and from the
 * scheduler in this process, in turns in one run, so that whatever else the machine does hits both; then a crowd of connections
 * that want nothing, and of readers of a byte a second, stands beside the streams. Figures are medians of repetitions, with the
 * smallest and the largest.
 */
#include "bench.h"
#include "bench_server.h"
#include "cli.h"
#include "input.h"
#include "json_output.h"
#include "terminal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const cli_command bench_command = {
    .name = "bench serve",
    .positional = "MODEL",
    .summary =
        "Measures a server of the GGUF file MODEL: tokens/s, and the times between them, beside the same work in process.",
    .notes = "Texts have random prompts and take turns at the depths of --steps; no prompt comes twice.\n"
             "A figure is the median of the repetitions; in brackets the smallest and the largest.",
    .least = 1,
    .most = 1,
};

enum { MOST_ROWS = 16, MOST_REPEATS = 1000, CROWD_STREAMS = 100, CROWD_PATIENCE = 60, SLOW_TOKENS = 256, POLL_US = 10000 };

typedef struct bench_options {
    const char *model, *url, *name, *steps, *streams;
    int64_t prompt_tokens, tokens, repeats, crowd, slow, threads, chunk, max_running;
    double seconds, stream_interval;
    bool json;
} bench_options;

/* One way of doing a row's work, over its repetitions. */
typedef struct side {
    load_samples rates;    /* tokens/s, one a repetition */
    load_samples p50, p99; /* of the times between tokens, one a repetition */
    load_result all;
} side;

/* `streams` streams one way and another: over HTTP and in process, or over HTTP alone and in a crowd. */
typedef struct row {
    size_t streams, generations;
    side one, other;
    load_samples ratios, p50_ratios, p99_ratios; /* one over other, one a repetition */
} row;

typedef struct bench {
    const bench_options *options;
    load_shape shape;
    asked_depth *depths;
    descent_model *model;
    descent_scheduler *scheduler;
    uv_loop_t loop;
    bench_server *server;
    uint64_t loads; /* so many were run: the next one's number */
    row rows[MOST_ROWS], crowd;
    size_t n_rows;
    size_t crowd_connected, crowd_reading; /* the fewest that stood there */
    char message[BENCH_MESSAGE_SIZE];
} bench;

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

static bool run_http(bench *b, const load *l, load_result *result)
{
    return bench_http_run(&b->loop, bench_server_address(b->server), l, result, b->message);
}

static bool run_engine(bench *b, const load *l, load_result *result)
{
    return bench_engine_run(b->scheduler, l, result, b->message);
}

/* What slow readers ask for, allocated: a text whose chunks are more than what buffers on the way hold. */
static char *slow_request(bench *b)
{
    load l = {.shape = &b->shape, .streams = 1, .generations = 1, .number = b->loads++};
    const asked_depth *depth;
    int64_t seed, room = (int64_t)descent_model_describe(b->model)->context - b->options->prompt_tokens;
    uint32_t *prompt = calloc(b->shape.prompt_tokens, sizeof *prompt);
    json_t *tokens = json_array();
    char *request = NULL;
    if (prompt) load_text(&l, 0, 0, prompt, &depth, &seed);
    for (size_t i = 0; prompt && i < b->shape.prompt_tokens; i++) (void)json_array_append_new(tokens, json_integer(prompt[i]));
    json_t *body =
        json_pack("{s:s, s:o, s:I, s:b, s:b, s:i}", "model", b->shape.name, "prompt", tokens, "max_tokens",
                  (json_int_t)(room < SLOW_TOKENS ? room : SLOW_TOKENS), "ignore_eos", 1, "stream", 1, "logprobs", 20);
    char *text = prompt && body ? json_dumps(body, JSON_COMPACT) : NULL;
    if (text && asprintf(&request,
                         "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                         "Content-Length: %zu\r\n\r\n%s",
                         strlen(text), text) < 0)
        request = NULL;
    json_decref(body);
    free(text);
    free(prompt);
    return request;
}

/* Until everybody stands there, and the slow readers' texts are computed: it is their reading that is measured. */
static void gather(bench *b, crowd *c)
{
    size_t quiet = (size_t)b->options->crowd, slow = (size_t)b->options->slow;
    double patience = seconds_now() + CROWD_PATIENCE;
    bool complete = false;
    while (!complete && seconds_now() < patience && !interrupted()) {
        (void)uv_run(&b->loop, UV_RUN_NOWAIT);
        complete = crowd_connected(c) == quiet && crowd_reading(c) == slow && (!slow || bench_server_idle(b->server));
        if (!complete) (void)usleep(POLL_US);
    }
}

static bool run_in_crowd(bench *b, const load *l, load_result *result)
{
    size_t quiet = (size_t)b->options->crowd;
    char *request = slow_request(b);
    crowd_shape shape = {
        .idle = quiet / 2, .dribbling = quiet - quiet / 2, .slow = (size_t)b->options->slow, .request = request};
    crowd *c = request ? crowd_open(&b->loop, bench_server_address(b->server), &shape) : NULL;
    free(request);
    if (!c) {
        (void)snprintf(b->message, sizeof b->message, "no memory for a crowd of %zu", quiet + shape.slow);
        return false;
    }
    gather(b, c);
    bool good = run_http(b, l, result);
    if (crowd_connected(c) < b->crowd_connected) b->crowd_connected = crowd_connected(c);
    if (crowd_reading(c) < b->crowd_reading) b->crowd_reading = crowd_reading(c);
    crowd_close(c);
    return good;
}

typedef bool (*way)(bench *b, const load *l, load_result *result);

/* Runs a load one way, as a repetition of a side; *rate in tokens/s. */
static bool measure(bench *b, const row *r, side *s, way run, uint64_t number, double *rate)
{
    load l = {.shape = &b->shape, .streams = r->streams, .generations = r->generations, .number = number};
    double seconds = s->all.seconds;
    uint64_t tokens = s->all.tokens;
    size_t times = s->all.between.count;
    if (!run(b, &l, &s->all)) return false;
    *rate = (double)(s->all.tokens - tokens) / (s->all.seconds - seconds);
    load_samples_add(&s->rates, *rate);
    load_samples own = s->all.between; /* those of this repetition: they are behind the others */
    own.values += times;
    own.count -= times;
    load_samples_add(&s->p50, load_samples_at(&own, 0.5));
    load_samples_add(&s->p99, load_samples_at(&own, 0.99));
    return true;
}

/* So many texts a stream as take about --seconds, by what one of each takes when both sides are warm. */
static bool choose_generations(bench *b, row *r)
{
    load_result warm = {0}, trial = {0};
    load l = {.shape = &b->shape, .streams = r->streams, .generations = 1, .number = b->loads++}, again = l;
    again.number = b->loads++;
    bool good = run_engine(b, &l, &warm) && run_http(b, &l, &warm) && run_engine(b, &again, &trial);
    double texts = good ? b->options->seconds / trial.seconds : 1;
    r->generations = texts < 1 ? 1 : texts > 1e6 ? 1000000 : (size_t)texts;
    load_result_release(&warm);
    load_result_release(&trial);
    return good;
}

/* Of the repetition that was the last on both sides. */
static void add_ratio(load_samples *ratios, const load_samples *one, const load_samples *other)
{
    if (one->failed || other->failed || !one->count || one->count != other->count) return;
    double over = one->values[one->count - 1], under = other->values[other->count - 1];
    if (under > 0) load_samples_add(ratios, over / under);
}

/* Both ways, --repeats times, in turns. `same`: the same texts both ways; else, since both go to one server, others of their
 * kind. */
static bool repeat(bench *b, row *r, way one, way other, bool same, progress *bar)
{
    for (int64_t i = 0; i < b->options->repeats && !interrupted(); i++) {
        uint64_t number = b->loads++, next = same ? number : b->loads++;
        bool swapped = i % 2 == 1;
        double first, second;
        if (!measure(b, r, swapped ? &r->other : &r->one, swapped ? other : one, number, &first)) return false;
        if (!measure(b, r, swapped ? &r->one : &r->other, swapped ? one : other, next, &second)) return false;
        load_samples_add(&r->ratios, swapped ? second / first : first / second);
        add_ratio(&r->p50_ratios, &r->one.p50, &r->other.p50);
        add_ratio(&r->p99_ratios, &r->one.p99, &r->other.p99);
        progress_advance(bar, 1);
    }
    if (r->one.all.tokens == r->other.all.tokens && (!same || r->one.all.row_steps == r->other.all.row_steps)) return true;
    (void)snprintf(b->message, sizeof b->message,
                   "the two sides did not do the same: %" PRIu64 " and %" PRIu64 " tokens, %" PRIu64 " and %" PRIu64
                   " token-steps",
                   r->one.all.tokens, r->other.all.tokens, r->one.all.row_steps, r->other.all.row_steps);
    return false;
}

static bool has_crowd(const bench *b)
{
    return b->options->crowd + b->options->slow > 0;
}

static bool run_all(bench *b)
{
    size_t parts = b->n_rows + has_crowd(b);
    progress bar = progress_begin("measuring", "repetitions", (uint64_t)parts * (uint64_t)b->options->repeats);
    bool good = true;
    for (size_t i = 0; i < b->n_rows && good && !interrupted(); i++)
        good = choose_generations(b, &b->rows[i]) && repeat(b, &b->rows[i], run_http, run_engine, true, &bar);
    if (has_crowd(b) && good && !interrupted())
        good = choose_generations(b, &b->crowd) && repeat(b, &b->crowd, run_in_crowd, run_http, false, &bar);
    progress_end(&bar);
    return good;
}

/* ---- Telling ----------------------------------------------------------------------------------------------------- */

static void print_spread(load_samples *samples, int decimals, int width)
{
    char text[96];
    (void)snprintf(text, sizeof text, "%.*f (%.*f..%.*f)", decimals, load_samples_at(samples, 0.5), decimals,
                   load_samples_at(samples, 0), decimals, load_samples_at(samples, 1));
    printf(" %*s", width - 1, text);
}

static void print_times(load_samples *samples)
{
    printf("%9.2f %9.2f", 1e3 * load_samples_at(samples, 0.5), 1e3 * load_samples_at(samples, 0.99));
}

static void print_row(row *r)
{
    printf("%7zu", r->streams);
    print_spread(&r->one.rates, 0, 24);
    print_spread(&r->other.rates, 0, 24);
    print_spread(&r->ratios, 3, 24);
    print_times(&r->one.all.first);
    print_times(&r->one.all.between);
    putchar('\n');
}

static void print_heading(const char *one, const char *other)
{
    const char *bold = terminal_style_on(stdout, STYLE_BOLD), *plain = terminal_style_on(stdout, STYLE_PLAIN);
    printf("\n%s%7s%24s%24s%24s%19s%19s%s\n", bold, "", one, other, "ratio", "first token, ms", "between tokens, ms", plain);
    printf("%7s%24s%24s%24s%9s %9s%9s %9s\n", "streams", "tokens/s", "tokens/s", "", "p50", "p99", "p50", "p99");
}

static int print_text(bench *b)
{
    const bench_options *o = b->options;
    printf("%s at T", o->model);
    for (size_t i = 0; i < b->shape.n_depths; i++) printf("%s %s", i ? "," : "", b->shape.depths[i].text);
    printf(" in turn; prompts of %zu tokens, texts of %zu; %" PRId64 " repetitions of about %g s\n", b->shape.prompt_tokens,
           b->shape.tokens, o->repeats, o->seconds);
    if (b->n_rows) print_heading("HTTP", "in process");
    for (size_t i = 0; i < b->n_rows; i++) print_row(&b->rows[i]);
    if (has_crowd(b)) {
        char beside[48];
        (void)snprintf(beside, sizeof beside, "beside %zu others", b->crowd_connected + b->crowd_reading);
        print_heading(beside, "alone");
        print_row(&b->crowd);
        printf("%zu of the others read a stream of their own at a byte a second. Between tokens, beside them over alone: p50",
               b->crowd_reading);
        print_spread(&b->crowd.p50_ratios, 3, 0);
        printf(", p99");
        print_spread(&b->crowd.p99_ratios, 3, 0);
        putchar('\n');
    }
    return EXIT_SUCCESS;
}

static json_t *spread_json(load_samples *samples)
{
    return json_pack("{s:o, s:o, s:o}", "median", json_number(load_samples_at(samples, 0.5)), "least",
                     json_number(load_samples_at(samples, 0)), "most", json_number(load_samples_at(samples, 1)));
}

static json_t *times_json(load_samples *samples)
{
    return json_pack("{s:o, s:o}", "p50", json_number(load_samples_at(samples, 0.5)), "p99",
                     json_number(load_samples_at(samples, 0.99)));
}

static json_t *side_json(side *s)
{
    return json_pack("{s:o, s:o, s:o, s:I, s:I}", "tokens_per_second", spread_json(&s->rates), "first_token_seconds",
                     times_json(&s->all.first), "inter_token_seconds", times_json(&s->all.between), "tokens",
                     (json_int_t)s->all.tokens, "token_steps", (json_int_t)s->all.row_steps);
}

static json_t *row_json(row *r, const char *one, const char *other)
{
    return json_pack("{s:I, s:I, s:o, s:o, s:o}", "streams", (json_int_t)r->streams, "texts_per_stream",
                     (json_int_t)r->generations, one, side_json(&r->one), other, side_json(&r->other), "ratio",
                     spread_json(&r->ratios));
}

static int print_json(bench *b)
{
    const bench_options *o = b->options;
    json_t *steps = json_array(), *rows = json_array();
    for (size_t i = 0; i < b->shape.n_depths; i++) (void)json_array_append_new(steps, json_depth(b->shape.depths[i].text));
    for (size_t i = 0; i < b->n_rows; i++) (void)json_array_append_new(rows, row_json(&b->rows[i], "http", "in_process"));
    json_t *beside = has_crowd(b) ? row_json(&b->crowd, "in_crowd", "alone") : json_null();
    if (has_crowd(b)) {
        (void)json_object_set_new(beside, "others", json_integer((json_int_t)b->crowd_connected));
        (void)json_object_set_new(beside, "slow_readers", json_integer((json_int_t)b->crowd_reading));
        (void)json_object_set_new(
            beside, "inter_token_ratio",
            json_pack("{s:o, s:o}", "p50", spread_json(&b->crowd.p50_ratios), "p99", spread_json(&b->crowd.p99_ratios)));
    }
    return json_output(json_pack("{s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:o, s:o}", "model", o->model, "version",
                                 descent_version(), "isa", descent_isa(), "steps", steps, "prompt_tokens",
                                 (json_int_t)b->shape.prompt_tokens, "tokens", (json_int_t)b->shape.tokens, "repeats",
                                 (json_int_t)o->repeats, "rows", rows, "crowd", beside),
                       6);
}

/* ---- Beginning and end ------------------------------------------------------------------------------------------- */

/* "1,4,16" into rows. */
static int read_streams(bench *b, const char *list)
{
    int64_t streams[MOST_ROWS];
    int code = read_numbers(&bench_command, "--streams", list, 4096, streams, MOST_ROWS, &b->n_rows);
    for (size_t i = 0; code == EXIT_SUCCESS && i < b->n_rows; i++) b->rows[i].streams = (size_t)streams[i];
    return code;
}

/* Half the trained T, it, and twice as much. */
static int default_depths(bench *b)
{
    const descent_model_info *info = descent_model_describe(b->model);
    char list[64] = "", text[16];
    for (unsigned quarters = 2; quarters <= 8; quarters *= 2) {
        descent_depth depth = {{0}};
        for (uint32_t k = 0; k < info->kinds; k++) depth.steps[k] = (uint16_t)((info->trained.steps[k] * quarters + 3) / 4);
        (void)snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", quarters > 2 ? "," : "",
                       descent_depth_format(b->model, depth, text));
    }
    bool deep = info->trained.steps[0] || info->trained.steps[1];
    return read_depths(&bench_command, b->model, deep ? list : NULL, &b->depths, &b->shape.n_depths);
}

enum { USUAL_TOKENS = 128 };

/* What the context leaves of the usual; 1 where it leaves nothing, which is then refused. */
static int64_t default_tokens(const bench_options *o, int64_t context)
{
    int64_t room = context - o->prompt_tokens;
    return room < 1 ? 1 : room < USUAL_TOKENS ? room : USUAL_TOKENS;
}

static int read_shape(bench *b, const bench_options *o)
{
    int code = o->steps ? read_depths(&bench_command, b->model, o->steps, &b->depths, &b->shape.n_depths) : default_depths(b);
    uint32_t context = descent_model_describe(b->model)->context;
    int64_t tokens = o->tokens ? o->tokens : default_tokens(o, context);
    if (code == EXIT_SUCCESS && o->prompt_tokens + tokens > (int64_t)context)
        code = cli_usage_error(&bench_command,
                               "--prompt-tokens and --tokens must be at most the %" PRIu32 " of the context together", context);
    b->shape.model = b->model;
    b->shape.depths = b->depths;
    b->shape.prompt_tokens = (size_t)o->prompt_tokens;
    b->shape.tokens = (size_t)tokens;
    b->shape.name = o->name;
    return code;
}

static bool start_server(bench *b, const bench_options *o)
{
    char model[4096], chunk[24], running[24], threads[24], interval[32];
    (void)snprintf(model, sizeof model, "%s=%s", o->name, o->model);
    (void)snprintf(chunk, sizeof chunk, "%" PRId64, o->chunk);
    (void)snprintf(running, sizeof running, "%" PRId64, o->max_running);
    (void)snprintf(threads, sizeof threads, "%" PRId64, o->threads);
    (void)snprintf(interval, sizeof interval, "%.9f", o->stream_interval);
    const char *arguments[] = {
        model,   "--chunk", chunk, "--max-running", running, "--stream-interval", interval, o->threads ? "--threads" : NULL,
        threads, NULL};
    b->server = o->url ? bench_server_at(o->url, b->message, sizeof b->message)
                       : bench_server_start(arguments, b->message, sizeof b->message);
    return b->server != NULL;
}

static bool start_scheduler(bench *b, const bench_options *o)
{
    descent_scheduler_options options = {
        .threads = (uint32_t)o->threads, .chunk = (uint32_t)o->chunk, .max_running = (uint32_t)o->max_running};
    descent_status status;
    if (descent_scheduler_create(b->model, &options, &b->scheduler, &status) == DESCENT_OK) return true;
    (void)snprintf(b->message, sizeof b->message, "%s", status.message);
    return false;
}

/* A connection of the crowd takes a descriptor. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static void release(bench *b)
{
    bench_server_stop(b->server);
    descent_scheduler_destroy(b->scheduler);
    (void)uv_loop_close(&b->loop);
    descent_model_close(b->model);
    free(b->depths);
    for (size_t i = 0; i <= b->n_rows; i++) {
        row *r = i < b->n_rows ? &b->rows[i] : &b->crowd;
        side *sides[] = {&r->one, &r->other};
        for (size_t k = 0; k < 2; k++) {
            load_samples_release(&sides[k]->rates);
            load_samples_release(&sides[k]->p50);
            load_samples_release(&sides[k]->p99);
            load_result_release(&sides[k]->all);
        }
        load_samples_release(&r->ratios);
        load_samples_release(&r->p50_ratios);
        load_samples_release(&r->p99_ratios);
    }
}

static int bench_serve(const bench_options *o)
{
    descent_status status;
    bench b = {.options = o,
               .crowd = {.streams = CROWD_STREAMS},
               .crowd_connected = (size_t)o->crowd,
               .crowd_reading = (size_t)o->slow};
    int code = read_streams(&b, o->streams);
    if (code != EXIT_SUCCESS) return code;
    if (descent_model_read(o->model, &b.model, &status) != DESCENT_OK) {
        cli_error("%s", status.message);
        return EXIT_FAILURE;
    }
    (void)uv_loop_init(&b.loop);
    raise_descriptors();
    code = read_shape(&b, o);
    if (code == EXIT_SUCCESS && !(start_server(&b, o) && start_scheduler(&b, o) && run_all(&b))) {
        cli_error("%s", b.message);
        code = EXIT_FAILURE;
    } else if (code == EXIT_SUCCESS) {
        code = interrupted() ? EXIT_INTERRUPTED : o->json ? print_json(&b) : print_text(&b);
    }
    release(&b);
    return code;
}

int bench_serve_command(int argc, char **argv)
{
    bench_options o = {.name = "bench",
                       .streams = "1,4,16,64",
                       .prompt_tokens = 16,
                       .repeats = 5,
                       .crowd = 900,
                       .slow = 16,
                       .chunk = 128,
                       .max_running = 128,
                       .seconds = 2,
                       .stream_interval = 0.02};
    cli_option table[] = {
        cli_defaulted(cli_text(0, "streams", "N,N,...", &o.streams, "clients at once")),
        cli_text('T', "steps", "T,T,...", &o.steps,
                 "depths the texts take turns at; half the trained T, it and twice as much by default"),
        cli_defaulted(cli_integer(0, "prompt-tokens", &o.prompt_tokens, 1, 1 << 20, "tokens of a prompt")),
        cli_integer('n', "tokens", &o.tokens, 1, 1 << 20,
                    "tokens of a text; 128 by default, fewer where the context has no room for them"),
        cli_defaulted(
            cli_real_above(0, "seconds", &o.seconds, 0, 3600, "about how long one repetition of one side takes, at least")),
        cli_defaulted(cli_integer(0, "repeats", &o.repeats, 1, MOST_REPEATS, "repetitions")),
        cli_defaulted(
            cli_integer(0, "crowd", &o.crowd, 0, 100000,
                        "connections, half idle, half sending a byte every 0.45 s, that 100 streams stand among; 0: leave "
                        "that out")),
        cli_defaulted(cli_integer(0, "slow-readers", &o.slow, 0, 100000,
                                  "and readers of a stream of their own, a byte a second, among the others")),
        cli_defaulted(
            cli_real(0, "stream-interval", &o.stream_interval, 0, 1e9, "the server's: seconds between two sends of a stream")),
        cli_integer('t', "threads", &o.threads, 1, 1024, "threads of either side; all the machine lets us use by default"),
        cli_defaulted(cli_integer(0, "chunk", &o.chunk, 1, 65536, "tokens of prompts in flight at once")),
        cli_defaulted(cli_integer(0, "max-running", &o.max_running, 1, 4096, "texts computed at once")),
        cli_text(0, "url", "URL", &o.url,
                 "measure the server at http://ADDRESS:PORT, started with the same options; by default one is"
                 " started"),
        cli_defaulted(cli_text(0, "name", "NAME", &o.name, "what that server calls the model")),
        cli_flag(0, "json", &o.json, "write one JSON object instead of a table"),
    };
    cli_arguments arguments;
    cli_outcome outcome = cli_parse(&bench_command, table, sizeof table / sizeof *table, argc, argv, &arguments);
    if (outcome != CLI_RUN) return outcome == CLI_HELP ? EXIT_SUCCESS : EXIT_USAGE;
    o.model = arguments.positional[0];
    interruption_watch();
    cli_keep_memory(); /* as the server does */
    return bench_serve(&o);
}
