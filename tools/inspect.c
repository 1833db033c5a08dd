/* inspect.c: `descent trace`: runs a text once, every row observed, and shows what its descents were: a table with a map of the
 * energy, the JSON of /v1/descent/trace, CSV, or an SVG. The forms are inspect_table.c's, inspect_csv.c's and inspect_svg.c's,
 * the check of the theory is inspect_theory.c's. See inspect.h. */
#include "inspect.h"

#include "commands.h"
#include "input.h"
#include "json_output.h"
#include "motion.h"
#include "terminal.h"

#include "../server/json_text.h"
#include "../server/token_name.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_LIMIT = 64 << 20, MOST_GUESSES = LOGPROBS_MOST };
static const uint64_t MOST_NUMBERS = UINT64_C(1) << 28; /* of a trace kept at once: a gigabyte */

static int no_memory(void)
{
    cli_error("no memory left");
    return EXIT_FAILURE;
}

static int failed(const descent_status *status)
{
    cli_error("%s", status->message);
    return EXIT_FAILURE;
}

/* ---- Seeing ------------------------------------------------------------------------------------------------------ */

typedef struct observing {
    tracer *tracer;
    inspection *seen;
} observing;

static void on_seen(void *user, const descent_observation *observation)
{
    const observing *o = user;
    tracer_observe(o->tracer, observation);
    if (o->seen->states) states_observe(o->seen->states, observation);
}

static int step_to_the_end(const session *with, descent_sequence *sequence, size_t count)
{
    descent_status status;
    progress bar = progress_begin("trace", "tokens", count);
    descent_code code = DESCENT_OK;
    size_t done = 0, added;
    do {
        if (descent_sequence_finished(sequence) < count)
            code = descent_batch_add(with->batch, sequence, SIZE_MAX, &added, &status);
        if (code == DESCENT_OK) code = descent_batch_step(with->batch, NULL, &status);
        if (code == DESCENT_OK) code = descent_sequence_state_code(sequence, &status);
        progress_advance(&bar, descent_sequence_finished(sequence) - done);
        done = descent_sequence_finished(sequence);
    } while (code == DESCENT_OK && !interrupted() && (done < count || descent_batch_rows(with->batch) > 0));
    progress_end(&bar);
    if (code != DESCENT_OK) return failed(&status);
    return interrupted() ? EXIT_INTERRUPTED : EXIT_SUCCESS;
}

