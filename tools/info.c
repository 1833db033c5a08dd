/* info.c: `descent info`: what a model file holds and what memory it takes, as text or as one JSON object. Everything is
 * read through descent.h, so a file that is no loadable model gets the engine's own message. */
#include "cli.h"
#include "commands.h"
#include "input.h"
#include "json_output.h"
#include "session.h"
#include "terminal.h"

#include "descent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cli_command info_command = {
    .name = "info",
    .positional = "FILE",
    .summary = "Shows what the GGUF file FILE holds: metadata, tensors, parameters, and the memory it takes.",
    .notes = "The history's memory is that of one sequence of --context tokens at depth --steps.",
    .least = 1,
    .most = 1,
};

enum { VALUE_SIZE = 4096 };

/* What is asked of a model, and the model. */
typedef struct report {
    const char *path;
    const descent_model *model;
    const descent_model_info *info;
    const descent_tokenizer_info *tokenizer; /* NULL: none */
    descent_page_type page_type;
    descent_depth depth;
    uint32_t context;
    uint64_t history_bytes;
} report;

/* ---- Text ------------------------------------------------------------------------------------------------------- */

/* Text from a file on one line: control bytes, which could drive a terminal, are spelled out. */
static void print_clean(const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '\n')
            fputs("\\n", stdout);
        else if (c == '\t')
            fputs("\\t", stdout);
        else if (c < 0x20 || c == 0x7f)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
}

static void print_heading(const char *text)
{
    printf("\n%s%s%s\n", terminal_style_on(stdout, STYLE_BOLD), text, terminal_style_on(stdout, STYLE_PLAIN));
}

static void print_bytes(const char *label, uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double scaled = (double)bytes;
    size_t unit = 0;
    for (; scaled >= 1024 && unit < 6; unit++) scaled /= 1024;
    printf("  %-18s %.*f %s", label, unit ? 1 : 0, scaled, units[unit]);
    if (unit) printf(" (%" PRIu64 ")", bytes);
    putchar('\n');
}

/* The trained depth, kind by kind where there are two, and what other depths cost where there are any. */
static void print_depth(const report *r)
{
    const descent_model_info *info = r->info;
    char depth[16];
    bool recurs = false;
    printf("  %-18s %s", "trained steps", descent_depth_format(r->model, info->trained, depth));
    for (uint32_t k = 0; k < info->kinds; k++) {
        unsigned steps = info->trained.steps[k];
        recurs = recurs || steps > 0;
        if (info->kinds == 1) continue;
        printf("%s", k ? ", " : " (");
        if (steps)
            printf("%u %s", steps, info->kind_names[k]);
        else
            printf("%s once", info->kind_names[k]);
    }
    printf("%s\n", info->kinds > 1 ? ")" : "");
    if (recurs)
        printf("  %-18s %s\n", "at other depths",
               info->deepens ? "tokens computed at T serve as they are and can be deepened" : "every token is computed again");
}

static void print_model(const report *r)
{
    const descent_model_info *info = r->info;
    printf("  %-18s ", "name");
    print_clean(info->name);
    printf("\n  %-18s %s\n  %-18s %s\n", "family", info->family, "variant", info->variant);
    printf("  %-18s %" PRIu64 "\n  %-18s %s\n", "parameters", info->parameters, "weights", info->weight_type);
    printf("  %-18s %" PRIu32 "\n  %-18s %" PRIu32 "\n  %-18s %" PRIu32 "\n  %-18s %" PRIu32 "\n", "width", info->width,
           "vocabulary", info->vocab, "context", info->context, "layers", info->layers);
    print_depth(r);
    printf("  %-18s %016" PRIx64 "\n  %-18s %s\n", "fingerprint", info->fingerprint, "instruction set", descent_isa());
}

static void print_tokenizer(const report *r)
{
    const descent_tokenizer_info *t = r->tokenizer;
    print_heading("Tokenizer");
    if (!t) {
        printf("  none: only token ids go in and out\n");
        return;
    }
    printf("  %-18s %s\n  %-18s %" PRIu32 "\n", "model", t->model, "tokens", t->vocab);
    const struct {
        const char *name;
        int64_t id;
        const char *added;
    } special[] = {{"begin of text", t->bos, t->adds_bos ? " (added)" : ""},
                   {"end of text", t->eos, t->adds_eos ? " (added)" : ""},
                   {"padding", t->pad, ""},
                   {"unknown", t->unknown, ""}};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (special[i].id >= 0) printf("  %-18s %" PRId64 "%s\n", special[i].name, special[i].id, special[i].added);
}

