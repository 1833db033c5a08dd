/* run.c: `descent run`: options, where the prompt comes from, and what becomes of the completion (text on stdout, its
 * figures on stderr, or one JSON object). The generation itself is completion.c, the dialogue interactive.c. */
#include "run.h"

#include "commands.h"
#include "json_output.h"
#include "motion.h"
#include "terminal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const cli_command run_command = {
    .name = "run",
    .positional = "MODEL [PROMPT]",
    .summary = "Continues PROMPT with the model in the GGUF file MODEL and writes the continuation to standard output.",
    .notes = "The prompt is PROMPT, the file of --file, or standard input where that is no terminal. With none of them, "
             "on a terminal, every line you type is a prompt; /help there tells more.\n"
             "Exit codes: 0, 1 on failure, 2 for a mistake in the options, 130 after Ctrl-C (what was written stays).",
    .least = 1,
    .most = 2,
};

enum { PROMPT_LIMIT = 64 << 20 };

/* The options as read, before a model can check them. */
typedef struct run_options {
    session_options session;
    motion_options motion;
    const char *file, *tokens, *steps, *exit, *draft_steps, *choose;
    cli_list stop, bias;
    int64_t most, top_k, min_tokens, seed;
    double temperature, top_p, min_p, typical_p, repetition, presence, frequency;
    bool ignore_eos, parse_special, echo, trace, json;
} run_options;

static int64_t random_seed(void)
{
    uint64_t bits = 0;
    FILE *source = fopen("/dev/urandom", "rb");
    if (!source || fread(&bits, sizeof bits, 1, source) != 1)
        bits = (uint64_t)time(NULL) * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid();
    if (source) fclose(source);
    return (int64_t)(bits >> 33); /* short enough to be typed again */
}

static void set_defaults(run_options *o)
{
    descent_sampling sampling = descent_sampling_defaults();
    *o = (run_options){.session = {.chunk = 512},
                       .draft_steps = "auto",
                       .most = 0,
                       .top_k = 0,
                       .seed = random_seed(),
                       .temperature = (double)sampling.temperature,
                       .top_p = 1,
                       .typical_p = 1,
                       .repetition = 1};
}

enum { RUN_OPTIONS = 24 };

static void run_option_table(run_options *o, cli_option *table)
{
    size_t i = 0;
    table[i++] = cli_text('T', "steps", "T", &o->steps,
                          "recursion depth: 12, or 3x2 for attention x MLP where a model has "
                          "both; the trained depth by default");
    table[i++] = cli_text(0, "draft-steps", "N", &o->draft_steps,
                          "NRGPT: begin the next token as guessed after so many of a token's steps; the text is the same, "
                          "sooner; 0: never; auto, as it is fastest, by default");
    table[i++] =
        cli_text(0, "exit", "HOW", &o->exit,
                 "tokens stop early: state:X once a step moves g by less than X of its length; likewise cosine, energy, "
                 "entropy, kl, argmax:N; state:X:MIN:EVERY checks after MIN steps and every EVERY more");
    table[i++] = cli_text(0, "choose", "N:BY", &o->choose,
                          "generate N texts and give the best by logprob, energy, energy_gap or vote (the most frequent)");
    table[i++] = cli_text('f', "file", "FILE", &o->file, "read the prompt from FILE; - is standard input");
    table[i++] = cli_text(0, "tokens", "IDS", &o->tokens, "the prompt as token ids, 1,2,3; ids are written then");
    table[i++] =
        cli_integer('n', "max-tokens", &o->most, 1, INT64_MAX, "tokens to generate; the rest of the context by default");
    table[i++] = cli_repeated(0, "stop", "TEXT", &o->stop, "end before this text; may be repeated");
    table[i++] = cli_real(0, "temperature", &o->temperature, 0, INFINITY, "0: always the likeliest token; default 1");
    table[i++] = cli_integer(0, "top-k", &o->top_k, 0, INT64_MAX, "sample from the k likeliest; 0: all");
    table[i++] = cli_real_above(0, "top-p", &o->top_p, 0, 1, "sample from the likeliest that together reach p");
    table[i++] = cli_real(0, "min-p", &o->min_p, 0, 1, "sample from those at least p times as likely as the likeliest");
    table[i++] = cli_real_above(0, "typical-p", &o->typical_p, 0, 1, "locally typical sampling");
    table[i++] =
        cli_real_above(0, "repetition-penalty", &o->repetition, 0, INFINITY, "make tokens seen before less likely; 1: off");
    table[i++] = cli_real(0, "presence-penalty", &o->presence, -INFINITY, INFINITY, "taken off the logits of generated tokens");
    table[i++] = cli_real(0, "frequency-penalty", &o->frequency, -INFINITY, INFINITY, "the same, once per occurrence");
    table[i++] = cli_repeated(0, "logit-bias", "ID=B", &o->bias, "add B to the logit of token ID; may be repeated");
    table[i++] = cli_integer('s', "seed", &o->seed, INT64_MIN, INT64_MAX, "for the same text again; random by default");
    table[i++] = cli_flag(0, "ignore-eos", &o->ignore_eos, "never sample the end-of-text token");
    table[i++] = cli_integer(0, "min-tokens", &o->min_tokens, 0, INT64_MAX, "no end of text before so many tokens");
    table[i++] = cli_flag(0, "parse-special", &o->parse_special, "special tokens spelled in the prompt are those tokens");
    table[i++] = cli_flag(0, "echo", &o->echo, "write the prompt before its continuation");
    table[i++] = cli_flag(0, "trace", &o->trace, "after the text, the energies of every generated token's descent");
    table[i++] = cli_flag(0, "json", &o->json, "write one JSON object instead of text");
    motion_option_table(&o->motion, table + i);
    session_option_table(&o->session, table + i + MOTION_OPTIONS);
}

