/* quantize.c: `descent quantize`: writes a model again with its weights in smaller types, and tells tensor by tensor what that
 * takes and what it loses. The work is descent_quantize's; here are the options, the text for importance, and the table. */
#include "cli.h"
#include "commands.h"
#include "input.h"
#include "json_output.h"
#include "session.h"
#include "terminal.h"

#include "descent.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static const cli_command quantize_command = {
    .name = "quantize",
    .positional = "IN OUT",
    .summary = "Writes the model of the GGUF file IN to OUT with its matrices in another type.",
    .notes =
        "Norms, biases, rates that are no matrix, diagonals and preconditioners stay F32. By default embeddings and head are "
        "Q6_K where the rest has 4 bits, and an NRGPT's rate matrix, through which every step's errors add up, is at least "
        "Q8_0. "
        "Rows that no block divides are padded with zeros; where a type would then be no "
        "smaller than one that keeps more, that one is taken, and the table says so.\n"
        "--importance runs the model over a text, then makes errors smaller where its numbers are large.\n"
        "Examples:\n"
        "  descent quantize model.gguf model-q8.gguf --type Q8_0\n"
        "  descent quantize model.gguf small.gguf --type Q4_K --importance text.txt --head-type Q8_0\n"
        "  descent quantize model.gguf mixed.gguf --type Q4_0 --tensor 'blk.*.rate.weight=F16'",
    .least = 2,
    .most = 2,
};

enum { TEXT_LIMIT = 1 << 30, MOST_SHOWN_TYPES = 16 };

static const char *const scales_names[] = {"auto", "row", "tile", NULL}; /* by descent_scales */

typedef struct quantize_options {
    const char *in, *out;
    const char *type, *embedding_type, *head_type;
    const char *importance;
    cli_list tensors;
    int scales;
    int64_t threads;
    bool allow_requantize, force, json;
} quantize_options;

/* ---- Types ------------------------------------------------------------------------------------------------------ */

static bool find_type(const char *text, descent_weight_type *type)
{
    const char *name;
    for (int t = DESCENT_WEIGHT_BY_RULE + 1; (name = descent_weight_type_name((descent_weight_type)t)); t++)
        if (!strcasecmp(name, text)) {
            *type = (descent_weight_type)t;
            return true;
        }
    return false;
}

static int read_type(const char *option, const char *text, descent_weight_type *type)
{
    if (!text || find_type(text, type)) return EXIT_SUCCESS;
    return cli_usage_error(&quantize_command, "%s: \"%.40s\" is no type; expected F32, F16, BF16, Q8_0, Q6_K, Q4_K or Q4_0",
                           option, text);
}

/* PATTERN=TYPE, one after the other. The patterns are copies, freed with the choices. */
static int read_choices(const cli_list *given, descent_tensor_choice **choices)
{
    *choices = calloc(given->count + 1, sizeof **choices);
    for (size_t i = 0; i < given->count && *choices; i++) {
        const char *equals = strrchr(given->items[i], '=');
        if (!equals || equals == given->items[i])
            return cli_usage_error(&quantize_command, "--tensor \"%.60s\": expected PATTERN=TYPE, as in blk.0.rate.weight=F16",
                                   given->items[i]);
        int exit_code = read_type("--tensor", equals + 1, &(*choices)[i].type);
        if (exit_code != EXIT_SUCCESS) return exit_code;
        (*choices)[i].pattern = strndup(given->items[i], (size_t)(equals - given->items[i]));
        if (!(*choices)[i].pattern) break;
    }
    if (*choices && (!given->count || (*choices)[given->count - 1].pattern)) return EXIT_SUCCESS;
    cli_error("no memory left");
    return EXIT_FAILURE;
}

static void free_choices(descent_tensor_choice *choices)
{
    for (size_t i = 0; choices && choices[i].pattern; i++) free((char *)(uintptr_t)choices[i].pattern);
    free(choices);
}

/* ---- Telling ---------------------------------------------------------------------------------------------------- */

typedef struct shown_tensor {
    char *name;
    descent_quantized_tensor seen; /* its pointers but `from` and `to`, which last, are not to be used */
    char note[96];
} shown_tensor;

/* What came out so far. */
typedef struct account {
    shown_tensor *tensors;
    size_t count, room;
    progress bar;
    bool no_memory;
} account;

static bool tensor_written(void *user, const descent_quantized_tensor *tensor)
{
    account *a = user;
    if (a->count == a->room) {
        size_t room = 2 * a->room + 32;
        shown_tensor *grown = realloc(a->tensors, room * sizeof *grown);
        if (!grown) {
            a->no_memory = true;
            return false;
        }
        a->tensors = grown;
        a->room = room;
    }
    shown_tensor *t = &a->tensors[a->count];
    *t = (shown_tensor){.name = strdup(tensor->name), .seen = *tensor};
    (void)snprintf(t->note, sizeof t->note, "%s", tensor->note ? tensor->note : "");
    a->no_memory = !t->name;
    a->count += t->name != NULL;
    return !a->no_memory && !interrupted();
}

