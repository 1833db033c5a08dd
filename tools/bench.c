/* bench.c: `descent bench MODEL`: the command. What is measured and how it is counted is told in docs/bench.md. */
#include "bench.h"

#include "commands.h"
#include "input.h"

#include <stdlib.h>
#include <string.h>

static const cli_command bench_command = {
    .name = "bench",
    .positional = "MODEL",
    .summary =
        "Measures the GGUF file MODEL in process: prompts, tokens at contexts and in batches, depths; beside each figure "
        "what the machine's bandwidth and product peaks, measured in the same run, would allow.",
    .notes = "A figure is the median of the repetitions, with the smallest and the largest.\n"
             "`descent bench serve MODEL` measures a server instead: see `descent bench serve --help`.",
    .least = 1,
    .most = 1,
};

enum { MOST_NUMBERS = 8, MOST_BATCH = 4096, SWEPT = 128, LATENCY_BATCH = 16, LATENCY_STEPS = 4, LATENCY_DEEP = 32 };

typedef struct numbers {
    int64_t items[MOST_NUMBERS];
    size_t count;
} numbers;

typedef struct bench_options {
    const char *path, *only, *steps, *contexts, *batches;
    session_options session;
    int64_t repeats;
    double seconds;
    bool quick, json;
    bool wanted[LINE_KINDS], memory, products;
    numbers context, batch;
} bench_options;

/* ---- Options ------------------------------------------------------------------------------------------------------ */

static int read_only(bench_options *o)
{
    o->memory = !o->only;
    for (size_t k = 0; k < LINE_KINDS; k++) o->wanted[k] = !o->only;
    for (const char *rest = o->only; rest;) {
        char word[24];
        size_t k = 0;
        rest = next_item(rest, ',', word, sizeof word);
        while (k < LINE_KINDS && strcmp(word, line_names[k]) != 0) k++;
        if (k < LINE_KINDS)
            o->wanted[k] = true;
        else if (!strcmp(word, "memory"))
            o->memory = true;
        else if (!strcmp(word, "products"))
            o->products = true;
        else
            return cli_usage_error(&bench_command,
                                   "--only must be some of prefill, decode, mixed, sweep, deepening, latency, drafts, memory, "
                                   "products, got \"%s\"",
                                   o->only);
    }
    return EXIT_SUCCESS;
}

static int read_list(const char *option, const char *list, int64_t most, numbers *to)
{
    return read_numbers(&bench_command, option, list, most, to->items, MOST_NUMBERS, &to->count);
}

static int read_lists(bench_options *o)
{
    int code = read_only(o);
    if (!o->contexts) o->contexts = o->quick ? "64" : "64,512,1024";
    if (!o->batches) o->batches = o->quick ? "1,4" : "1,4,16,64";
    if (code == EXIT_SUCCESS) code = read_list("--contexts", o->contexts, 1 << 20, &o->context);
    if (code == EXIT_SUCCESS) code = read_list("--batches", o->batches, MOST_BATCH, &o->batch);
    for (size_t i = 0; i < o->batch.count && code == EXIT_SUCCESS; i++)
        if (o->batch.items[i] > o->session.chunk)
            code = cli_usage_error(&bench_command, "--chunk must be at least the largest of --batches, %lld",
                                   (long long)o->batch.items[i]);
    return code;
}

/* ---- Which lines -------------------------------------------------------------------------------------------------- */

/* Depth T * of / 2, at least 1 where there is a T. */
static asked_depth scaled(const bench_run *b, uint32_t of)
{
    asked_depth depth = b->depth;
    for (uint32_t k = 0; k < b->with.info->kinds; k++) {
        uint32_t steps = (b->depth.depth.steps[k] * of + 1) / 2;
        depth.depth.steps[k] = (uint16_t)(steps > DESCENT_MAX_STEPS ? DESCENT_MAX_STEPS : steps);
    }
    (void)descent_depth_format(b->with.model, depth.depth, depth.text);
    return depth;
}

/* T = steps wherever the model has a T. */
static asked_depth uniform(const bench_run *b, uint16_t steps)
{
    asked_depth depth = b->depth;
    for (uint32_t k = 0; k < b->with.info->kinds; k++) depth.depth.steps[k] = b->depth.depth.steps[k] ? steps : 0;
    (void)descent_depth_format(b->with.model, depth.depth, depth.text);
    return depth;
}

