/* eval.c: `descent eval`: how well a model predicts a text (--file) or answers questions (--match), at one depth or a list
 * of depths. Options and output are here, the measurements in eval_loss.c and eval_match.c. */
#include "eval.h"

#include "commands.h"
#include "json_output.h"
#include "motion.h"
#include "terminal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cli_command eval_command = {
    .name = "eval",
    .positional = "MODEL",
    .summary =
        "Measures a model at one recursion depth or several: the loss of a text, or how many questions it answers exactly.",
    .notes = "--file: windows of the model's context, each begun anew, predict every token but the first once. The loss is "
             "in nats per token; bits per byte count the bytes that the predicted tokens stand for.\n"
             "--against: the same text with another model of the same vocabulary, such as the one this was quantized from: its "
             "loss, "
             "the KL divergence of this model's predictions from its own, in nats, and how often both find the same token "
             "likeliest.\n"
             "--match: lines PROMPT <tab> ANSWER, or {\"prompt\": ..., \"answer\": ...} where FILE ends in .jsonl; a greedy "
             "continuation of at most 60 tokens is right when the token before "
             "its end-of-text token is the answer. The prompt of a line with a tab ends with its first = where it has one.",
    .least = 1,
    .most = 1,
};

enum { TEXT_LIMIT = 1 << 30 };

typedef struct eval_options {
    session_options session;
    motion_options motion;
    const char *file, *match, *against, *steps, *exit;
    int against_page_type; /* -1: that of the model */
    bool parse_special, json;
} eval_options;

/* ---- Showing ---------------------------------------------------------------------------------------------------- */

static double mean_loss(const loss_result *result)
{
    return result->nats / (double)result->predictions;
}

/* NaN where nothing says how many bytes the tokens stand for. */
static double bits_per_byte(const loss_result *result)
{
    return result->bytes ? result->nats / (log(2) * (double)result->bytes) : NAN;
}

static int print_results_json(json_t *results)
{
    json_t *object = json_pack("{so}", "results", results);
    return json_output(object, 12);
}

static json_t *loss_json(const eval_options *o, const asked_depth *depth, const loss_result *result)
{
    double predictions = (double)result->predictions;
    json_t *object =
        json_pack("{so so so so sI sI}", "steps", json_depth(depth->text), "loss", json_number(mean_loss(result)), "perplexity",
                  json_number(exp(mean_loss(result))), "bits_per_byte", json_number(bits_per_byte(result)), "predictions",
                  (json_int_t)result->predictions, "bytes", (json_int_t)result->bytes);
    if (object) json_object_set_new(object, "token_steps", json_integer((json_int_t)result->token_steps));
    if (object && o->motion.solver) json_object_set_new(object, "unconverged", json_integer((json_int_t)result->unconverged));
    if (!o->against || !object) return object;
    json_object_set_new(object, "reference_loss", json_number(result->reference_nats / predictions));
    json_object_set_new(object, "kl", json_number(result->divergence / predictions));
    json_object_set_new(object, "agreement", json_number((double)result->agreed / predictions));
    return object;
}

static int show_loss(const eval_options *o, const asked_depth *depths, size_t n, const loss_result *results)
{
    if (o->json) {
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++) json_array_append_new(list, loss_json(o, &depths[i], &results[i]));
        return print_results_json(list);
    }
    printf("%8s %10s %12s %10s", "steps", "loss", "perplexity", "bits/byte");
    if (o->exit || o->motion.solver) printf(" %12s", "steps/token");
    if (o->motion.solver) printf(" %10s", "converged");
    if (o->against) printf(" %10s %12s %10s", "reference", "KL", "agreement");
    printf("\n");
    for (size_t i = 0; i < n; i++) {
        double loss = mean_loss(&results[i]), bits = bits_per_byte(&results[i]);
        printf("%8s %10.5f %12.4f", depths[i].text, loss, exp(loss));
        if (isfinite(bits))
            printf(" %10.5f", bits);
        else
            printf(" %10s", "-");
        double predictions = (double)results[i].predictions;
        if (o->exit || o->motion.solver) printf(" %12.3f", (double)results[i].token_steps / predictions);
        if (o->motion.solver) printf(" %9.3f%%", 100 * (1 - (double)results[i].unconverged / predictions));
        if (o->against)
            printf(" %10.5f %12.4g %9.3f%%", results[i].reference_nats / (double)results[i].predictions,
                   results[i].divergence / (double)results[i].predictions,
                   100 * (double)results[i].agreed / (double)results[i].predictions);
        printf("\n");
    }
    printf("predictions %zu, bytes %" PRIu64 "\n", results[0].predictions, results[0].bytes);
    return EXIT_SUCCESS;
}