static void release_account(account *a)
{
    for (size_t i = 0; i < a->count; i++) free(a->tensors[i].name);
    free(a->tensors);
}

static double relative_error(const descent_quantized_tensor *t)
{
    return t->rms > 0 ? t->rms_error / t->rms : 0;
}

static void print_table(const account *a, uint64_t before, uint64_t after)
{
    int widest = 6;
    for (size_t i = 0; i < a->count; i++)
        if ((int)strlen(a->tensors[i].name) > widest) widest = (int)strlen(a->tensors[i].name);
    printf("%-*s  %-16s %-5s %-10s %12s %10s %9s\n", widest, "tensor", "shape", "from", "to", "bytes", "rms error", "relative");
    for (size_t i = 0; i < a->count; i++) {
        const shown_tensor *t = &a->tensors[i];
        const descent_quantized_tensor *seen = &t->seen;
        char shape[48] = "", to[16];
        for (uint32_t d = 0, used = 0; d < seen->n_dims && used < sizeof shape; d++)
            used += (uint32_t)snprintf(shape + used, sizeof shape - used, "%s%" PRIu64, d ? " x " : "", seen->dims[d]);
        (void)snprintf(to, sizeof to, "%s%s", seen->to, seen->tiled ? " tile" : "");
        printf("%-*s  %-16s %-5s %-10s %12" PRIu64, widest, t->name, shape, seen->from, to, seen->bytes);
        if (seen->changed)
            printf(" %10.3g %8.4f%%", seen->rms_error, 100 * relative_error(seen));
        else
            printf(" %10s %9s", "-", "-");
        printf("%s%s\n", t->note[0] ? "  " : "", t->note);
    }
    printf("%" PRIu64 " bytes, %.3f of %" PRIu64 "\n", after, (double)after / (double)before, before);
}

static json_t *tensor_json(const shown_tensor *t)
{
    const descent_quantized_tensor *seen = &t->seen;
    json_t *shape = json_array();
    for (uint32_t d = 0; d < seen->n_dims; d++) json_array_append_new(shape, json_integer((json_int_t)seen->dims[d]));
    return json_pack("{ss so ss ss sI sI sb sb so so so}", "name", t->name, "shape", shape, "from", seen->from, "to", seen->to,
                     "bytes", (json_int_t)seen->bytes, "bytes_before", (json_int_t)seen->before, "tiled", seen->tiled,
                     "changed", seen->changed, "rms_error", json_number(seen->rms_error), "relative_error",
                     json_number(relative_error(seen)), "note", t->note[0] ? json_string(t->note) : json_null());
}