static void add_line(bench_run *b, const bench_options *o, line_kind kind, size_t context, size_t batch)
{
    bool depths = kind == LINE_MIXED || kind == LINE_LATENCY,
         deepens = kind == LINE_SWEEP || kind == LINE_DEEPENING || kind == LINE_DRAFTS;
    if (!o->wanted[kind] || (depths && !b->has_depth) || (deepens && !b->with.info->deepens)) return;
    bench_line *line = &b->lines[b->n_lines++];
    *line = (bench_line){.kind = kind, .context = context, .batch = batch, .depths = {b->depth}, .n_depths = 1};
    if (kind == LINE_MIXED) {
        line->depths[0] = scaled(b, 1);
        line->depths[1] = b->depth;
        line->depths[2] = scaled(b, 4);
        line->n_depths = 3;
    } else if (kind == LINE_DEEPENING) {
        line->depths[1] = scaled(b, 4);
        line->n_depths = 2;
    } else if (kind == LINE_LATENCY) {
        line->depths[0] = uniform(b, LATENCY_STEPS);
        line->depths[1] = uniform(b, LATENCY_DEEP);
        line->n_depths = 2;
    }
}

/* Contexts longer than the model's become the model's; none comes twice. */
static void fit_contexts(const bench_run *b, numbers *contexts)
{
    size_t kept = 0;
    for (size_t i = 0; i < contexts->count; i++) {
        int64_t context = contexts->items[i], most = b->with.info->context;
        contexts->items[kept] = context < most ? context : most;
        if (!kept || contexts->items[kept] != contexts->items[kept - 1]) kept++;
    }
    contexts->count = kept;
}

static void add_lines(bench_run *b, const bench_options *o)
{
    const numbers *contexts = &o->context, *batches = &o->batch;
    size_t shortest = (size_t)contexts->items[0];
    size_t swept = b->with.info->context < SWEPT ? b->with.info->context : SWEPT;
    for (size_t c = 0; c < contexts->count; c++) add_line(b, o, LINE_PREFILL, (size_t)contexts->items[c], 1);
    for (line_kind kind = LINE_DECODE; kind <= LINE_MIXED; kind++)
        for (size_t c = 0; c < contexts->count; c++)
            for (size_t i = 0; i < batches->count; i++)
                if (kind == LINE_DECODE || batches->items[i] > 1)
                    add_line(b, o, kind, (size_t)contexts->items[c], (size_t)batches->items[i]);
    add_line(b, o, LINE_SWEEP, o->quick ? shortest : swept, 1);
    add_line(b, o, LINE_DEEPENING, o->quick ? shortest : (size_t)contexts->items[contexts->count / 2], 1);
    add_line(b, o, LINE_LATENCY, shortest, o->quick ? 4 : LATENCY_BATCH);
    add_line(b, o, LINE_DRAFTS, shortest < 2 ? 2 : shortest, 1);
}

/* The most that a line has in its working set. */
static size_t largest_set(const bench_run *b, const bench_options *o)
{
    uint64_t most = b->with.info->file_bytes;
    if (o->products && products_largest(b->threads, o->quick) > most) most = products_largest(b->threads, o->quick);
    for (size_t i = 0; i < b->n_lines; i++) {
        const bench_line *line = &b->lines[i];
        descent_sequence_options kept = {.depth = line->depths[line->n_depths - 1].depth};
        uint64_t history = descent_cache_bytes_needed(b->with.model, b->with.page_type, line->context, &kept);
        if (history < UINT64_MAX / 2 / line->batch && b->with.info->file_bytes + line->batch * history > most)
            most = b->with.info->file_bytes + line->batch * history;
    }
    uint64_t enough = (uint64_t)1 << 28; /* far beyond the caches: more of it is read no faster or slower */
    if (4 * machine_cache(3) > enough) enough = 4 * machine_cache(3);
    return (size_t)(most < enough ? most : enough);
}

/* ---- The command -------------------------------------------------------------------------------------------------- */

static int open_model(bench_run *b, const bench_options *o)
{
    b->memory.resident_before = memory_resident();
    int code = session_open(o->path, &o->session, &b->with);
    if (code != EXIT_SUCCESS) return code;
    code = read_depth(&bench_command, b->with.model, o->steps, &b->depth.depth);
    if (code != EXIT_SUCCESS) return code;
    (void)descent_depth_format(b->with.model, b->depth.depth, b->depth.text);
    for (uint32_t k = 0; k < b->with.info->kinds; k++) b->has_depth |= b->depth.depth.steps[k] > 0;
    descent_status status;
    if (descent_model_count(b->with.model, &b->cost, &status) == DESCENT_OK) return EXIT_SUCCESS;
    cli_error("%s: this model's cost cannot be counted: %s", o->path, status.message);
    return EXIT_FAILURE;
}

