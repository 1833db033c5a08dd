/* scale.c: `descent scale`: what T buys on somebody's data. Options are read here, and the parts called in turn (scale.h). */
#include "scale.h"

#include "commands.h"
#include "motion.h"
#include "terminal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cli_command scale_command = {
    .name = "scale",
    .positional = "MODEL | --merge FILE...",
    .summary =
        "Measures what the recursion depth T buys on your data: quality, convergence and cost at each T, with intervals.",
    .notes =
        "Data is texts or records. --text: a file is one text, cut into windows of the model's context that predict every "
        "token "
        "but the first once. --texts: a JSON object {\"text\": ...} a line. --records: lines PROMPT <tab> ANSWER, or, where "
        "FILE "
        "ends in .jsonl, {\"prompt\", \"answer\"}, answered greedily with at most 60 tokens and right when the token before "
        "the "
        "end of the text is the answer; or {\"prompt\", \"choices\": [...], \"answer\": the index of the right one}, where the "
        "likeliest choice is the model's.\n"
        "Intervals hold 95% of what resampling the data gives: its texts where there are 8 or more, else their windows, or its "
        "records. All T are resampled together, so the difference to the trained T has an interval of its own.\n"
        "--resume keeps each input's numbers in FILE as it is finished; a run that was broken off goes on from there. With "
        "--shard I/N only every N-th input is measured, and --merge makes one result of the N files: the same, bit for bit, as "
        "one run's, but for its seconds and joules.\n"
        "What each column means: docs/scaling.md.",
    .least = 1,
    .most = CLI_MAX_POSITIONALS,
};

static const char *const unit_names[] = {"auto", "windows", "documents", NULL};

typedef struct scale_options {
    session_options session;
    scale_files files;
    const char *steps, *exit, *resume, *shard, *csv, *svg, *range;
    motion_options motion;
    scale_picture picture;
    double threshold;
    int64_t resamples;
    int units;
    bool merge, json;
} scale_options;

enum { OWN_OPTIONS = 20 };

static size_t option_table(scale_options *o, cli_option *table)
{
    size_t i = 0;
    table[i++] = cli_repeated('f', "text", "FILE", &o->files.texts, "a text; may come several times; - is standard input");
    table[i++] = cli_repeated(0, "texts", "FILE", &o->files.lists, "texts, one JSON object a line; may come several times");
    table[i++] = cli_text('r', "records", "FILE", &o->files.questions, "questions with answers, or with choices");
    table[i++] = cli_text('T', "steps", "T[,T...]", &o->steps,
                          "recursion depths: 1,2,4, or 1-32, or 1-32:4, or for attention x MLP 1x1,3x2 or 1-4x1-4; by default "
                          "powers of two up to four times the trained T, and the trained T");
    table[i++] = cli_text(0, "exit", "CRITERION:X", &o->exit, "tokens stop early, as with descent eval");
    table[i++] = cli_defaulted(cli_real(0, "threshold", &o->threshold, 0, 1e6,
                                        "a token has settled where its last step moved g by less than X of its length"));
    table[i++] = cli_text(0, "resume", "FILE", &o->resume, "keep finished inputs in FILE, and go on from what is there");
    table[i++] = cli_text(0, "shard", "I/N", &o->shard, "measure only the I-th of every N inputs, for --merge; needs --resume");
    table[i++] =
        cli_flag(0, "merge", &o->merge, "instead of measuring: the result of --resume FILEs that are shards of one run");
    table[i++] = cli_choice(0, "resample", &o->units, unit_names, "what intervals draw from; of texts only");
    table[i++] = cli_defaulted(cli_integer(0, "resamples", &o->resamples, 1, 100000, "resamples that intervals are of"));
    table[i++] = cli_flag(0, "parse-special", &o->files.parse_special, "special tokens spelled in texts are those tokens");
    table[i++] = cli_flag(0, "json", &o->json, "write one JSON object instead of a table");
    table[i++] = cli_text(0, "csv", "FILE", &o->csv, "write the rows to FILE as well");
    table[i++] = cli_text(0, "svg", "FILE", &o->svg, "draw them in FILE as well");
    table[i++] = cli_text(0, "title", "TEXT", &o->picture.title, "of the picture; model and data by default");
    table[i++] = cli_text(0, "trained-range", "LOW-HIGH", &o->range,
                          "depths that the model was trained over, for the picture; up to the trained T by default");
    session_option_table(&o->session, table + i);
    motion_option_table(&o->motion, table + i + SESSION_OPTIONS);
    return i + SESSION_OPTIONS + MOTION_OPTIONS;
}

