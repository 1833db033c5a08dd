/* cli.h: what a command line may say, as one table per command that both reads it and prints its --help.
 *
 * A command's function fills an array of cli_option with the constructors below, each pointing at the variable it sets
 * (whose value before parsing is the default), and calls cli_parse. Long options take their value as --name=value or as
 * the next argument, short ones as -n4 or -n 4; everything after -- is positional, and so is a lone "-".
 */
#ifndef DESCENT_TOOLS_CLI_H
#define DESCENT_TOOLS_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

typedef enum cli_kind { CLI_FLAG, CLI_TEXT, CLI_LIST, CLI_INTEGER, CLI_REAL, CLI_BYTES, CLI_CHOICE } cli_kind;

/* The values of an option that may come several times, in order, owned by argv; items is NULL, or ends with a NULL. */
typedef struct cli_list {
    const char **items;
    size_t count;
} cli_list;

typedef struct cli_option {
    cli_kind kind;
    char letter;      /* 0: no short form */
    const char *name; /* without dashes */
    const char *value_name;
    const char *help;
    union {
        bool *flag;
        const char **text;
        cli_list *list;
        int64_t *integer;
        double *real;
        uint64_t *bytes;
        int *choice;
    } to;
    int64_t low, high;          /* CLI_INTEGER, inclusive */
    double real_low, real_high; /* CLI_REAL, inclusive unless open_low */
    bool open_low;
    const char *const *choices; /* CLI_CHOICE: NULL-terminated; *to.choice becomes the index */
    bool shows_default;         /* --help prints the value it has before parsing */
} cli_option;

cli_option cli_flag(char letter, const char *name, bool *to, const char *help);
cli_option cli_text(char letter, const char *name, const char *value_name, const char **to, const char *help);
/* The caller releases to->items with free. */
cli_option cli_repeated(char letter, const char *name, const char *value_name, cli_list *to, const char *help);
cli_option cli_integer(char letter, const char *name, int64_t *to, int64_t low, int64_t high, const char *help);
cli_option cli_real(char letter, const char *name, double *to, double low, double high, const char *help);
/* As cli_real, `low` itself not allowed. */
cli_option cli_real_above(char letter, const char *name, double *to, double low, double high, const char *help);
/* A number of bytes: 4096, 512M, 1.5G (powers of 1024). */
cli_option cli_bytes(char letter, const char *name, uint64_t *to, const char *help);
cli_option cli_choice(char letter, const char *name, int *to, const char *const *choices, const char *help);
/* The same option, whose default --help prints. */
cli_option cli_defaulted(cli_option option);

typedef struct cli_command {
    const char *name;       /* "run" */
    const char *positional; /* as --help shows it: "MODEL [PROMPT]" */
    const char *summary;    /* one sentence */
    const char *notes;      /* paragraphs after the options, a newline between them; may be NULL */
    size_t least, most;     /* positionals; most at most CLI_MAX_POSITIONALS */
} cli_command;

enum { CLI_MAX_POSITIONALS = 64 };

typedef struct cli_arguments {
    const char *positional[CLI_MAX_POSITIONALS]; /* owned by argv, NULL where not given */
    size_t count;
} cli_arguments;

typedef enum cli_outcome { CLI_RUN, CLI_HELP, CLI_WRONG } cli_outcome;

/* Reads argv[1..]. CLI_HELP: --help was asked for and printed. CLI_WRONG: a message is on stderr, exit with EXIT_USAGE. */
cli_outcome cli_parse(const cli_command *command, const cli_option *options, size_t n_options, int argc, char **argv,
                      cli_arguments *arguments);

/* The first `digits` of text as an integer in [low, high], nothing else around it. */
bool cli_read_integer(const char *text, int64_t low, int64_t high, int64_t *value);
/* A finite number, nothing else around it. */
bool cli_read_real(const char *text, double *value);

/* The name nearest to `word` among `names`, or NULL where none is near enough to be what was meant. */
const char *cli_nearest(const char *word, const char *const *names, size_t count);

/* For commands that run long, to be called first: freed memory stays with the process, some megabytes a thread. The C
 * library would give it back after every text and ask for it again, which interrupts all threads. */
void cli_keep_memory(void);

/* "descent: " and the message, on stderr. */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for a mistake in the command line; returns EXIT_USAGE. */
int cli_usage_error(const cli_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