static int read_logprobs(const session *with, descent_sequence *sequence, inspection *seen)
{
    descent_status status;
    float *logits = malloc(with->info->vocab * sizeof *logits);
    descent_code code = logits ? DESCENT_OK : DESCENT_NO_MEMORY;
    seen->logprobs[0] = NAN;
    for (size_t i = 0; i + 1 < seen->count && code == DESCENT_OK; i++) {
        descent_reading reading = {sequence, i};
        code = descent_batch_logits(with->batch, &reading, 1, logits, &status);
        if (code == DESCENT_OK) seen->logprobs[i + 1] = logprob_of(logits, with->info->vocab, seen->tokens[i + 1]);
    }
    if (code != DESCENT_OK) logits ? failed(&status) : no_memory();
    free(logits);
    return code == DESCENT_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run(const session *with, tracer *t, inspection *seen)
{
    descent_status status;
    observing with_both = {t, seen};
    descent_sequence *sequence = NULL;
    descent_sequence_options how = {.depth = seen->depth,
                                    .exit = with->exit,
                                    .motion = with->motion,
                                    .solver = with->solver,
                                    .history = with->history,
                                    .no_sharing = true};
    how.history.prompt = (uint32_t)seen->count - 1;
    descent_code code = descent_sequence_create(with->cache, &how, &sequence, &status);
    if (code == DESCENT_OK)
        code = descent_sequence_observe(sequence, tracer_flags(&seen->options), on_seen, &with_both, &status);
    if (code == DESCENT_OK) code = descent_sequence_append(sequence, seen->tokens, seen->count, &status);
    int exit_code = code == DESCENT_OK ? step_to_the_end(with, sequence, seen->count) : failed(&status);
    if (exit_code == EXIT_SUCCESS) exit_code = read_logprobs(with, sequence, seen);
    if (exit_code == EXIT_SUCCESS) {
        seen->row_steps = descent_sequence_steps_run(sequence);
        seen->logits_read = descent_sequence_logits_read(sequence);
    }
    descent_sequence_destroy(sequence);
    return exit_code;
}

int inspect(const session *with, descent_depth depth, const uint32_t *tokens, size_t count, size_t top, const uint32_t *track,
            size_t n_track, bool states, inspection *seen)
{
    *seen = (inspection){.with = with, .depth = depth, .tokens = tokens, .count = count};
    if (with->history.prompt_steps > depth.steps[0]) depth.steps[0] = (uint16_t)with->history.prompt_steps; /* the most */
    seen->options = (tracer_options){
        .info = with->info, .depth = depth, .count = count, .states = true, .guesses = top, .track = track, .n_track = n_track};
    seen->choice.of = STATES_X | STATES_G;
    uint64_t numbers = tracer_numbers(&seen->options), in_flight = tracer_state_numbers(&seen->options);
    uint64_t kept = states ? states_most(with->info, depth, &seen->choice, count) : 0;
    if (numbers > MOST_NUMBERS || in_flight > MOST_NUMBERS || kept > MOST_NUMBERS / with->info->width) {
        cli_error("the trace of %zu tokens at this depth is more than %llu numbers: a shorter text or fewer steps have room",
                  count, (unsigned long long)MOST_NUMBERS);
        return EXIT_FAILURE;
    }
    seen->traces = calloc(count, sizeof(token_trace *));
    seen->logprobs = calloc(count, sizeof *seen->logprobs);
    if (states) seen->states = states_create(with->info, &seen->choice, kept);
    tracer *t = tracer_create(&seen->options);
    int exit_code = seen->traces && seen->logprobs && t && (seen->states || !states) ? run(with, t, seen) : no_memory();
    for (token_trace *trace; t && (trace = tracer_next(t));) seen->traces[trace->position] = trace;
    if (exit_code == EXIT_SUCCESS && tracer_failed(t)) exit_code = no_memory();
    tracer_destroy(t);
    return exit_code;
}

void inspection_release(inspection *seen)
{
    for (size_t i = 0; seen->traces && i < seen->count; i++) token_trace_free(seen->traces[i]);
    free(seen->traces);
    free(seen->logprobs);
    states_destroy(seen->states);
}

/* ---- Looking things up ------------------------------------------------------------------------------------------- */

size_t inspection_descents(const inspection *seen)
{
    return (size_t)seen->options.info->layers * seen->options.info->kinds;
}

size_t inspection_steps(const inspection *seen, size_t descent)
{
    size_t steps = seen->options.depth.steps[descent % seen->options.info->kinds];
    return steps ? steps : 1;
}

const float *inspection_at(const inspection *seen, size_t position, size_t descent, size_t t)
{
    const token_trace *trace = seen->traces[position];
    if (t > trace->used[descent]) return NULL;
    return trace->numbers + (trace_first_state(&seen->options, descent) + t) * TRACE_NUMBERS;
}

double inspection_energy(const inspection *seen, size_t position, size_t descent, size_t t)
{
    const descent_model_info *info = seen->options.info;
    const float *numbers = inspection_at(seen, position, descent, t);
    uint32_t terms = info->terms[descent % info->kinds];
    double sum = numbers && terms > 0 ? 0 : NAN;
    for (uint32_t k = 0; numbers && k < terms; k++) sum += (double)numbers[TRACE_ENERGY + k];
    return sum;
}

bool inspection_range(const inspection *seen, size_t descent, double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = 0; i < seen->count; i++)
        for (size_t t = 0; t <= inspection_steps(seen, descent); t++) {
            double energy = inspection_energy(seen, i, descent, t);
            if (energy < *low) *low = energy;
            if (energy > *high) *high = energy;
        }
    return *low <= *high;
}

bool inspection_reading(const inspection *seen, size_t position, size_t descent, size_t t, size_t *reading)
{
    const token_trace *trace = seen->traces[position];
    size_t last = trace->used[descent];
    if (t > last || (!seen->options.info->deepens && t != last)) return false;
    *reading = trace_reading(&seen->options, descent, trace_first_state(&seen->options, descent) + t);
    return true;
}

