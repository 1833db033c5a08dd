/* interactive.c: the dialogue of `descent run` on a terminal: every line is a prompt, lines that begin with / are commands.
 * Prompts that begin alike find each other's pages in the cache, so saying the same again at another T is quick. */
#include "run.h"

#include "terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct dialogue {
    const session *with;
    const completion_options *given; /* by the command line */
    completion_options options;
    int encode_flags;
    bool over;
} dialogue;

/* ---- Commands ---------------------------------------------------------------------------------------------------- */

static void tell_options(const dialogue *talk)
{
    char depth[16];
    descent_depth_format(talk->with->model, talk->options.depth, depth);
    fprintf(stderr, "T = %s, temperature %g, seed %" PRId64 ", max tokens ", depth, (double)talk->options.sampling.temperature,
            talk->options.sampling.seed);
    if (talk->options.most)
        fprintf(stderr, "%zu", talk->options.most);
    else
        fputs("the rest of the context", stderr);
    fprintf(stderr, ", trace %s\n", talk->options.trace ? "on" : "off");
}

static void set_steps(dialogue *talk, const char *value)
{
    descent_status status;
    if (descent_depth_parse(talk->with->model, value, &talk->options.depth, &status) != DESCENT_OK)
        cli_error("/steps: %s", status.message);
}

static void set_seed(dialogue *talk, const char *value)
{
    if (!cli_read_integer(value, INT64_MIN, INT64_MAX, &talk->options.sampling.seed))
        cli_error("/seed must be an integer, got \"%s\"", value);
}

static void set_temperature(dialogue *talk, const char *value)
{
    descent_status status;
    descent_sampling sampling = talk->options.sampling;
    double number;
    if (!cli_read_real(value, &number)) {
        cli_error("/temperature must be a number of at least 0, got \"%s\"", value);
        return;
    }
    sampling.temperature = (float)number;
    if (descent_sampling_check(&sampling, talk->with->info->vocab, &status) == DESCENT_OK)
        talk->options.sampling = sampling;
    else
        cli_error("/temperature: %s", status.message);
}

static void set_most(dialogue *talk, const char *value)
{
    int64_t most;
    if (cli_read_integer(value, 0, UINT32_MAX, &most))
        talk->options.most = (size_t)most;
    else
        cli_error("/max-tokens must be an integer of at least 0, got \"%s\"", value);
}

static void toggle_trace(dialogue *talk, const char *value)
{
    (void)value;
    talk->options.trace = !talk->options.trace;
}

static void reset(dialogue *talk, const char *value)
{
    (void)value;
    talk->options = *talk->given;
}

static void quit(dialogue *talk, const char *value)
{
    (void)value;
    talk->over = true;
}

static void help(dialogue *talk, const char *value);

static const struct dialogue_command {
    const char *name, *value, *help;
    void (*run)(dialogue *talk, const char *value);
} dialogue_commands[] = {
    {"steps", "T", "recursion depth from now on, such as 12 or 3x2", set_steps},
    {"seed", "N", "the next texts are drawn with this seed", set_seed},
    {"temperature", "X", "0: always the likeliest token", set_temperature},
    {"max-tokens", "N", "tokens to generate; 0: the rest of the context", set_most},
    {"trace", NULL, "switch the table of energies on or off", toggle_trace},
    {"reset", NULL, "all options as the command line gave them", reset},
    {"help", NULL, "this text", help},
    {"quit", NULL, "leave; so does Ctrl-D", quit},
};

enum { N_COMMANDS = sizeof dialogue_commands / sizeof *dialogue_commands };

static void help(dialogue *talk, const char *value)
{
    (void)value;
    fputs("Every line is a prompt. One that ends in \\ goes on in the next line; // begins a prompt with a slash.\n"
          "Ctrl-C stops a text.\n",
          stderr);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(stderr, "  /%-12s%-3s %s\n", dialogue_commands[i].name,
                dialogue_commands[i].value ? dialogue_commands[i].value : "", dialogue_commands[i].help);
    tell_options(talk);
}