/* ---- Depths ------------------------------------------------------------------------------------------------------ */

static int compare_depths(const void *a, const void *b)
{
    const asked_depth *x = a, *y = b;
    for (size_t k = 0; k < DESCENT_MAX_KINDS; k++)
        if (x->depth.steps[k] != y->depth.steps[k]) return x->depth.steps[k] < y->depth.steps[k] ? -1 : 1;
    return 0;
}

static bool is_trained(const descent_model_info *info, const asked_depth *asked)
{
    return !memcmp(&asked->depth, &info->trained, sizeof asked->depth);
}

/* Powers of two up to four times the trained T, and it itself. */
static void default_depths(const session *with, char *list, size_t size)
{
    unsigned most = 0;
    for (size_t k = 0; k < with->info->kinds; k++)
        if (with->info->trained.steps[k] > most) most = with->info->trained.steps[k];
    char trained[16];
    size_t used = (size_t)snprintf(list, size, "%s", descent_depth_format(with->model, with->info->trained, trained));
    for (unsigned t = 1; most && t <= 4 * most && t <= DESCENT_MAX_STEPS; t *= 2)
        used += (size_t)snprintf(list + used, size - used, ",%u", t);
}

/* Rising, each once, written as the library writes them. */
static int read_scale_depths(const session *with, const char *list, int64_t resamples, scale_experiment *into)
{
    char by_default[256];
    if (!list) default_depths(with, by_default, sizeof by_default);
    size_t n, kept = 0;
    int exit_code = read_depths(&scale_command, with->model, list ? list : by_default, &into->depths, &n);
    if (exit_code != EXIT_SUCCESS) return exit_code;
    qsort(into->depths, n, sizeof *into->depths, compare_depths);
    for (size_t i = 0; i < n; i++)
        if (!kept || compare_depths(&into->depths[kept - 1], &into->depths[i])) into->depths[kept++] = into->depths[i];
    if (kept > DESCENT_SWEEP_DEPTHS)
        return cli_usage_error(&scale_command, "%zu depths, at most %d are measured at once", kept, DESCENT_SWEEP_DEPTHS);
    if (resamples * (int64_t)kept > DESCENT_SCALING_NUMBERS / DESCENT_METRICS)
        return cli_usage_error(&scale_command, "--resamples is %" PRId64 ", at %zu depths at most %zu", resamples, kept,
                               DESCENT_SCALING_NUMBERS / DESCENT_METRICS / kept);
    into->n_depths = kept;
    into->trained = -1;
    for (size_t i = 0; i < kept; i++) {
        descent_depth_format(with->model, into->depths[i].depth, into->depths[i].text);
        if (is_trained(with->info, &into->depths[i])) into->trained = (int)i;
    }
    return EXIT_SUCCESS;
}

/* ---- The setup --------------------------------------------------------------------------------------------------- */

static json_t *hexadecimal(uint64_t number)
{
    return json_sprintf("%016" PRIx64, number);
}

/* What was said of an option, null where nothing was. */
static json_t *option_json(const cli_option *option)
{
    switch (option->kind) {
    case CLI_TEXT:
        return *option->to.text ? json_string(*option->to.text) : json_null();
    case CLI_REAL:
        return json_real(*option->to.real);
    case CLI_CHOICE:
        return json_string(option->choices[*option->to.choice]);
    case CLI_INTEGER:
        return json_integer(*option->to.integer);
    case CLI_FLAG:
        return json_boolean(*option->to.flag);
    case CLI_LIST:
    case CLI_BYTES:
        break;
    }
    return json_null();
}

/* How steps move, by the options' own names: whatever those are, another value is another experiment. */
static json_t *knobs_of(const scale_options *o)
{
    cli_option table[MOTION_OPTIONS];
    motion_options motion = o->motion;
    json_t *knobs = json_object();
    motion_option_table(&motion, table);
    for (size_t i = 0; i < MOTION_OPTIONS; i++) json_object_set_new(knobs, table[i].name, option_json(&table[i]));
    return knobs;
}