static int open_machine(bench_run *b, const bench_options *o)
{
    if (b->n_lines == 0 && !o->products) return EXIT_SUCCESS;
    if (machine_open(&b->machine, b->threads, b->machine_seconds, largest_set(b, o))) return EXIT_SUCCESS;
    cli_error("no memory for a working set of %zu bytes", largest_set(b, o));
    return EXIT_FAILURE;
}

static int measure_lines(bench_run *b)
{
    if (b->n_lines == 0) return EXIT_SUCCESS;
    progress bar = progress_begin("measuring", "repetitions", b->n_lines * (uint64_t)b->repeats);
    int code = EXIT_SUCCESS;
    for (size_t i = 0; i < b->n_lines && code == EXIT_SUCCESS; i++) code = line_measure(b, &b->lines[i], &bar);
    progress_end(&bar);
    return code;
}

static int bench(bench_options *o)
{
    bench_run b = {.path = o->path, .repeats = o->repeats, .seconds = o->seconds, .machine_seconds = o->quick ? 0.03 : 0.1};
    if (!o->session.threads) o->session.threads = descent_threads_by_default();
    b.threads = (int)o->session.threads;
    int code = open_model(&b, o);
    if (code == EXIT_SUCCESS) {
        fit_contexts(&b, &o->context);
        b.lines = calloc(LINE_KINDS * MOST_NUMBERS * MOST_NUMBERS, sizeof *b.lines);
        if (!b.lines) {
            cli_error("no memory left");
            code = EXIT_FAILURE;
        }
    }
    if (code == EXIT_SUCCESS) add_lines(&b, o);
    if (code == EXIT_SUCCESS && o->memory) code = memory_measure(&b, (size_t)o->context.items[0]);
    if (code == EXIT_SUCCESS) code = open_machine(&b, o);
    if (code == EXIT_SUCCESS) code = measure_lines(&b);
    if (code == EXIT_SUCCESS && o->products) code = products_measure(&b, o->quick);
    if (code == EXIT_SUCCESS) code = o->json ? report_json(&b) : report_text(&b);
    for (size_t i = 0; i < b.n_lines; i++) line_release(&b.lines[i]);
    free(b.lines);
    free(b.products);
    machine_close(&b.machine);
    session_close(&b.with);
    return code;
}

static int bench_model(int argc, char **argv)
{
    bench_options o = {.session = {.chunk = 512}, .seconds = -1, .repeats = -1};
    cli_option table[10 + SESSION_OPTIONS] = {
        cli_text(0, "only", "WHAT,...", &o.only,
                 "some of prefill, decode, mixed, sweep, deepening, latency, drafts, memory, products; all but the last by "
                 "default"),
        cli_text(0, "contexts", "N,N,...", &o.contexts, "tokens a new token sees; 64,512,1024 by default"),
        cli_text(0, "batches", "N,N,...", &o.batches, "texts side by side; 1,4,16,64 by default"),
        cli_text('T', "steps", "T", &o.steps, "depth; the trained one by default"),
        cli_integer(0, "repeats", &o.repeats, 1, 1000, "repetitions; 5 by default"),
        cli_real_above(0, "seconds", &o.seconds, 0, 3600,
                       "about how long a repetition takes, at least, where it can be made longer; 0.1 by default"),
        cli_flag(0, "quick", &o.quick, "context 64, batches 1 and 4, 2 repetitions of 0.02 s, unless they are asked for"),
        cli_flag(0, "json", &o.json, "write one JSON object instead of a table"),
    };
    enum { OWN = 8 };
    session_option_table(&o.session, table + OWN);
    cli_arguments arguments;
    cli_outcome outcome = cli_parse(&bench_command, table, OWN + SESSION_OPTIONS, argc, argv, &arguments);
    if (outcome != CLI_RUN) return outcome == CLI_HELP ? EXIT_SUCCESS : EXIT_USAGE;
    if (o.repeats < 0) o.repeats = o.quick ? 2 : 5;
    if (o.seconds < 0) o.seconds = o.quick ? 0.02 : 0.1;
    o.path = arguments.positional[0];
    int code = read_lists(&o);
    if (code != EXIT_SUCCESS) return code;
    interruption_watch();
    return bench(&o);
}

int command_bench(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "serve")) return bench_serve_command(argc - 1, argv + 1);
    return bench_model(argc, argv);
}
