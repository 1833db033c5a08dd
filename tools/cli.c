/* cli.c: reading a command line by a table of options, and printing the same table as help. Owns nothing but the items
 * of repeated options. Every command calls cli_parse once; main.c uses cli_nearest for the name of the command itself. */
#include "cli.h"

#include "terminal.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Options ---------------------------------------------------------------------------------------------------- */

cli_option cli_flag(char letter, const char *name, bool *to, const char *help)
{
    return (cli_option){.kind = CLI_FLAG, .letter = letter, .name = name, .help = help, .to.flag = to};
}

cli_option cli_text(char letter, const char *name, const char *value_name, const char **to, const char *help)
{
    return (cli_option){
        .kind = CLI_TEXT, .letter = letter, .name = name, .value_name = value_name, .help = help, .to.text = to};
}

cli_option cli_repeated(char letter, const char *name, const char *value_name, cli_list *to, const char *help)
{
    return (cli_option){
        .kind = CLI_LIST, .letter = letter, .name = name, .value_name = value_name, .help = help, .to.list = to};
}

cli_option cli_integer(char letter, const char *name, int64_t *to, int64_t low, int64_t high, const char *help)
{
    return (cli_option){.kind = CLI_INTEGER,
                        .letter = letter,
                        .name = name,
                        .value_name = "N",
                        .help = help,
                        .to.integer = to,
                        .low = low,
                        .high = high};
}

cli_option cli_real(char letter, const char *name, double *to, double low, double high, const char *help)
{
    return (cli_option){.kind = CLI_REAL,
                        .letter = letter,
                        .name = name,
                        .value_name = "X",
                        .help = help,
                        .to.real = to,
                        .real_low = low,
                        .real_high = high};
}

cli_option cli_real_above(char letter, const char *name, double *to, double low, double high, const char *help)
{
    cli_option option = cli_real(letter, name, to, low, high, help);
    option.open_low = true;
    return option;
}

cli_option cli_bytes(char letter, const char *name, uint64_t *to, const char *help)
{
    return (cli_option){.kind = CLI_BYTES, .letter = letter, .name = name, .value_name = "SIZE", .help = help, .to.bytes = to};
}

cli_option cli_choice(char letter, const char *name, int *to, const char *const *choices, const char *help)
{
    return (cli_option){.kind = CLI_CHOICE,
                        .letter = letter,
                        .name = name,
                        .value_name = "NAME",
                        .help = help,
                        .to.choice = to,
                        .choices = choices};
}

cli_option cli_defaulted(cli_option option)
{
    option.shows_default = true;
    return option;
}

/* ---- Messages --------------------------------------------------------------------------------------------------- */

void cli_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("descent: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

int cli_usage_error(const cli_command *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "descent: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\nSee descent %s --help.\n", command->name);
    va_end(arguments);
    return EXIT_USAGE;
}

/* Levenshtein distance of two short words; words longer than the row are simply far. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[33];
    size_t m = strlen(b);
    if (strlen(a) > 32 || m > 32) return 33;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

const char *cli_nearest(const char *word, const char *const *names, size_t count)
{
    const char *nearest = NULL;
    size_t least = strlen(word) <= 2 ? 2 : 3; /* two letters that changed places are two edits */
    for (size_t i = 0; i < count; i++) {
        size_t distance = edit_distance(word, names[i]);
        if (distance < least && distance < strlen(names[i])) {
            least = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

/* ---- Values ----------------------------------------------------------------------------------------------------- */

bool cli_read_integer(const char *text, int64_t low, int64_t high, int64_t *value)
{
    char *end;
    if (!isdigit((unsigned char)*text) && *text != '-') return false;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno || number < low || number > high) return false;
    *value = number;
    return true;
}

bool cli_read_real(const char *text, double *value)
{
    char *end;
    if (isspace((unsigned char)*text) || strpbrk(text, "xX")) return false;
    double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number)) return false;
    *value = number;
    return true;
}