/* ---- From options to a completion -------------------------------------------------------------------------------- */

/* Reads "ID=B" items into an array that the caller frees. */
static int read_bias(const cli_list *items, uint32_t vocab, descent_logit_bias **bias)
{
    descent_logit_bias *read = calloc(items->count + 1, sizeof *read);
    if (!read) {
        cli_error("no memory left");
        return EXIT_FAILURE;
    }
    for (size_t i = 0; i < items->count; i++) {
        char id[24];
        int64_t token;
        double value;
        const char *item = items->items[i], *equals = strchr(item, '=');
        size_t length = equals ? (size_t)(equals - item) : 0;
        snprintf(id, sizeof id, "%.*s", (int)(length < sizeof id ? length : 0), item);
        if (!equals || !cli_read_integer(id, 0, (int64_t)vocab - 1, &token) || !cli_read_real(equals + 1, &value)) {
            free(read);
            return cli_usage_error(&run_command, "--logit-bias must be ID=B with an id from 0 to %u and a number, got \"%s\"",
                                   vocab - 1, item);
        }
        read[i] = (descent_logit_bias){.token = (uint32_t)token, .bias = (float)value};
    }
    *bias = read;
    return EXIT_SUCCESS;
}

/* "8:energy". The model is asked whether it has what the rule looks at. */
static int read_choose(const char *text, const session *with, completion_options *out)
{
    enum { MOST_CANDIDATES = 128 };
    char count[8];
    int64_t n;
    const char *colon = text ? strchr(text, ':') : NULL;
    if (!text) return EXIT_SUCCESS;
    size_t digits = colon ? (size_t)(colon - text) : 0, by = 0;
    (void)snprintf(count, sizeof count, "%.*s", (int)(digits < sizeof count ? digits : 0), text);
    while (colon && choose_rule_names[by] && strcmp(colon + 1, choose_rule_names[by]) != 0) by++;
    if (!colon || !choose_rule_names[by] || !cli_read_integer(count, 1, MOST_CANDIDATES, &n))
        return cli_usage_error(
            &run_command,
            "--choose must be N:BY with N from 1 to %d and one of logprob, energy, energy_gap and vote, got \"%s\"",
            MOST_CANDIDATES, text);
    out->candidates = (uint32_t)n;
    out->choose_by = (choose_rule)by;
    bool descends = with->info->terms[0] > 0 || with->info->terms[1] > 0;
    if (descends || !choose_flags(out->choose_by)) return EXIT_SUCCESS;
    return cli_usage_error(&run_command, "--choose by %s: model %s does not descend an energy", choose_rule_names[by],
                           with->info->name);
}