static json_t *names_of(const scale_experiment *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->n_depths; i++) json_array_append_new(list, json_string(e->depths[i].text));
    return list;
}

/* What decides about the numbers: a file with another setup is of another experiment. */
static json_t *make_setup(const session *with, const scale_options *o, const scale_data *data, const scale_experiment *e)
{
    const descent_model_info *info = with->info;
    char trained[16], model[128], name[128];
    scale_printable(info->name, model, sizeof model);
    scale_printable(data->name, name, sizeof name);
    json_t *setup = json_pack(
        "{si ss ss ss ss so ss ss ss}", "descent_scale", SCALE_LOG_VERSION, "model", model, "family", info->family, "variant",
        info->variant, "weights", info->weight_type, "fingerprint", hexadecimal(info->fingerprint), "isa", descent_isa(),
        "page_type", page_type_names[with->page_type], "trained", descent_depth_format(with->model, info->trained, trained));
    json_t *more =
        json_pack("{ss ss so sI sI so sf ss so ss so}", "kind", scale_kind_names[data->kind], "name", name, "data",
                  hexadecimal(data->hash), "inputs", (json_int_t)data->n_inputs, "documents", (json_int_t)data->n_documents,
                  "depths", names_of(e), "threshold", o->threshold, "exit", o->exit ? o->exit : "none", "knobs", knobs_of(o),
                  "shard", o->shard ? o->shard : "1/1", "fields", scale_log_fields());
    json_object_update_missing(setup, more);
    json_decref(more);
    return setup;
}