static bool read_bytes(const char *text, uint64_t *value)
{
    static const char units[] = "KMGTP";
    char *end;
    if (!isdigit((unsigned char)*text)) return false;
    double number = strtod(text, &end);
    if (*end && *end != 'B') {
        const char *unit = strchr(units, toupper((unsigned char)*end));
        if (!unit) return false;
        number = ldexp(number, 10 * (int)(unit - units + 1));
        end++;
        if (*end == 'i') end++;
    }
    if (*end == 'B') end++;
    if (*end || !(number >= 1) || number >= 0x1p63) return false;
    *value = (uint64_t)number;
    return true;
}

/* What an option accepts, for help and for messages: "an integer from 1 to 65535". Empty for text. */
static void describe_allowed(const cli_option *option, char *text, size_t size)
{
    text[0] = '\0';
    switch (option->kind) {
    case CLI_INTEGER:
        if (option->high == INT64_MAX && option->low == INT64_MIN)
            snprintf(text, size, "an integer");
        else if (option->high == INT64_MAX)
            snprintf(text, size, "an integer of at least %" PRId64, option->low);
        else
            snprintf(text, size, "an integer from %" PRId64 " to %" PRId64, option->low, option->high);
        break;
    case CLI_REAL:
        if (isinf(option->real_low) && isinf(option->real_high))
            snprintf(text, size, "a number");
        else if (isinf(option->real_high))
            snprintf(text, size, "a number %s %g", option->open_low ? "above" : "of at least", option->real_low);
        else if (option->open_low)
            snprintf(text, size, "a number above %g, at most %g", option->real_low, option->real_high);
        else
            snprintf(text, size, "a number from %g to %g", option->real_low, option->real_high);
        break;
    case CLI_BYTES:
        snprintf(text, size, "a number of bytes such as 4096, 512M or 2G");
        break;
    case CLI_CHOICE:
        for (size_t i = 0, used = 0; option->choices[i] && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " or " : "", option->choices[i]);
        break;
    case CLI_FLAG:
    case CLI_TEXT:
    case CLI_LIST:
        break;
    }
}

static bool append(cli_list *list, const char *value)
{
    const char **items = realloc(list->items, (list->count + 2) * sizeof *items);
    if (!items) return false;
    items[list->count++] = value;
    items[list->count] = NULL;
    list->items = items;
    return true;
}

static bool store(const cli_option *option, const char *value)
{
    switch (option->kind) {
    case CLI_FLAG:
        *option->to.flag = true;
        return true;
    case CLI_TEXT:
        *option->to.text = value;
        return true;
    case CLI_LIST:
        return append(option->to.list, value);
    case CLI_INTEGER:
        return cli_read_integer(value, option->low, option->high, option->to.integer);
    case CLI_BYTES:
        return read_bytes(value, option->to.bytes);
    case CLI_REAL: {
        double number;
        if (!cli_read_real(value, &number) || number < option->real_low || number > option->real_high ||
            (option->open_low && number <= option->real_low))
            return false;
        *option->to.real = number;
        return true;
    }
    case CLI_CHOICE:
        for (int i = 0; option->choices[i]; i++) {
            if (strcmp(value, option->choices[i])) continue;
            *option->to.choice = i;
            return true;
        }
        return false;
    }
    return false;
}

/* ---- Parsing ---------------------------------------------------------------------------------------------------- */

/* One command line being read: argument `next` is the first not yet looked at. */
typedef struct reader {
    const cli_command *command;
    const cli_option *options;
    size_t n_options;
    int argc, next;
    char **argv;
} reader;