static void obey(dialogue *talk, char *line)
{
    char *value = line + strcspn(line, " \t\n");
    if (*value) *value++ = '\0';
    value += strspn(value, " \t");
    value[strcspn(value, " \t\n")] = '\0';
    const char *names[N_COMMANDS];
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const struct dialogue_command *command = &dialogue_commands[i];
        names[i] = command->name;
        if (strcmp(line, command->name)) continue;
        if (command->value && !*value)
            cli_error("/%s needs a value", command->name);
        else
            command->run(talk, value);
        if (command->run != quit && command->run != help) tell_options(talk);
        return;
    }
    const char *nearest = cli_nearest(line, names, N_COMMANDS);
    cli_error("unknown command /%s; %s%s", line, nearest ? "did you mean /" : "/help lists them", nearest ? nearest : "");
}

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

static void answer(dialogue *talk, const char *text, size_t length)
{
    uint32_t *tokens = NULL;
    size_t count = 0;
    completion done;
    if (session_encode(talk->with, "the prompt", text, length, talk->encode_flags, &tokens, &count) != EXIT_SUCCESS) return;
    if (completion_check_prompt(talk->with, count) == EXIT_SUCCESS) {
        complete(talk->with, &talk->options, tokens, count, &done);
        if (!done.text.length || done.text.bytes[done.text.length - 1] != '\n') putchar('\n');
        output_flush();
        if (talk->options.trace) trace_print(&done.steps, talk->with, done.tokens, done.count, stderr);
        completion_print_summary(talk->with, &talk->options, &done);
        completion_release(&done);
    }
    descent_free(tokens);
}

/* Reads one prompt, which goes on over lines that end in a backslash. False at the end of the input; `prompt` is empty
 * after Ctrl-C. */
static bool read_line(text_buffer *prompt, char **line, size_t *room)
{
    prompt->length = 0;
    for (const char *mark = "> ";; mark = "| ") {
        fputs(mark, stderr);
        fflush(stderr);
        if (!interruption_or_input(stdin)) {
            prompt->length = 0;
            return true;
        }
        errno = 0;
        ssize_t got = getline(line, room, stdin);
        if (got < 0 && errno == EINTR) { /* part of a line was there when Ctrl-C came */
            clearerr(stdin);
            prompt->length = 0;
            return true;
        }
        if (got < 0) return false;
        if (got && (*line)[got - 1] == '\n') got--;
        bool more = got && (*line)[got - 1] == '\\';
        if (more) (*line)[got - 1] = '\n';
        if (!text_append(prompt, *line, (size_t)got)) return false;
        if (!more) return true;
    }
}

int run_interactive(const session *with, const completion_options *options, int encode_flags)
{
    dialogue talk = {.with = with, .given = options, .options = *options, .encode_flags = encode_flags};
    text_buffer prompt = {.bytes = NULL};
    char *line = NULL;
    size_t room = 0;
    fprintf(stderr, "%s: %s, trained at T = ", with->info->name, with->info->variant);
    char depth[16];
    fprintf(stderr, "%s. Every line is a prompt; /help lists commands.\n",
            descent_depth_format(with->model, with->info->trained, depth));
    interruption_watch();
    while (!talk.over && output_flush()) {
        interruption_clear();
        if (interrupted() || !read_line(&prompt, &line, &room)) break;
        if (interrupted())
            fputc('\n', stderr);
        else if (!prompt.length)
            continue;
        else if (prompt.bytes[0] != '/')
            answer(&talk, prompt.bytes, prompt.length);
        else if (prompt.length > 1 && prompt.bytes[1] == '/')
            answer(&talk, prompt.bytes + 1, prompt.length - 1);
        else
            obey(&talk, prompt.bytes + 1);
    }
    if (!talk.over) fputc('\n', stderr);
    free(line);
    text_buffer_release(&prompt);
    return interrupted() ? EXIT_INTERRUPTED : EXIT_SUCCESS;
}