void inspect_print_token(const session *with, uint32_t token, bool quoted, FILE *to)
{
    size_t bytes = 0;
    const char *piece = with->tokenizer ? descent_tokenizer_piece(with->tokenizer, token, &bytes) : NULL;
    if (piece && bytes == 0) piece = descent_tokenizer_spelling(with->tokenizer, token, &bytes);
    if (!piece) {
        fprintf(to, "%u", token);
        return;
    }
    if (quoted) fputc('"', to);
    terminal_put_text(piece, bytes, to);
    if (quoted) fputc('"', to);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

/* One line, as an entry of "traces" in an answer of /v1/descent/trace has its tokens. */
static int print_json(const inspection *seen, json_t *theory)
{
    const session *with = seen->with;
    char depth[16], *check = theory ? json_dumps(theory, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_text out = {.text = NULL};
    json_text_put(&out, "{\"model\":");
    json_text_string(&out, with->info->name, strlen(with->info->name));
    json_text_put(&out, ",\"steps\":");
    const char *text = descent_depth_format(with->model, seen->depth, depth);
    json_text_string(&out, text, strlen(text));
    json_text_put(&out, ",\"row_steps\":");
    json_text_unsigned(&out, seen->row_steps);
    json_text_put(&out, ",\"logits_read\":");
    json_text_unsigned(&out, seen->logits_read);
    json_text_put(&out, ",\"tokens\":[");
    for (size_t i = 0; i < seen->count; i++) {
        json_text_put(&out, i > 0 ? ",{\"token\":" : "{\"token\":");
        json_text_unsigned(&out, seen->tokens[i]);
        json_text_put(&out, ",\"text\":");
        token_name(&out, with->tokenizer, seen->tokens[i]);
        json_text_put(&out, ",\"logprob\":");
        json_text_real(&out, (double)seen->logprobs[i]);
        json_text_put(&out, ",\"trace\":");
        token_trace_render(&out, seen->traces[i], &seen->options, with->tokenizer);
        json_text_put(&out, "}}");
    }
    json_text_put(&out, "]");
    if (check) {
        json_text_put(&out, ",\"theory\":");
        json_text_put(&out, check);
    }
    json_text_put(&out, "}\n");
    bool whole = !out.failed && (check || !theory);
    if (whole) fwrite(out.text, 1, out.bytes, stdout);
    free(check);
    json_text_release(&out);
    return whole ? EXIT_SUCCESS : no_memory();
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

typedef struct trace_options {
    session_options session;
    motion_options motion;
    const char *file, *tokens, *steps, *exit, *track, *csv, *svg, *states;
    int64_t top, halvings;
    bool parse_special, json, theory, map_only;
} trace_options;

static const cli_command trace_command = {
    .name = "trace",
    .positional = "MODEL [TEXT]",
    .summary =
        "Runs TEXT once through the model in the GGUF file MODEL and shows the descent of every token: energy by term at every "
        "step, how it changed, its slope, how far the state moved, and what may follow.",
    .notes =
        "The text is TEXT, the file of --file, or standard input. dE_own is what a step changed of a token's own energy with "
        "its "
        "history held, dE_history what the moving history changed. slope is grad^T J R grad: what a short step takes off the "
        "energy for each unit of step_scale. cosine is that of x(t) and the last state.\n"
        "--theory checks what the theory promises: where the rate R is c diag(gamma), gamma the norm's weight, slopes are "
        "never negative, and dE_own is not positive once steps are short. It says where it does not hold, and by how much.\n"
        "Exit codes: 0, 1 on failure, 2 for a mistake in the options, 130 after Ctrl-C.",
    .least = 1,
    .most = 2,
};

static int read_input(const trace_options *o, const session *with, const char *argument, uint32_t **tokens, size_t *count)
{
    text_buffer text = {.bytes = NULL};
    int flags = o->parse_special ? DESCENT_PARSE_SPECIAL : 0, exit_code;
    if (o->tokens) return read_tokens(&trace_command, o->tokens, with->info->vocab, tokens, count);
    if (argument) return session_encode(with, "the text", argument, strlen(argument), flags, tokens, count);
    exit_code = read_text(o->file ? o->file : "-", TEXT_LIMIT, &text);
    if (exit_code == EXIT_SUCCESS)
        exit_code = session_encode(with, o->file ? o->file : "the text", text.bytes, text.length, flags, tokens, count);
    text_buffer_release(&text);
    return exit_code;
}

static int check_input(const session *with, size_t count)
{
    if (count > 0 && count <= with->info->context) return EXIT_SUCCESS;
    if (count == 0)
        cli_error("the text has no token, so there is nothing to trace");
    else
        cli_error("the text has %zu tokens, more than the %u of the context of model %s", count, with->info->context,
                  with->info->name);
    return EXIT_FAILURE;
}

/* A form written into a file; "-" is standard output. */
static int write_form(const char *path, const inspection *seen, void (*form)(const inspection *, FILE *))
{
    bool is_stdout = !strcmp(path, "-");
    FILE *to = is_stdout ? stdout : fopen(path, "wb");
    if (to) form(seen, to);
    bool fine = to && !ferror(to);
    if (to && !is_stdout && fclose(to) != 0) fine = false;
    if (fine) return EXIT_SUCCESS;
    cli_error("cannot write %s", path);
    return EXIT_FAILURE;
}

/* As /v1/descent/states answers. */
static void print_states(const inspection *seen, FILE *to)
{
    char depth[16], id[16];
    json_text tokens = {.text = NULL}, out = {.text = NULL};
    for (size_t i = 0; i < seen->count; i++) {
        (void)snprintf(id, sizeof id, i > 0 ? ",%u" : "%u", seen->tokens[i]);
        json_text_put(&tokens, id);
    }
    json_text_bytes(&tokens, "", 1);
    const char *metadata[] = {"format", "descent.states",
                              "model",  seen->with->info->name,
                              "steps",  descent_depth_format(seen->with->model, seen->depth, depth),
                              "start",  "embedding",
                              "tokens", tokens.failed ? "" : tokens.text,
                              NULL};
    states_write(seen->states, &out, metadata);
    if (!out.failed && !tokens.failed) fwrite(out.text, 1, out.bytes, to);
    if (out.failed || tokens.failed) cli_error("no memory left for the states");
    json_text_release(&out);
    json_text_release(&tokens);
}

static int show(const trace_options *o, const inspection *seen, json_t *theory)
{
    int exit_code = EXIT_SUCCESS;
    if (o->states) exit_code = write_form(o->states, seen, print_states);
    bool to_stdout =
        (o->states && !strcmp(o->states, "-")) || (o->csv && !strcmp(o->csv, "-")) || (o->svg && !strcmp(o->svg, "-"));
    if (o->csv && exit_code == EXIT_SUCCESS) exit_code = write_form(o->csv, seen, inspect_print_csv);
    if (o->svg && exit_code == EXIT_SUCCESS) exit_code = write_form(o->svg, seen, inspect_print_svg);
    if (exit_code != EXIT_SUCCESS || to_stdout) return exit_code;
    if (o->json) return print_json(seen, theory);
    inspect_print_map(seen, stdout);
    if (!o->map_only) inspect_print_table(seen, stdout);
    return EXIT_SUCCESS;
}

static int trace_text(const trace_options *o, const session *with, const uint32_t *tokens, size_t count)
{
    descent_depth depth;
    inspection seen = {.with = NULL};
    uint32_t *track = NULL;
    size_t n_track = 0;
    json_t *theory = NULL;
    int exit_code = read_depth(&trace_command, with->model, o->steps, &depth);
    if (exit_code == EXIT_SUCCESS && o->track)
        exit_code = read_tokens(&trace_command, o->track, with->info->vocab, &track, &n_track);
    if (exit_code == EXIT_SUCCESS && n_track > TRACE_MOST_TRACKED)
        exit_code =
            cli_usage_error(&trace_command, "--track lists %zu tokens; at most %d are followed", n_track, TRACE_MOST_TRACKED);
    if (exit_code == EXIT_SUCCESS)
        exit_code = inspect(with, depth, tokens, count, (size_t)o->top, track, n_track, o->states != NULL, &seen);
    if (exit_code == EXIT_SUCCESS && o->theory && o->json)
        exit_code = inspect_theory(with, depth, tokens, count, (unsigned)o->halvings, true, &theory);
    if (exit_code == EXIT_SUCCESS) exit_code = show(o, &seen, theory);
    if (exit_code == EXIT_SUCCESS && o->theory && !o->json)
        exit_code = inspect_theory(with, depth, tokens, count, (unsigned)o->halvings, false, NULL);
    json_decref(theory);
    inspection_release(&seen);
    descent_free(track);
    return exit_code;
}

static int trace_with(const trace_options *o, const cli_arguments *arguments)
{
    session with;
    uint32_t *tokens = NULL;
    size_t count = 0;
    int exit_code = session_open(arguments->positional[0], &o->session, &with);
    if (exit_code == EXIT_SUCCESS) exit_code = read_exit(&trace_command, o->exit, &with.exit);
    if (exit_code == EXIT_SUCCESS)
        exit_code = read_motion(&trace_command, &o->motion, &with.motion, &with.solver, &with.history);
    if (exit_code == EXIT_SUCCESS) exit_code = read_input(o, &with, arguments->positional[1], &tokens, &count);
    if (exit_code == EXIT_SUCCESS) exit_code = check_input(&with, count);
    interruption_watch();
    if (exit_code == EXIT_SUCCESS) exit_code = trace_text(o, &with, tokens, count);
    descent_free(tokens);
    session_close(&with);
    return exit_code;
}

int command_trace(int argc, char **argv)
{
    enum { own = 14 };
    trace_options options = {.session = {.chunk = 512}, .top = 3, .halvings = 8};
    cli_option table[own + MOTION_OPTIONS + SESSION_OPTIONS] = {
        cli_text('T', "steps", "T", &options.steps,
                 "recursion depth: 12, or 3x2 for attention x MLP where a model has both; the trained depth by default"),
        cli_text(0, "exit", "CRITERION:X", &options.exit, "tokens stop early, as with run"),
        cli_text('f', "file", "FILE", &options.file, "read the text from FILE; - is standard input"),
        cli_text(0, "tokens", "IDS", &options.tokens, "the text as token ids, 1,2,3"),
        cli_flag(0, "parse-special", &options.parse_special, "special tokens spelled in the text are those tokens"),
        cli_defaulted(cli_integer(0, "top", &options.top, 0, MOST_GUESSES, "likeliest next tokens shown of every state")),
        cli_text(0, "track", "IDS", &options.track, "tokens whose rank and log-probability are followed, 1,2,3"),
        cli_flag(0, "map", &options.map_only, "show the map of the energy only"),
        cli_flag(0, "json", &options.json, "write one JSON object: tokens as /v1/descent/trace has them"),
        cli_text(0, "csv", "FILE", &options.csv, "write a line for each token and step to FILE; - is standard output"),
        cli_text(0, "svg", "FILE", &options.svg, "draw the energy of tokens x steps into FILE; - is standard output"),
        cli_text(0, "states-out", "FILE", &options.states, "write x and g of every token and step to FILE, as safetensors"),
        cli_flag(0, "theory", &options.theory, "check where the energy falls as the theory says, and report"),
        cli_defaulted(cli_integer(0, "halvings", &options.halvings, 0, 16, "with --theory: step scales from 1 to 2^-N")),
    };
    cli_arguments arguments;
    motion_option_table(&options.motion, table + own);
    session_option_table(&options.session, table + own + MOTION_OPTIONS);
    cli_outcome outcome = cli_parse(&trace_command, table, sizeof table / sizeof *table, argc, argv, &arguments);
    if (outcome == CLI_HELP) return EXIT_SUCCESS;
    if (outcome == CLI_WRONG) return EXIT_USAGE;
    if ((options.file != NULL) + (options.tokens != NULL) + (arguments.count > 1) > 1)
        return cli_usage_error(&trace_command, "TEXT, --file and --tokens are three ways to give one text: use one");
    return trace_with(&options, &arguments);
}