static void format_shape(const descent_tensor_info *tensor, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t d = 0; d < tensor->n_dims && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, d ? " x " : "", tensor->dims[d]);
}

static void print_contents(const report *r)
{
    char value[VALUE_SIZE], shape[96];
    const char *key;
    descent_tensor_info tensor;
    print_heading("Metadata");
    for (size_t i = 0; descent_model_metadata(r->model, i, &key, value, sizeof value); i++) {
        fputs("  ", stdout);
        print_clean(key);
        fputs(" = ", stdout);
        print_clean(value);
        putchar('\n');
    }
    print_heading("Tensors");
    printf("  %-32s %-6s %-20s %12s\n", "name", "type", "shape", "bytes");
    for (size_t i = 0; descent_model_tensor(r->model, i, &tensor); i++) {
        format_shape(&tensor, shape, sizeof shape);
        printf("  %-32s %-6s %-20s %12" PRIu64 "\n", tensor.name, tensor.type, shape, tensor.bytes);
    }
}

static bool has_type(const report *r, const char *type)
{
    descent_tensor_info tensor;
    for (size_t i = 0; descent_model_tensor(r->model, i, &tensor); i++)
        if (!strcmp(tensor.type, type)) return true;
    return false;
}

/* The next line of the engine's table that is of the model's weights or of the pages asked for; *i moves past it. */
static bool next_path(const report *r, size_t *i, descent_path *path)
{
    while (descent_path_at((*i)++, path))
        if (path->pages ? !strcmp(path->numbers, page_type_names[r->page_type]) : has_type(r, path->numbers)) return true;
    return false;
}

static void print_paths(const report *r)
{
    descent_path path;
    print_heading("Products");
    printf("  %-8s %-6s %-36s %-34s %s\n", "of", "type", "arithmetic", "one row", "several rows");
    for (size_t i = 0; next_path(r, &i, &path);)
        printf("  %-8s %-6s %-36s %-34s %s\n", path.pages ? "history" : "weights", path.numbers, path.arithmetic, path.one,
               path.several);
}

static void print_memory(const report *r)
{
    char label[96], depth[16];
    print_heading("Memory");
    print_bytes("file", r->info->file_bytes);
    print_bytes("model, loaded", r->info->resident_bytes);
    print_bytes("history", r->history_bytes);
    snprintf(label, sizeof label, "%" PRIu32 " tokens at T = %s, %s pages", r->context,
             descent_depth_format(r->model, r->depth, depth), page_type_names[r->page_type]);
    printf("  %-18s %s\n", "", label);
}