static int print_json(const account *a, const quantize_options *o, uint64_t before, uint64_t after)
{
    json_t *list = json_array(), *file = json_string(o->out);
    for (size_t i = 0; i < a->count; i++) json_array_append_new(list, tensor_json(&a->tensors[i]));
    return json_output(json_pack("{so ss sI sI so}", "file", file ? file : json_null(), "type", o->type, "bytes",
                                 (json_int_t)after, "bytes_before", (json_int_t)before, "tensors", list),
                       9);
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static bool advance_to(progress *bar, uint64_t done)
{
    progress_advance(bar, done - bar->done);
    return !interrupted();
}

static bool text_read(void *user, uint64_t done, uint64_t total)
{
    (void)total;
    return advance_to(user, done);
}

static bool part_written(void *user, uint64_t done, uint64_t total)
{
    account *a = user;
    (void)total;
    return advance_to(&a->bar, done);
}

static int failed(const descent_status *status)
{
    if (interrupted()) return EXIT_INTERRUPTED;
    cli_error("%s", status->message);
    return EXIT_FAILURE;
}

/* Runs the model over the tokens of the text. */
static int run_over(const descent_model *model, const uint32_t *tokens, size_t count, descent_importance **importance)
{
    descent_status status;
    progress bar = progress_begin("importance", "tokens", count);
    descent_depth trained = {{0}};
    descent_code code = descent_importance_gather(model, tokens, count, trained, text_read, &bar, importance, &status);
    progress_end(&bar);
    return code == DESCENT_OK ? EXIT_SUCCESS : failed(&status);
}

static int gather_importance(const quantize_options *o, descent_importance **importance)
{
    session with = {.model = NULL};
    descent_status status;
    text_buffer text;
    uint32_t *tokens = NULL;
    size_t count = 0;
    if (descent_model_open(o->in, &with.model, &status) != DESCENT_OK) return failed(&status);
    with.info = descent_model_describe(with.model);
    with.tokenizer = descent_model_tokenizer(with.model);
    int exit_code = read_text(o->importance, TEXT_LIMIT, &text);
    if (exit_code == EXIT_SUCCESS)
        exit_code = session_encode(&with, o->importance, text.bytes, text.length, DESCENT_PARSE_SPECIAL, &tokens, &count);
    text_buffer_release(&text);
    if (exit_code == EXIT_SUCCESS && count == 0) {
        cli_error("%s: no token, so nothing can be learned from it", o->importance);
        exit_code = EXIT_FAILURE;
    }
    if (exit_code == EXIT_SUCCESS) exit_code = run_over(with.model, tokens, count, importance);
    descent_free(tokens);
    session_close(&with);
    return exit_code;
}

/* Both paths lead to one file. */
static bool same_file(const char *in, const char *out)
{
    struct stat a, b;
    return stat(in, &a) == 0 && stat(out, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static uint64_t file_bytes(const char *path)
{
    struct stat there;
    return stat(path, &there) == 0 ? (uint64_t)there.st_size : 0;
}

static int write_model(const quantize_options *o, descent_quantize_options *how)
{
    descent_status status;
    uint64_t before = file_bytes(o->in);
    account seen = {.bar = progress_begin("quantize", "bytes", before)};
    how->written = tensor_written;
    how->progress = part_written;
    how->user = &seen;
    descent_code code = descent_quantize(o->in, o->out, how, &status);
    progress_end(&seen.bar);
    int exit_code = EXIT_SUCCESS;
    if (seen.no_memory) {
        cli_error("no memory left");
        exit_code = EXIT_FAILURE;
    } else if (code != DESCENT_OK) {
        exit_code = failed(&status);
    } else if (o->json) {
        exit_code = print_json(&seen, o, before, file_bytes(o->out));
    } else {
        print_table(&seen, before, file_bytes(o->out));
    }
    release_account(&seen);
    return exit_code;
}

static int quantize_with(const quantize_options *o, descent_quantize_options *how)
{
    descent_importance *importance = NULL;
    if (same_file(o->in, o->out)) {
        cli_error("%s and %s are one file; OUT must be another", o->in, o->out);
        return EXIT_FAILURE;
    }
    interruption_watch();
    int exit_code = o->importance ? gather_importance(o, &importance) : EXIT_SUCCESS;
    how->importance = importance;
    if (exit_code == EXIT_SUCCESS) exit_code = write_model(o, how);
    descent_importance_free(importance);
    return exit_code;
}

static int run(quantize_options *o)
{
    descent_tensor_choice *choices = NULL;
    descent_quantize_options how = {.scales = (descent_scales)o->scales,
                                    .requantize = o->allow_requantize,
                                    .replace = o->force,
                                    .threads = (uint32_t)o->threads,
                                    .n_choices = o->tensors.count};
    if (!o->type) return cli_usage_error(&quantize_command, "give --type: Q8_0, Q6_K, Q4_K, Q4_0, BF16, F16 or F32");
    int exit_code = read_type("--type", o->type, &how.type);
    if (exit_code == EXIT_SUCCESS) exit_code = read_type("--embedding-type", o->embedding_type, &how.embedding_type);
    if (exit_code == EXIT_SUCCESS) exit_code = read_type("--head-type", o->head_type, &how.head_type);
    if (exit_code == EXIT_SUCCESS) exit_code = read_choices(&o->tensors, &choices);
    how.choices = choices;
    if (exit_code == EXIT_SUCCESS) {
        o->type = descent_weight_type_name(how.type);
        exit_code = quantize_with(o, &how);
    }
    free_choices(choices);
    return exit_code;
}

int command_quantize(int argc, char **argv)
{
    quantize_options options = {.type = NULL};
    cli_option table[] = {
        cli_text(0, "type", "TYPE", &options.type, "of the matrices: Q8_0, Q6_K, Q4_K, Q4_0, BF16, F16 or F32"),
        cli_text(0, "embedding-type", "TYPE", &options.embedding_type, "of the embeddings of tokens and positions"),
        cli_text(0, "head-type", "TYPE", &options.head_type, "of the head, where it is not the embedding"),
        cli_repeated(0, "tensor", "PATTERN=TYPE", &options.tensors, "of the matrices whose names fit; may be repeated"),
        cli_choice(0, "scales", &options.scales, scales_names,
                   "of Q8_0 and Q4_0: row, or tile: one for 32 x 32 weights, which runs faster; tile for Q8_0, row for Q4_0 by "
                   "default"),
        cli_text(0, "importance", "FILE", &options.importance, "weigh errors by what the text in FILE makes matter"),
        cli_integer('t', "threads", &options.threads, 1, 1024, "threads; all the machine lets us use by default"),
        cli_flag(0, "allow-requantize", &options.allow_requantize, "read types below Q8_0, which have lost already"),
        cli_flag(0, "force", &options.force, "replace OUT where it exists"),
        cli_flag(0, "json", &options.json, "write one JSON object instead of a table"),
    };
    cli_arguments arguments;
    cli_outcome outcome = cli_parse(&quantize_command, table, sizeof table / sizeof *table, argc, argv, &arguments);
    int exit_code = outcome == CLI_HELP ? EXIT_SUCCESS : EXIT_USAGE;
    options.in = arguments.positional[0];
    options.out = arguments.positional[1];
    if (outcome == CLI_RUN) exit_code = run(&options);
    free(options.tensors.items);
    return exit_code;
}