static int check_options(const run_options *o, const cli_arguments *arguments)
{
    int sources = (o->file != NULL) + (o->tokens != NULL) + (arguments->count > 1);
    if (sources > 1)
        return cli_usage_error(&run_command, "PROMPT, --file and --tokens are three ways to give one prompt: use one");
    for (size_t i = 0; i < o->stop.count; i++) {
        if (!*o->stop.items[i]) return cli_usage_error(&run_command, "--stop must not be empty");
        if (o->tokens) return cli_usage_error(&run_command, "--stop looks for text, and --tokens writes ids");
    }
    return EXIT_SUCCESS;
}

/* Fills *out from the options; *bias is the caller's to free. */
static int make_completion_options(const run_options *o, const session *with, descent_logit_bias **bias,
                                   completion_options *out)
{
    descent_status status;
    *out = (completion_options){.most = (size_t)o->most,
                                .stop = o->stop,
                                .trace = o->trace,
                                .echo = o->echo,
                                .as_ids = o->tokens != NULL,
                                .stream = !o->json};
    int exit_code = read_depth(&run_command, with->model, o->steps, &out->depth);
    if (exit_code == EXIT_SUCCESS) exit_code = read_draft_steps(&run_command, o->draft_steps, &out->draft_steps);
    if (exit_code == EXIT_SUCCESS) exit_code = read_choose(o->choose, with, out);
    if (exit_code == EXIT_SUCCESS) exit_code = read_bias(&o->bias, with->info->vocab, bias);
    if (exit_code != EXIT_SUCCESS) return exit_code;
    descent_sampling sampling = descent_sampling_defaults();
    sampling.temperature = (float)o->temperature;
    sampling.top_k = o->top_k > INT32_MAX ? INT32_MAX : (int32_t)o->top_k;
    sampling.top_p = (float)o->top_p;
    sampling.min_p = (float)o->min_p;
    sampling.typical_p = (float)o->typical_p;
    sampling.repetition_penalty = (float)o->repetition;
    sampling.presence_penalty = (float)o->presence;
    sampling.frequency_penalty = (float)o->frequency;
    sampling.bias = *bias;
    sampling.n_bias = o->bias.count;
    sampling.ignore_eos = o->ignore_eos;
    sampling.min_tokens = o->min_tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)o->min_tokens;
    sampling.seed = o->seed;
    out->sampling = sampling;
    if (descent_sampling_check(&sampling, with->info->vocab, &status) != DESCENT_OK)
        return cli_usage_error(&run_command, "%s", status.message);
    return EXIT_SUCCESS;
}

/* The prompt's tokens, wherever it comes from. The caller releases *tokens with descent_free. */
static int read_prompt(const run_options *o, const session *with, const char *prompt, uint32_t **tokens, size_t *count)
{
    int flags = o->parse_special ? DESCENT_PARSE_SPECIAL : 0;
    if (o->tokens) return read_tokens(&run_command, o->tokens, with->info->vocab, tokens, count);
    if (!with->tokenizer) {
        cli_error("model %s has no tokenizer, so it cannot read a text: give token ids with --tokens", with->info->name);
        return EXIT_FAILURE;
    }
    if (prompt) return session_encode(with, "the prompt", prompt, strlen(prompt), flags, tokens, count);
    text_buffer text;
    int exit_code = read_text(o->file ? o->file : "-", PROMPT_LIMIT, &text);
    if (exit_code == EXIT_SUCCESS)
        exit_code = session_encode(with, "the prompt", text.bytes, text.length, flags, tokens, count);
    text_buffer_release(&text);
    return exit_code;
}

/* ---- What comes out ---------------------------------------------------------------------------------------------- */

static json_t *choose_json(const completion_options *options, const completion *done)
{
    json_t *scores = json_array();
    for (size_t i = 0; i < options->candidates; i++) json_array_append_new(scores, json_number(done->scores[i]));
    return json_pack("{sI ss sI so so}", "n", (json_int_t)options->candidates, "by", choose_rule_names[options->choose_by],
                     "index", (json_int_t)done->chosen, "score", json_number(done->scores[done->chosen]), "scores", scores);
}

