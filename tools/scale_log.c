/* scale_log.c: see scale.h. A file is not trusted: every line is checked before its numbers are taken. */
#include "scale.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { LOG_LIMIT = 1 << 30 };

/* ---- Readings as numbers ----------------------------------------------------------------------------------------- */

static const char *const counts[] = {"diverged",    "predictions", "bytes",     "items", "right", "right_by_bytes", "tokens",
                                     "token_steps", "weights",     "attention", "head",  "exit",  "converged"};
static const char *const reals[] = {"nats", "energy", "relative_change", "seconds", "joules"};
enum { COUNTS = sizeof counts / sizeof *counts, REALS = sizeof reals / sizeof *reals };

json_t *scale_log_fields(void)
{
    json_t *list = json_array();
    for (size_t i = 0; i < COUNTS; i++) json_array_append_new(list, json_string(counts[i]));
    for (size_t i = 0; i < REALS; i++) json_array_append_new(list, json_string(reals[i]));
    return list;
}

static json_t *reading_json(const scale_reading *r)
{
    const descent_measure *m = &r->measure;
    const uint64_t whole[COUNTS] = {m->code != DESCENT_OK, m->predictions, m->bytes,       m->items,        m->right,
                                    r->right_by_bytes,     m->tokens,      m->token_steps, m->cost.weights, m->cost.attention,
                                    m->cost.head,          m->cost.exit,   m->converged};
    const double numbers[REALS] = {m->nats, m->energy, m->relative_change, m->seconds, r->joules};
    json_t *list = json_array();
    for (size_t i = 0; i < COUNTS; i++) json_array_append_new(list, json_integer((json_int_t)whole[i]));
    for (size_t i = 0; i < REALS; i++) json_array_append_new(list, isfinite(numbers[i]) ? json_real(numbers[i]) : json_null());
    return list;
}

static bool read_reading(const json_t *list, descent_depth depth, scale_reading *r)
{
    uint64_t whole[COUNTS];
    double numbers[REALS];
    if (json_array_size(list) != COUNTS + REALS) return false;
    for (size_t i = 0; i < COUNTS; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
        whole[i] = (uint64_t)json_integer_value(value);
    }
    for (size_t i = 0; i < REALS; i++) {
        const json_t *value = json_array_get(list, COUNTS + i);
        if (!json_is_number(value) && !json_is_null(value)) return false;
        numbers[i] = json_is_null(value) ? NAN : json_number_value(value);
    }
    *r = (scale_reading){.measure = {.depth = depth,
                                     .code = whole[0] ? DESCENT_DIVERGED : DESCENT_OK,
                                     .predictions = whole[1],
                                     .bytes = whole[2],
                                     .items = whole[3],
                                     .right = whole[4],
                                     .tokens = whole[6],
                                     .token_steps = whole[7],
                                     .cost = {whole[8], whole[9], whole[10], whole[11]},
                                     .converged = whole[12],
                                     .nats = numbers[0],
                                     .energy = numbers[1],
                                     .relative_change = numbers[2],
                                     .seconds = numbers[3]},
                         .right_by_bytes = whole[5],
                         .joules = numbers[4]};
    return true;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static int wrong(const char *path, size_t line, const char *what)
{
    cli_error("%s, line %zu: %s", path, line, what);
    return EXIT_FAILURE;
}

/* An input's line into the experiment. */
static int take_line(const char *path, size_t number, const json_t *line, scale_experiment *into)
{
    const json_t *input = json_object_get(line, "input"), *document = json_object_get(line, "document");
    const json_t *readings = json_object_get(line, "readings");
    json_int_t i = json_integer_value(input), d = json_integer_value(document);
    if (!json_is_integer(input) || i < 0 || (uint64_t)i >= into->n_inputs || !json_is_integer(document) || d < 0 ||
        json_array_size(readings) != into->n_depths)
        return wrong(path, number, "no line of this experiment: expected an input, its document and its readings");
    if (into->done[i]) {
        cli_error("%s, line %zu: input %lld is there twice", path, number, (long long)i);
        return EXIT_FAILURE;
    }
    for (size_t k = 0; k < into->n_depths; k++)
        if (!read_reading(json_array_get(readings, k), into->depths[k].depth, &into->readings[(size_t)i * into->n_depths + k]))
            return wrong(path, number, "a reading is not the numbers that the first line names");
    into->documents[i] = (uint64_t)d;
    into->done[i] = true;
    into->n_done++;
    return EXIT_SUCCESS;
}

/* The line that begins at `line` without its newline, *next where the one after it begins; NULL where no whole line is left. */
static const char *next_line(const char *line, const char *end, size_t *length, const char **next)
{
    const char *newline = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
    if (!newline) return NULL;
    *length = (size_t)(newline - line);
    *next = newline + 1;
    return line;
}

static int take_lines(const char *path, const char *from, const char *end, scale_experiment *into)
{
    size_t length;
    const char *next;
    for (size_t number = 2; next_line(from, end, &length, &next); from = next, number++) {
        json_error_t error;
        json_t *line = json_loadb(from, length, JSON_REJECT_DUPLICATES, &error);
        int exit_code = line ? take_line(path, number, line, into) : wrong(path, number, error.text);
        json_decref(line);
        if (exit_code != EXIT_SUCCESS) return exit_code;
    }
    return EXIT_SUCCESS;
}

/* ---- Setups ------------------------------------------------------------------------------------------------------ */

static char *shown(const json_t *value)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (text && strlen(text) > 100) strcpy(text + 97, "...");
    return text;
}