/* Stores the value of an option: `attached` where it came in the same argument, the next argument otherwise. */
static bool take_value(reader *in, const cli_option *option, const char *attached, const char *spelled)
{
    char allowed[160];
    const char *value = attached;
    describe_allowed(option, allowed, sizeof allowed);
    if (option->kind == CLI_FLAG) {
        if (!attached) return store(option, NULL);
        cli_usage_error(in->command, "%s takes no value, got \"%s\"", spelled, attached);
        return false;
    }
    if (!value && in->next < in->argc) value = in->argv[in->next++];
    if (!value) {
        cli_usage_error(in->command, "%s needs a value%s%s", spelled, *allowed ? ": " : "", allowed);
        return false;
    }
    if (store(option, value)) return true;
    cli_usage_error(in->command, "%s must be %s, got \"%s\"", spelled, allowed, value);
    return false;
}

static bool take_long(reader *in, const char *argument)
{
    char spelled[64];
    const char *equals = strchr(argument, '=');
    size_t length = equals ? (size_t)(equals - argument) : strlen(argument);
    const char *names[64] = {0};
    for (size_t i = 0; i < in->n_options; i++) {
        const cli_option *option = &in->options[i];
        if (i < 64) names[i] = option->name;
        if (strlen(option->name) != length || strncmp(option->name, argument, length)) continue;
        snprintf(spelled, sizeof spelled, "--%s", option->name);
        return take_value(in, option, equals ? equals + 1 : NULL, spelled);
    }
    snprintf(spelled, sizeof spelled, "%.*s", (int)(length < 60 ? length : 60), argument);
    const char *nearest = cli_nearest(spelled, names, in->n_options < 64 ? in->n_options : 64);
    if (nearest)
        cli_usage_error(in->command, "unknown option --%s; did you mean --%s?", spelled, nearest);
    else
        cli_usage_error(in->command, "unknown option --%s", spelled);
    return false;
}

/* A cluster of short options; the first that takes a value takes the rest of the argument. */
static bool take_short(reader *in, const char *letters)
{
    while (*letters) {
        const cli_option *option = NULL;
        for (size_t i = 0; i < in->n_options && !option; i++)
            if (in->options[i].letter == *letters) option = &in->options[i];
        if (!option) {
            cli_usage_error(in->command, "unknown option -%c", isprint((unsigned char)*letters) ? *letters : '?');
            return false;
        }
        char spelled[3] = {'-', *letters++, '\0'};
        if (option->kind != CLI_FLAG) return take_value(in, option, *letters ? letters : NULL, spelled);
        if (!take_value(in, option, NULL, spelled)) return false;
    }
    return true;
}

static void print_help(const cli_command *command, const cli_option *options, size_t n_options);

cli_outcome cli_parse(const cli_command *command, const cli_option *options, size_t n_options, int argc, char **argv,
                      cli_arguments *arguments)
{
    reader in = {.command = command, .options = options, .n_options = n_options, .argc = argc, .next = 1, .argv = argv};
    bool only_positionals = false;
    *arguments = (cli_arguments){.count = 0};
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (strcmp(argv[i], "--help") && strcmp(argv[i], "-h")) continue;
        print_help(command, options, n_options);
        return CLI_HELP;
    }
    while (in.next < argc) {
        const char *argument = argv[in.next++];
        if (!only_positionals && !strcmp(argument, "--")) {
            only_positionals = true;
        } else if (!only_positionals && argument[0] == '-' && argument[1] == '-') {
            if (!take_long(&in, argument + 2)) return CLI_WRONG;
        } else if (!only_positionals && argument[0] == '-' && argument[1]) {
            if (!take_short(&in, argument + 1)) return CLI_WRONG;
        } else if (arguments->count < command->most) {
            arguments->positional[arguments->count++] = argument;
        } else {
            cli_usage_error(command, "unexpected argument \"%s\": %s takes %s", argument, command->name, command->positional);
            return CLI_WRONG;
        }
    }
    if (arguments->count < command->least) {
        cli_usage_error(command, "an argument is missing: %s takes %s", command->name, command->positional);
        return CLI_WRONG;
    }
    return CLI_RUN;
}