static int make_experiment(const session *with, const scale_options *o, const scale_data *data, scale_experiment *e)
{
    e->kind = data->kind;
    e->n_inputs = data->n_inputs;
    e->n_documents = data->n_documents;
    e->setup = make_setup(with, o, data, e);
    if (e->setup) return scale_experiment_make_room(e);
    cli_error("no memory left");
    return EXIT_FAILURE;
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static int show(const scale_options *o, const scale_experiment *e)
{
    scale_result result;
    if (!e->n_done) return EXIT_SUCCESS; /* interrupted before anything was finished */
    int exit_code = scale_summarize(e, (scale_units)o->units, o->resamples, &result);
    if (exit_code == EXIT_SUCCESS && o->json)
        exit_code = scale_show_json(&result);
    else if (exit_code == EXIT_SUCCESS)
        scale_show_table(&result);
    /* Files come last, so that one that cannot be written does not take the rows with it. */
    if (exit_code == EXIT_SUCCESS && o->csv) exit_code = scale_write_csv(&result, o->csv);
    if (exit_code == EXIT_SUCCESS && o->svg) exit_code = scale_write_svg(&result, &o->picture, o->svg);
    scale_result_release(&result);
    return exit_code;
}

/* What is done when it ends, by Ctrl-C too, is shown; with a shard, whose rows say little, how far it came. */
static int finish(const scale_options *o, const scale_experiment *e, int exit_code)
{
    if (exit_code != EXIT_SUCCESS && exit_code != EXIT_INTERRUPTED) return exit_code;
    int shown = show(o, e);
    if (exit_code == EXIT_INTERRUPTED)
        fprintf(stderr, "descent: interrupted after %zu of %zu inputs%s%s\n", e->n_done, e->n_inputs,
                o->resume ? "; the same command goes on, from " : "", o->resume ? o->resume : "");
    return exit_code == EXIT_SUCCESS ? shown : exit_code;
}

static int measure(const scale_options *o, const session *with, scale_how *how, scale_experiment *e)
{
    scale_data data;
    int exit_code = scale_read(with, &o->files, &data);
    if (exit_code == EXIT_SUCCESS && o->motion.prompt_steps > 0 && data.kind == SCALE_TEXTS)
        exit_code = cli_usage_error(&scale_command, "--prompt-steps is about prompts, and texts have none");
    if (exit_code == EXIT_SUCCESS) exit_code = make_experiment(with, o, &data, e);
    if (exit_code == EXIT_SUCCESS && o->resume) exit_code = scale_log_open(o->resume, e, &how->log);
    interruption_watch();
    if (exit_code == EXIT_SUCCESS) exit_code = scale_run(with, &data, how, e);
    if (how->log) fclose(how->log);
    scale_data_release(&data);
    return exit_code;
}

static int scale_with(const scale_options *o, const char *path, scale_how *how)
{
    session with;
    scale_experiment experiment = {.setup = NULL};
    int exit_code = session_open_scheduler(path, &o->session, 0, &with);
    if (exit_code == EXIT_SUCCESS) exit_code = read_exit(&scale_command, o->exit, &with.exit);
    if (exit_code == EXIT_SUCCESS)
        exit_code = read_motion(&scale_command, &o->motion, &with.motion, &with.solver, &with.history);
    if (exit_code == EXIT_SUCCESS) exit_code = read_scale_depths(&with, o->steps, o->resamples, &experiment);
    if (exit_code == EXIT_SUCCESS) exit_code = finish(o, &experiment, measure(o, &with, how, &experiment));
    scale_experiment_release(&experiment);
    session_close(&with);
    return exit_code;
}

static int merge(const scale_options *o, const cli_arguments *files)
{
    scale_experiment experiment;
    int exit_code = scale_log_merge(files->positional, files->count, &experiment);
    if (exit_code == EXIT_SUCCESS) exit_code = show(o, &experiment);
    scale_experiment_release(&experiment);
    return exit_code;
}

/* Two integers with `between` between them. */
static bool read_pair(const char *text, char between, int64_t low, int64_t high, int64_t *first, int64_t *second)
{
    char copy[32];
    snprintf(copy, sizeof copy, "%s", text);
    char *split = strchr(copy, between);
    if (strlen(text) >= sizeof copy || !split) return false;
    *split = '\0';
    return cli_read_integer(copy, low, high, first) && cli_read_integer(split + 1, low, high, second) && *first <= *second;
}

static int check(scale_options *o, size_t positionals, scale_how *how)
{
    int64_t shard = 1, shards = 1;
    bool texts = o->files.texts.count || o->files.lists.count, records = o->files.questions != NULL;
    if (o->range && !read_pair(o->range, '-', 1, DESCENT_MAX_STEPS, &o->picture.low, &o->picture.high))
        return cli_usage_error(&scale_command, "--trained-range must be LOW-HIGH, such as 2-8, got \"%s\"", o->range);
    if (o->merge) {
        if (texts || records || o->steps || o->exit || o->resume || o->shard)
            return cli_usage_error(&scale_command, "--merge measures nothing: it takes files that --resume wrote, and no data");
        return EXIT_SUCCESS;
    }
    if (positionals > 1) return cli_usage_error(&scale_command, "one model at a time; data is given with --text or --records");
    if (texts == records) return cli_usage_error(&scale_command, "give either texts (--text, --texts) or --records");
    if (o->shard && !o->resume) return cli_usage_error(&scale_command, "--shard needs --resume FILE, where its numbers go");
    if (o->shard && !read_pair(o->shard, '/', 1, 1000000, &shard, &shards))
        return cli_usage_error(&scale_command, "--shard must be I/N, the I-th of N, such as 1/4, got \"%s\"", o->shard);
    *how = (scale_how){.threshold = o->threshold, .first = (uint64_t)shard - 1, .of = (uint64_t)shards, .log_path = o->resume};
    return EXIT_SUCCESS;
}

int command_scale(int argc, char **argv)
{
    scale_options options = {.session = {.chunk = 1024}, .threshold = 0.03, .resamples = 1000};
    cli_option table[OWN_OPTIONS + SESSION_OPTIONS + MOTION_OPTIONS];
    size_t n = option_table(&options, table);
    cli_arguments arguments;
    scale_how how = {.log = NULL};
    cli_outcome outcome = cli_parse(&scale_command, table, n, argc, argv, &arguments);
    int exit_code = outcome == CLI_HELP ? EXIT_SUCCESS : EXIT_USAGE;
    if (outcome == CLI_RUN) exit_code = check(&options, arguments.count, &how);
    if (outcome == CLI_RUN && exit_code == EXIT_SUCCESS)
        exit_code = options.merge ? merge(&options, &arguments) : scale_with(&options, arguments.positional[0], &how);
    free(options.files.texts.items);
    free(options.files.lists.items);
    return exit_code;
}