static int print_json(const session *with, const completion_options *options, const completion *done)
{
    static const char *const reasons[] = {"error", "stop", "length", "interrupted"};
    char depth[16];
    json_t *tokens = json_array();
    for (size_t i = 0; i < done->count; i++) json_array_append_new(tokens, json_integer(done->tokens[i]));
    json_t *timings =
        json_pack("{sf sf}", "prompt_seconds", done->prompt_seconds, "generation_seconds", done->generation_seconds);
    json_t *text = options->as_ids ? json_null() : json_stringn(done->text.bytes, done->text.length);
    json_t *object = json_pack("{so so so so ss sI sI sI sI sI so}", "text", text, "tokens", tokens, "steps",
                               json_depth(descent_depth_format(with->model, options->depth, depth)), "seed",
                               json_integer(options->sampling.seed), "finish_reason", reasons[done->end], "prompt_tokens",
                               (json_int_t)done->prompt_count, "cached_tokens", (json_int_t)done->reused, "row_steps",
                               (json_int_t)done->row_steps, "drafted_tokens", (json_int_t)done->drafted, "accepted_tokens",
                               (json_int_t)done->accepted, "timings", timings);
    if (done->scores) json_object_set_new(object, "choose", choose_json(options, done));
    if (options->trace) json_object_set_new(object, "trace", trace_json(&done->steps, with, done->tokens, done->count));
    return json_output(object, 9);
}

static void print_after_text(const session *with, const completion_options *options, const completion *done)
{
    bool open_line =
        options->as_ids || (terminal_is(stdout) && (!done->text.length || done->text.bytes[done->text.length - 1] != '\n'));
    if (open_line) putchar('\n');
    output_flush();
    if (options->trace) trace_print(&done->steps, with, done->tokens, done->count, stderr);
    if (done->steps.incomplete) cli_error("no memory left for the whole trace: its end is missing");
    if (terminal_is(stderr)) completion_print_summary(with, options, done);
}

static int run_once(const session *with, const completion_options *options, const uint32_t *prompt, size_t count)
{
    completion done;
    int exit_code = completion_check_prompt(with, count);
    if (exit_code != EXIT_SUCCESS) return exit_code;
    interruption_watch();
    complete(with, options, prompt, count, &done);
    if (!options->stream && done.end != COMPLETION_FAILED)
        exit_code = print_json(with, options, &done);
    else if (options->stream)
        print_after_text(with, options, &done);
    if (done.end == COMPLETION_FAILED) exit_code = EXIT_FAILURE;
    if (interrupted()) exit_code = EXIT_INTERRUPTED;
    completion_release(&done);
    return exit_code;
}

static int run_with(const run_options *o, const cli_arguments *arguments)
{
    session with;
    completion_options options;
    descent_logit_bias *bias = NULL;
    const char *prompt = arguments->positional[1];
    int exit_code = session_open_scheduler(arguments->positional[0], &o->session, 1, &with);
    if (exit_code == EXIT_SUCCESS) exit_code = read_exit(&run_command, o->exit, &with.exit);
    if (exit_code == EXIT_SUCCESS) exit_code = read_motion(&run_command, &o->motion, &with.motion, &with.solver, &with.history);
    if (exit_code == EXIT_SUCCESS) exit_code = make_completion_options(o, &with, &bias, &options);
    if (exit_code == EXIT_SUCCESS && !prompt && !o->file && !o->tokens && !o->json && terminal_is(stdin) && with.tokenizer) {
        exit_code = run_interactive(&with, &options, o->parse_special ? DESCENT_PARSE_SPECIAL : 0);
    } else if (exit_code == EXIT_SUCCESS) {
        uint32_t *tokens = NULL;
        size_t count = 0;
        exit_code = read_prompt(o, &with, prompt, &tokens, &count);
        if (exit_code == EXIT_SUCCESS) exit_code = run_once(&with, &options, tokens, count);
        descent_free(tokens);
    }
    free(bias);
    session_close(&with);
    return exit_code;
}

int command_run(int argc, char **argv)
{
    run_options options;
    cli_option table[RUN_OPTIONS + MOTION_OPTIONS + SESSION_OPTIONS];
    cli_arguments arguments;
    set_defaults(&options);
    run_option_table(&options, table);
    int exit_code = EXIT_SUCCESS;
    cli_outcome outcome = cli_parse(&run_command, table, sizeof table / sizeof *table, argc, argv, &arguments);
    if (outcome == CLI_WRONG) exit_code = EXIT_USAGE;
    if (outcome == CLI_RUN) exit_code = check_options(&options, &arguments);
    if (outcome == CLI_RUN && exit_code == EXIT_SUCCESS) exit_code = run_with(&options, &arguments);
    free(options.stop.items);
    free(options.bias.items);
    return exit_code;
}