/* ---- Help ------------------------------------------------------------------------------------------------------- */

/* Prints text from column `column` on, broken at spaces before `width`; the cursor stands at the column already. */
static void print_wrapped(const char *text, int column, int width)
{
    int at = column;
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (at > column && at + 1 + word > width) {
            printf("\n%*s", column, "");
            at = column;
        }
        at += printf("%s%.*s", at > column ? " " : "", word, text);
        text += word;
        while (*text == ' ') text++;
    }
    putchar('\n');
}

/* The value before parsing, as it would be given. */
static void describe_default(const cli_option *option, char *text, size_t size)
{
    static const char units[] = "KMGTP";
    switch (option->kind) {
    case CLI_INTEGER:
        snprintf(text, size, "%" PRId64, *option->to.integer);
        break;
    case CLI_REAL:
        snprintf(text, size, "%g", *option->to.real);
        break;
    case CLI_BYTES: {
        uint64_t number = *option->to.bytes;
        size_t unit = 0;
        for (; unit < sizeof units - 1 && number && number % 1024 == 0; unit++) number /= 1024;
        snprintf(text, size, "%" PRIu64 "%.*s", number, unit ? 1 : 0, unit ? &units[unit - 1] : "");
        break;
    }
    case CLI_CHOICE:
        snprintf(text, size, "%s", option->choices[*option->to.choice]);
        break;
    case CLI_TEXT:
        snprintf(text, size, "%s", *option->to.text ? *option->to.text : "none");
        break;
    case CLI_FLAG:
    case CLI_LIST:
        snprintf(text, size, "off");
        break;
    }
}

static void print_option(const cli_option *option, int width)
{
    enum { column = 32 };
    char left[64], text[512];
    int used = snprintf(left, sizeof left, "  %c%c%c --%s%s%s", option->letter ? '-' : ' ',
                        option->letter ? option->letter : ' ', option->letter ? ',' : ' ', option->name,
                        option->value_name ? " " : "", option->value_name ? option->value_name : "");
    printf("%-*s", column, left);
    if (used >= column - 1) printf("\n%*s", column, "");
    char allowed[160], usual[64] = "";
    describe_allowed(option, allowed, sizeof allowed);
    if (option->shows_default) describe_default(option, usual, sizeof usual);
    snprintf(text, sizeof text, "%s%s%s%s%s%s%s", option->help, *allowed || *usual ? " (" : "", allowed,
             *allowed && *usual ? "; " : "", *usual ? "default " : "", usual, *allowed || *usual ? ")" : "");
    print_wrapped(text, column, width);
}

static void print_help(const cli_command *command, const cli_option *options, size_t n_options)
{
    int width = terminal_width(stdout);
    if (width > 100) width = 100;
    printf("usage: descent %s %s [options]\n\n", command->name, command->positional);
    print_wrapped(command->summary, 0, width);
    printf("\nOptions:\n");
    for (size_t i = 0; i < n_options; i++) print_option(&options[i], width);
    printf("  -h, --help                    this text\n");
    for (const char *notes = command->notes; notes; notes = *notes ? notes + 1 : NULL) {
        char paragraph[512];
        size_t length = strcspn(notes, "\n");
        snprintf(paragraph, sizeof paragraph, "%.*s", (int)length, notes);
        putchar('\n');
        print_wrapped(paragraph, 0, width);
        notes += length;
    }
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

void cli_keep_memory(void)
{
#ifdef __GLIBC__
    enum { KEPT = 16 << 20, ASKED_AT_ONCE = 1 << 20, MAPPED_FROM = 4 << 20 };
    (void)mallopt(M_TRIM_THRESHOLD, KEPT);
    (void)mallopt(M_TOP_PAD, ASKED_AT_ONCE);
    (void)mallopt(M_MMAP_THRESHOLD, MAPPED_FROM); /* which is found by itself only where the others are */
#endif
}