static void print_text(const report *r)
{
    printf("%s%s%s\n", terminal_style_on(stdout, STYLE_BOLD), r->path, terminal_style_on(stdout, STYLE_PLAIN));
    print_model(r);
    print_tokenizer(r);
    print_contents(r);
    print_paths(r);
    print_memory(r);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

/* Text that a file or a path gave, which need not be UTF-8: what is not ASCII becomes "?" then. */
static json_t *text_json(const char *text)
{
    json_t *exact = json_string(text);
    if (exact) return exact;
    text_buffer ascii = {.bytes = NULL};
    for (const char *c = text; *c; c++)
        if (!text_append(&ascii, (unsigned char)*c < 0x80 ? c : "?", 1)) break;
    json_t *replaced = ascii.bytes ? json_string(ascii.bytes) : NULL;
    text_buffer_release(&ascii);
    return replaced;
}

static json_t *depth_json(const report *r, descent_depth depth)
{
    json_t *object = json_object();
    for (uint32_t k = 0; k < r->info->kinds; k++)
        json_object_set_new(object, r->info->kind_names[k], json_integer(depth.steps[k]));
    return object;
}

static json_t *tokenizer_json(const report *r)
{
    const descent_tokenizer_info *t = r->tokenizer;
    if (!t) return json_null();
    return json_pack("{ss sI sI sI sI sI sb sb}", "model", t->model, "vocab", (json_int_t)t->vocab, "bos", (json_int_t)t->bos,
                     "eos", (json_int_t)t->eos, "pad", (json_int_t)t->pad, "unknown", (json_int_t)t->unknown, "adds_bos",
                     t->adds_bos, "adds_eos", t->adds_eos);
}

static json_t *metadata_json(const report *r)
{
    char value[VALUE_SIZE];
    const char *key;
    json_t *object = json_object();
    for (size_t i = 0; descent_model_metadata(r->model, i, &key, value, sizeof value); i++)
        json_object_set_new(object, key, text_json(value));
    return object;
}

static json_t *tensors_json(const report *r)
{
    descent_tensor_info tensor;
    json_t *list = json_array();
    for (size_t i = 0; descent_model_tensor(r->model, i, &tensor); i++) {
        json_t *shape = json_array();
        for (uint32_t d = 0; d < tensor.n_dims; d++) json_array_append_new(shape, json_integer((json_int_t)tensor.dims[d]));
        json_array_append_new(list, json_pack("{so ss so sI}", "name", text_json(tensor.name), "type", tensor.type, "shape",
                                              shape, "bytes", (json_int_t)tensor.bytes));
    }
    return list;
}

static json_t *paths_json(const report *r)
{
    descent_path path;
    json_t *list = json_array();
    for (size_t i = 0; next_path(r, &i, &path);)
        json_array_append_new(list,
                              json_pack("{ss ss ss ss ss}", "of", path.pages ? "history" : "weights", "type", path.numbers,
                                        "arithmetic", path.arithmetic, "one_row", path.one, "several_rows", path.several));
    return list;
}

static int print_json(const report *r)
{
    const descent_model_info *info = r->info;
    char fingerprint[17];
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, info->fingerprint);
    json_t *history = r->history_bytes <= INT64_MAX ? json_integer((json_int_t)r->history_bytes) : json_null();
    json_t *memory = json_pack("{sI sI sI so ss so}", "file_bytes", (json_int_t)info->file_bytes, "resident_bytes",
                               (json_int_t)info->resident_bytes, "context", (json_int_t)r->context, "steps",
                               depth_json(r, r->depth), "page_type", page_type_names[r->page_type], "history_bytes", history);
    json_t *object = json_pack(
        "{so so ss ss ss sI ss sI sI sI sI so sb ss so so so so so}", "file", text_json(r->path), "name", text_json(info->name),
        "family", info->family, "variant", info->variant, "weight_type", info->weight_type, "parameters",
        (json_int_t)info->parameters, "fingerprint", fingerprint, "width", (json_int_t)info->width, "vocab",
        (json_int_t)info->vocab, "context", (json_int_t)info->context, "layers", (json_int_t)info->layers, "trained_steps",
        depth_json(r, info->trained), "deepens", info->deepens, "isa", descent_isa(), "tokenizer", tokenizer_json(r),
        "metadata", metadata_json(r), "tensors", tensors_json(r), "products", paths_json(r), "memory", memory);
    return json_output(object, 9);
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

int command_info(int argc, char **argv)
{
    const char *steps = NULL;
    int64_t context = 0;
    int page_type = DESCENT_PAGE_F32;
    bool json = false;
    cli_option table[] = {
        cli_integer('c', "context", &context, 1, UINT32_MAX, "tokens of the sequence; the model's context by default"),
        cli_text('T', "steps", "T", &steps, "recursion depth, 12 or 3x2; the trained depth by default"),
        cli_choice(0, "page-type", &page_type, page_type_names, "numbers the history is kept in"),
        cli_flag(0, "json", &json, "write one JSON object instead of text"),
    };
    cli_arguments arguments;
    cli_outcome outcome = cli_parse(&info_command, table, sizeof table / sizeof *table, argc, argv, &arguments);
    if (outcome != CLI_RUN) return outcome == CLI_HELP ? EXIT_SUCCESS : EXIT_USAGE;

    descent_status status;
    descent_model *model;
    report r = {.path = arguments.positional[0], .page_type = (descent_page_type)page_type};
    if (descent_model_open(r.path, &model, &status) != DESCENT_OK) {
        cli_error("%s", status.message);
        return EXIT_FAILURE;
    }
    r.model = model;
    r.info = descent_model_describe(model);
    const descent_tokenizer *tokenizer = descent_model_tokenizer(model);
    r.tokenizer = tokenizer ? descent_tokenizer_describe(tokenizer) : NULL;
    int exit_code = read_depth(&info_command, model, steps, &r.depth);
    if (exit_code == EXIT_SUCCESS && context > r.info->context)
        exit_code = cli_usage_error(&info_command, "--context must be at most the %" PRIu32 " of the model, got %" PRId64,
                                    r.info->context, context);
    r.context = context ? (uint32_t)context : r.info->context;
    descent_sequence_options kept = {.depth = r.depth};
    r.history_bytes = descent_cache_bytes_needed(model, r.page_type, r.context, &kept);
    if (exit_code == EXIT_SUCCESS && json)
        exit_code = print_json(&r);
    else if (exit_code == EXIT_SUCCESS)
        print_text(&r);
    descent_model_close(model);
    return exit_code;
}