static int show_match(const eval_options *o, const asked_depth *depths, size_t n, const match_result *results, size_t items)
{
    if (o->json) {
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(list,
                                  json_pack("{so sf sI sI sI sI}", "steps", json_depth(depths[i].text), "exact_match",
                                            (double)results[i].right / (double)items, "right", (json_int_t)results[i].right,
                                            "items", (json_int_t)items, "tokens", (json_int_t)results[i].tokens, "token_steps",
                                            (json_int_t)results[i].token_steps));
        return print_results_json(list);
    }
    printf("%8s %12s %8s %8s", "steps", "exact match", "right", "items");
    printf(o->exit ? " %12s\n" : "\n", "steps/token");
    for (size_t i = 0; i < n; i++) {
        printf("%8s %12.4f %8zu %8zu", depths[i].text, (double)results[i].right / (double)items, results[i].right, items);
        if (o->exit) printf(" %12.3f", (double)results[i].token_steps / (double)results[i].tokens);
        printf("\n");
    }
    return EXIT_SUCCESS;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static int no_memory(void)
{
    cli_error("no memory left");
    return EXIT_FAILURE;
}

static int eval_loss(const eval_options *o, const session *with, const asked_depth *depths, size_t n)
{
    text_buffer text;
    uint32_t *tokens = NULL;
    size_t count = 0;
    int exit_code = read_text(o->file, TEXT_LIMIT, &text);
    if (exit_code == EXIT_SUCCESS)
        exit_code = session_encode(with, o->file, text.bytes, text.length, o->parse_special ? DESCENT_PARSE_SPECIAL : 0,
                                   &tokens, &count);
    text_buffer_release(&text);
    if (exit_code == EXIT_SUCCESS && count < 2) {
        cli_error("%s: %s, so there is nothing to predict: at least two tokens are needed", o->file,
                  count ? "only one token" : "no token");
        exit_code = EXIT_FAILURE;
    }
    session reference = {.model = NULL};
    session_options beside = o->session;
    if (o->against_page_type >= 0) beside.page_type = o->against_page_type;
    if (exit_code == EXIT_SUCCESS && o->against) exit_code = session_open(o->against, &beside, &reference);
    loss_result *results = calloc(n, sizeof *results);
    if (exit_code == EXIT_SUCCESS)
        exit_code =
            results ? measure_loss(with, o->against ? &reference : NULL, tokens, count, depths, n, results) : no_memory();
    if (exit_code == EXIT_SUCCESS) exit_code = show_loss(o, depths, n, results);
    free(results);
    session_close(&reference);
    descent_free(tokens);
    return exit_code;
}

static int eval_match(const eval_options *o, const session *with, const asked_depth *depths, size_t n)
{
    question_set set;
    int exit_code = read_questions(with, o->match, &set);
    if (exit_code == EXIT_SUCCESS && set.questions->choices) {
        cli_error("%s: records with choices are for descent scale", o->match);
        exit_code = EXIT_FAILURE;
    }
    match_result *results = calloc(n, sizeof *results);
    if (exit_code == EXIT_SUCCESS) exit_code = results ? measure_match(with, &set, depths, n, results) : no_memory();
    if (exit_code == EXIT_SUCCESS) exit_code = show_match(o, depths, n, results, set.count);
    free(results);
    question_set_release(&set);
    return exit_code;
}

static int eval_with(const eval_options *o, const char *path)
{
    session with;
    asked_depth *depths = NULL;
    size_t n = 0;
    int exit_code = o->file ? session_open(path, &o->session, &with) : session_open_scheduler(path, &o->session, 0, &with);
    if (exit_code == EXIT_SUCCESS) exit_code = read_exit(&eval_command, o->exit, &with.exit);
    if (exit_code == EXIT_SUCCESS)
        exit_code = read_motion(&eval_command, &o->motion, &with.motion, &with.solver, &with.history);
    if (exit_code == EXIT_SUCCESS) exit_code = read_depths(&eval_command, with.model, o->steps, &depths, &n);
    interruption_watch();
    if (exit_code == EXIT_SUCCESS) exit_code = o->file ? eval_loss(o, &with, depths, n) : eval_match(o, &with, depths, n);
    free(depths);
    session_close(&with);
    return exit_code;
}

int command_eval(int argc, char **argv)
{
    enum { own = 8 };
    eval_options options = {.session = {.chunk = 1024}, .against_page_type = -1};
    cli_option table[own + MOTION_OPTIONS + SESSION_OPTIONS] = {
        cli_text('f', "file", "FILE", &options.file, "measure the loss of the text in FILE; - is standard input"),
        cli_text('m', "match", "FILE", &options.match, "count the exact answers to the questions in FILE"),
        cli_text('T', "steps", "T[,T...]", &options.steps,
                 "recursion depths, such as 1,2,4 or 1-32:4, or 1x1,3x2 or 1-4x1-4 (attention x MLP); the "
                 "trained depth by default"),
        cli_text(0, "exit", "HOW", &options.exit,
                 "tokens stop early: state:X once a step moves g by less than X of its length; likewise cosine, energy, "
                 "entropy, kl, argmax:N; state:X:MIN:EVERY checks after MIN steps and every EVERY more"),
        cli_text(0, "against", "MODEL", &options.against, "with --file: another model, to compare this one's predictions with"),
        cli_choice(0, "against-page-type", &options.against_page_type, page_type_names,
                   "numbers that other model's history is kept in; those of --page-type by default"),
        cli_flag(0, "parse-special", &options.parse_special, "special tokens spelled in the FILE of --file are those tokens"),
        cli_flag(0, "json", &options.json, "write one JSON object instead of a table"),
    };
    cli_arguments arguments;
    motion_option_table(&options.motion, table + own);
    session_option_table(&options.session, table + own + MOTION_OPTIONS);
    cli_outcome outcome = cli_parse(&eval_command, table, sizeof table / sizeof *table, argc, argv, &arguments);
    if (outcome != CLI_RUN) return outcome == CLI_HELP ? EXIT_SUCCESS : EXIT_USAGE;
    if (!options.file == !options.match) return cli_usage_error(&eval_command, "give either --file or --match");
    if (options.motion.prompt_steps > 0 && options.file)
        return cli_usage_error(&eval_command, "--prompt-steps is about prompts, and the text of --file has none");
    if (options.against && !options.file)
        return cli_usage_error(&eval_command, "--against compares what is predicted of a --file");
    if (options.against_page_type >= 0 && !options.against)
        return cli_usage_error(&eval_command, "--against-page-type is about the model of --against");
    return eval_with(&options, arguments.positional[0]);
}
