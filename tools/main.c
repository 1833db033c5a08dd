/* main.c: `descent` itself: finds the subcommand, and answers --help and --version. Everything else is in the
 * subcommand's file. */
#include "cli.h"
#include "commands.h"
#include "terminal.h"

#include "descent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct subcommand {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} subcommand;

static const subcommand subcommands[] = {
    {"serve", "answer OpenAI's API over HTTP, with a recursion depth in each request", command_serve},
    {"run", "continue a text, at a recursion depth of your choice", command_run},
    {"eval", "loss, perplexity and bits per byte over a text, or exact match over questions", command_eval},
    {"trace", "the descent of every token of a text: energies, slopes, guesses at every step", command_trace},
    {"scale", "what the recursion depth buys on your data, with intervals and pictures", command_scale},
    {"info", "what is in a model file and what memory it takes", command_info},
    {"quantize", "write a model again in a smaller type", command_quantize},
    {"bench", "what a model takes on this machine, and what a server adds", command_bench},
};

enum { N_SUBCOMMANDS = sizeof subcommands / sizeof *subcommands };

static void print_usage(FILE *to)
{
    fprintf(to, "usage: descent COMMAND [arguments]\n\n"
                "Inference for energy-based language models: texts come out of a descent on an energy, and the\n"
                "number of its steps, T, is yours to choose.\n\nCommands:\n");
    for (size_t i = 0; i < N_SUBCOMMANDS; i++) fprintf(to, "  %-8s %s\n", subcommands[i].name, subcommands[i].summary);
    fprintf(to, "\n`descent COMMAND --help` lists a command's options, `descent --version` prints the version.\n");
}

static const subcommand *find(const char *name)
{
    for (size_t i = 0; i < N_SUBCOMMANDS; i++)
        if (!strcmp(name, subcommands[i].name)) return &subcommands[i];
    return NULL;
}

static int refuse(const char *name)
{
    const char *names[N_SUBCOMMANDS];
    for (size_t i = 0; i < N_SUBCOMMANDS; i++) names[i] = subcommands[i].name;
    const char *nearest = cli_nearest(name, names, N_SUBCOMMANDS);
    if (nearest)
        cli_error("unknown command \"%s\"; did you mean \"%s\"?", name, nearest);
    else
        cli_error("unknown command \"%s\"; descent --help lists the commands", name);
    return EXIT_USAGE;
}

static int dispatch(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(name, "--version")) {
        printf("descent %s (%s)\n", descent_version(), descent_isa());
        return EXIT_SUCCESS;
    }
    if (!strcmp(name, "help") && argc == 3) {
        const subcommand *command = find(argv[2]);
        char help[] = "--help";
        char *arguments[] = {argv[2], help, NULL};
        return command ? command->run(2, arguments) : refuse(argv[2]);
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        print_usage(stdout);
        return EXIT_SUCCESS;
    }
    const subcommand *command = find(name);
    return command ? command->run(argc - 1, argv + 1) : refuse(name);
}

int main(int argc, char **argv)
{
    output_open();
    return output_close(dispatch(argc, argv));
}