/* Names the first of `wanted`'s keys that the file has otherwise. */
static int compare_setups(const char *path, json_t *found, json_t *wanted, bool shards_may_differ)
{
    const char *key;
    json_t *value;
    json_object_foreach(wanted, key, value)
    {
        json_t *other = json_object_get(found, key);
        bool free_to_differ = !strcmp(key, "name") || (shards_may_differ && !strcmp(key, "shard"));
        if (free_to_differ || json_equal(value, other)) continue;
        char *theirs = shown(other), *ours = shown(value);
        cli_error("%s is of another experiment: its %s is %s, here it is %s", path, key, theirs ? theirs : "none",
                  ours ? ours : "none");
        free(theirs);
        free(ours);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

/* The first line, where it is a setup of ours. */
static json_t *read_setup(const char *path, const char *line, size_t length)
{
    json_t *setup = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_integer(json_object_get(setup, "descent_scale"))) return setup;
    json_decref(setup);
    cli_error("%s is no file of descent scale: its first line says nothing of an experiment", path);
    return NULL;
}

/* ---- One file ---------------------------------------------------------------------------------------------------- */

static int cannot(const char *doing, const char *path)
{
    cli_error("cannot %s %s: %s", doing, path, strerror(errno));
    return EXIT_FAILURE;
}

static int begin_log(const char *path, FILE *log, const scale_experiment *experiment)
{
    if (json_dumpf(experiment->setup, log, JSON_COMPACT | JSON_REAL_PRECISION(17)) != 0 || fputc('\n', log) == EOF ||
        fflush(log) != 0)
        return cannot("write", path);
    return EXIT_SUCCESS;
}

/* Whether what is there is the beginning of our own first line, which was torn. */
static bool is_torn_setup(const text_buffer *text, const json_t *setup)
{
    char *line = json_dumps(setup, JSON_COMPACT | JSON_REAL_PRECISION(17));
    bool torn = line && text->length <= strlen(line) && !memcmp(line, text->bytes, text->length);
    free(line);
    return torn;
}

/* Takes the lines that are whole; *whole is how many bytes they are. */
static int take_log(const char *path, const text_buffer *text, scale_experiment *experiment, size_t *whole)
{
    size_t length;
    const char *end = text->bytes + text->length, *next = end;
    const char *first = next_line(text->bytes, end, &length, &next);
    *whole = 0;
    if (!first && is_torn_setup(text, experiment->setup)) return EXIT_SUCCESS;
    json_t *setup = read_setup(path, text->bytes, first ? length : text->length);
    if (!setup) return EXIT_FAILURE;
    int exit_code = compare_setups(path, setup, experiment->setup, false);
    json_decref(setup);
    if (exit_code != EXIT_SUCCESS) return exit_code;
    for (const char *c = text->bytes; c < end; c++)
        if (*c == '\n') *whole = (size_t)(c + 1 - text->bytes);
    return take_lines(path, next, end, experiment);
}

int scale_log_open(const char *path, scale_experiment *experiment, FILE **log)
{
    text_buffer text;
    size_t whole;
    FILE *file = fopen(path, "ab+");
    if (!file) return cannot("open", path);
    *log = file;
    if (flock(fileno(file), LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) return cannot("lock", path);
        cli_error("%s is being written by another process", path);
        return EXIT_FAILURE;
    }
    int exit_code = read_text(path, LOG_LIMIT, &text);
    if (exit_code == EXIT_SUCCESS) exit_code = take_log(path, &text, experiment, &whole);
    if (exit_code == EXIT_SUCCESS && whole < text.length && ftruncate(fileno(file), (off_t)whole) != 0)
        exit_code = cannot("drop the torn line of", path);
    if (exit_code == EXIT_SUCCESS && !whole) exit_code = begin_log(path, file, experiment);
    text_buffer_release(&text);
    return exit_code;
}

int scale_log_write(FILE *log, const char *path, const scale_experiment *experiment, size_t input)
{
    json_t *readings = json_array();
    for (size_t k = 0; k < experiment->n_depths; k++)
        json_array_append_new(readings, reading_json(&experiment->readings[input * experiment->n_depths + k]));
    json_t *line = json_pack("{sI sI so}", "input", (json_int_t)input, "document", (json_int_t)experiment->documents[input],
                             "readings", readings);
    errno = ENOMEM;
    bool written = line && json_dumpf(line, log, JSON_COMPACT | JSON_REAL_PRECISION(17)) == 0 && fputc('\n', log) != EOF &&
                   fflush(log) == 0;
    json_decref(line);
    return written ? EXIT_SUCCESS : cannot("write", path);
}

/* ---- Many files -------------------------------------------------------------------------------------------------- */

/* A depth as it was printed; there is no model here to say which kinds have one. */
static bool read_printed_depth(const char *text, asked_depth *asked)
{
    unsigned first = 0, second = 0;
    int used = 0;
    if (!text || strlen(text) >= sizeof asked->text) return false;
    snprintf(asked->text, sizeof asked->text, "%s", text);
    if (!strcmp(text, "none")) return true;
    if (sscanf(text, "%5ux%5u%n", &first, &second, &used) == 2 && !text[used]) {
        asked->depth = (descent_depth){{(uint16_t)first, (uint16_t)second}};
    } else {
        used = 0;
        if (sscanf(text, "%5u%n", &first, &used) != 1 || text[used]) return false;
        asked->depth = (descent_depth){{(uint16_t)first, (uint16_t)first}};
    }
    return first >= 1 && first <= DESCENT_MAX_STEPS && second <= DESCENT_MAX_STEPS;
}

static int kind_of(const char *name)
{
    for (int i = 0; name && scale_kind_names[i]; i++)
        if (!strcmp(name, scale_kind_names[i])) return i;
    return -1;
}

/* An experiment without readings, from the setup of one of its files. */
static int read_experiment(const char *path, scale_experiment *into)
{
    const json_t *depths = json_object_get(into->setup, "depths"), *inputs = json_object_get(into->setup, "inputs");
    const json_t *documents = json_object_get(into->setup, "documents");
    const char *trained = json_string_value(json_object_get(into->setup, "trained"));
    int kind = kind_of(json_string_value(json_object_get(into->setup, "kind")));
    into->n_depths = json_array_size(depths);
    into->n_inputs = (size_t)json_integer_value(inputs);
    into->n_documents = (size_t)json_integer_value(documents);
    into->trained = -1;
    json_t *fields = scale_log_fields();
    bool sound = json_integer_value(json_object_get(into->setup, "descent_scale")) == SCALE_LOG_VERSION && kind >= 0 &&
                 trained && json_is_integer(inputs) && json_integer_value(inputs) > 0 && into->n_depths > 0 &&
                 into->n_depths <= DESCENT_SWEEP_DEPTHS && json_equal(fields, json_object_get(into->setup, "fields"));
    json_decref(fields);
    into->depths = sound ? calloc(into->n_depths, sizeof *into->depths) : NULL;
    for (size_t i = 0; i < into->n_depths && into->depths && sound; i++) {
        sound = read_printed_depth(json_string_value(json_array_get(depths, i)), &into->depths[i]);
        if (sound && !strcmp(into->depths[i].text, trained)) into->trained = (int)i;
    }
    if (!sound) return wrong(path, 1, "not the setup of an experiment of this version");
    if (!into->depths) return wrong(path, 1, "no memory left");
    into->kind = (scale_kind)kind;
    return scale_experiment_make_room(into);
}

/* One more file, the first of which makes the experiment. */
static int merge_file(const char *path, scale_experiment *into)
{
    text_buffer text;
    size_t length;
    int exit_code = read_text(path, LOG_LIMIT, &text);
    const char *end = text.bytes + text.length, *next = end;
    const char *first = exit_code == EXIT_SUCCESS ? next_line(text.bytes, end, &length, &next) : NULL;
    if (exit_code == EXIT_SUCCESS) {
        json_t *setup = read_setup(path, text.bytes, first ? length : 0);
        exit_code = setup ? EXIT_SUCCESS : EXIT_FAILURE;
        if (setup && into->setup) {
            exit_code = compare_setups(path, setup, into->setup, true);
            json_decref(setup);
        } else if (setup) {
            into->setup = setup;
            exit_code = read_experiment(path, into);
        }
    }
    if (exit_code == EXIT_SUCCESS) exit_code = take_lines(path, next, end, into);
    text_buffer_release(&text);
    return exit_code;
}

int scale_log_merge(const char *const *paths, size_t n, scale_experiment *experiment)
{
    *experiment = (scale_experiment){.setup = NULL};
    for (size_t i = 0; i < n; i++) {
        int exit_code = merge_file(paths[i], experiment);
        if (exit_code != EXIT_SUCCESS) return exit_code;
    }
    if (experiment->n_done == experiment->n_inputs) return EXIT_SUCCESS;
    size_t missing = 0;
    while (experiment->done[missing]) missing++;
    cli_error(
        "%zu of the experiment's %zu inputs are in none of the files, the first is %zu: are all shards there, and were they "
        "finished? (--resume goes on with one)",
        experiment->n_inputs - experiment->n_done, experiment->n_inputs, missing);
    return EXIT_FAILURE;
}
