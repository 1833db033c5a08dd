/* generation.c: the life of one prompt and the tokens that follow it: checked and copied when it is submitted, computed in a
 * sequence that comes and goes, read, sampled from, observed, ended. Shapes: logits [V], tokens [most]. Called by
 * scheduler.c (its beginning and end), schedule.c (its rows) and reading.c (its logits). */
#include "generation.h"

#include "sequence.h"
#include "status.h"
#include "sweep.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double monotonic_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- What was asked --------------------------------------------------------------------------------------------- */

static descent_code check_prompt(const descent_model_info *info, const descent_generation_options *options,
                                 descent_status *status)
{
    if (!options->prompt || options->prompt_count == 0)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "prompt is empty; expected at least 1 token");
    if (options->prompt_count > info->context)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "prompt has %zu tokens; the context of %s holds %u",
                            options->prompt_count, info->name, info->context);
    for (size_t i = 0; i < options->prompt_count; i++)
        if (options->prompt[i] >= info->vocab)
            return descent_fail(status, DESCENT_BAD_ARGUMENT,
                                "prompt has token %u at position %zu; the vocabulary has ids 0 to %u", options->prompt[i], i,
                                info->vocab - 1);
    return DESCENT_OK;
}

static descent_code check_drafts(const descent_model_info *info, const descent_generation_options *options, descent_depth depth,
                                 descent_status *status)
{
    int steps = options->draft_steps;
    if (steps == 0 || steps == DESCENT_DRAFT_AUTO) return DESCENT_OK;
    if (!info->deepens)
        return descent_fail(status, DESCENT_UNSUPPORTED,
                            "draft_steps is %d: of tokens of %s models nothing is drafted, as of NRGPT's: expected 0", steps,
                            info->family);
    if (steps < 0 || steps >= depth.steps[0])
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "draft_steps is %d at a depth of %u; expected 1 step or more and fewer than that, or 0", steps,
                            (unsigned)depth.steps[0]);
    return DESCENT_OK;
}

static descent_code check_options(const descent_model_info *info, const descent_generation_options *options,
                                  descent_status *status)
{
    if (!options->calls.chosen || !options->calls.ended)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "calls needs both chosen and ended");
    if (options->observe & ~OBSERVE_KNOWN)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "observe is %d; expected a sum of 1, 2, 4, 8, 16 and 32",
                            options->observe);
    if (options->observe && !options->calls.observe)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "observe is %d, but calls has no observe", options->observe);
    descent_code code = check_prompt(info, options, status);
    if (code == DESCENT_OK) code = descent_sampling_check(&options->sampling, info->vocab, status);
    if (code == DESCENT_OK && options->sampling.n_bias > info->vocab)
        code = descent_fail(status, DESCENT_BAD_ARGUMENT, "bias has %zu entries; the vocabulary has %u tokens",
                            options->sampling.n_bias, info->vocab);
    return code;
}

/* A generation that waits, with a copy of its prompt and room for `limit` tokens behind. NULL: no memory. */
static descent_generation *allocate(const uint32_t *prompt, size_t count, size_t limit, const descent_sequence_options *how)
{
    descent_generation *g = calloc(1, sizeof *g);
    uint32_t *tokens = malloc((count + limit) * sizeof *tokens);
    if (!g || !tokens) {
        free(g);
        free(tokens);
        return NULL;
    }
    memcpy(tokens, prompt, count * sizeof *tokens);
    g->tokens = tokens;
    g->prompt_count = g->count = g->report.prompt_count = count;
    g->limit = limit;
    g->most = count + limit;
    g->options = *how;
    g->since = monotonic_seconds();
    g->clock = &g->report.queue_seconds;
    return g;
}

static descent_code no_memory_for(size_t tokens, descent_status *status)
{
    return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a generation of %zu tokens", tokens);
}

static descent_code copy_arrays(descent_generation *g, const descent_generation_options *options, descent_status *status)
{
    bool copied = true;
    if (g->observe) {
        g->reported = calloc(g->most, sizeof *g->reported);
        g->seen = calloc(g->most, sizeof *g->seen);
        copied = g->reported && g->seen;
    }
    g->sampling.bias = NULL;
    if (g->sampling.n_bias > 0) {
        size_t bytes = g->sampling.n_bias * sizeof *g->sampling.bias;
        descent_logit_bias *bias = malloc(bytes);
        copied = copied && bias;
        if (bias) memcpy(bias, options->sampling.bias, bytes);
        g->sampling.bias = bias;
    }
    return copied ? DESCENT_OK : no_memory_for(g->most, status);
}

descent_code generation_create(const descent_model *model, const descent_generation_options *options, descent_generation **out,
                               descent_status *status)
{
    const descent_model_info *info = descent_model_describe(model);
    descent_code code = check_options(info, options, status);
    if (code != DESCENT_OK) return code;
    descent_sequence_options sequence = {.depth = options->depth,
                                         .motion = options->motion,
                                         .solver = options->solver,
                                         .exit = options->exit,
                                         .history = options->history,
                                         .share_group = options->share_group,
                                         .no_sharing = options->read_prompt || options->observe || options->reach};
    sequence.history.prompt = (uint32_t)options->prompt_count - 1;
    if ((code = sequence_complete_options(model, &sequence, status)) != DESCENT_OK) return code;
    if ((code = check_drafts(info, options, sequence.depth, status)) != DESCENT_OK) return code;
    size_t room = info->context + (size_t)1 - options->prompt_count; /* a full context still gives one token */
    size_t limit = options->limit < room ? options->limit : room;
    descent_generation *g = allocate(options->prompt, options->prompt_count, limit, &sequence);
    if (!g) return no_memory_for(options->prompt_count + limit, status);
    g->sampling = options->sampling;
    g->read_prompt = options->read_prompt;
    g->background = options->background;
    bool drafts = info->deepens && !options->observe && !options->reach && sequence.exit.criterion == DESCENT_EXIT_NONE &&
                  sequence.solver.method == DESCENT_SOLVER_PLAIN && sequence.history.policy != DESCENT_HISTORY_LAST;
    g->draft_steps = drafts ? options->draft_steps : 0;
    g->observe = options->observe;
    g->observe_from = options->observe_prompt ? 0 : g->prompt_count - 1;
    g->calls = options->calls;
    g->user = options->user;
    code = copy_arrays(g, options, status);
    if (code == DESCENT_OK) code = reach_copy(model, &sequence, options->reach, g->prompt_count, &g->reach, status);
    if (code != DESCENT_OK) {
        generation_free(g);
        return code;
    }
    *out = g;
    return DESCENT_OK;
}

descent_code generation_create_reading(const uint32_t *prompt, size_t count, const descent_sequence_options *how, int observe,
                                       size_t observe_from, descent_generation **out, descent_status *status)
{
    descent_generation *g = allocate(prompt, count, 0, how);
    if (!g) return no_memory_for(count, status);
    g->observe = observe;
    g->observe_from = observe_from;
    *out = g;
    return DESCENT_OK;
}

void generation_free(descent_generation *g)
{
    sweep_free(g->sweep);
    reach_free(g->reach);
    free(g->tokens);
    free(g->reported);
    free(g->seen);
    free((void *)(uintptr_t)g->sampling.bias);
    free(g);
}

size_t generation_most_held(const descent_generation *g)
{
    return g->limit > 0 ? g->most - 1 : g->most;
}

page_needs generation_needs(const descent_generation *g, const descent_model *model, size_t block)
{
    return needs_of(model, &g->options, g->observe, block);
}

/* ---- Its sequence ------------------------------------------------------------------------------------------------ */

void generation_charge(descent_generation *g, double *next_clock)
{
    double now = monotonic_seconds();
    *g->clock += now - g->since;
    g->since = now;
    g->clock = next_clock;
}

descent_code generation_begin(descent_generation *g, descent_cache *cache, descent_status *status)
{
    descent_sequence *sequence = NULL;
    descent_sequence_options options = g->options;
    if (g->sweep) options.depth = sweep_depth(g->sweep);
    descent_code code = descent_sequence_create(cache, &options, &sequence, status);
    if (code != DESCENT_OK) return code;
    if (g->sweep) sequence->private_from = sweep_private_from(g->sweep);
    code = descent_sequence_append(sequence, g->tokens, g->count, status);
    if (code == DESCENT_OK && g->reach) code = reach_apply(g->reach, sequence, g->prompt_count, status);
    if (code != DESCENT_OK) {
        descent_sequence_destroy(sequence);
        return code;
    }
    g->sequence = sequence;
    g->observing = false;
    if (g->sweep) sweep_begin(g->sweep);
    if (g->seen) memset(g->seen, 0, g->most * sizeof *g->seen);
    return DESCENT_OK;
}

void generation_release(descent_generation *g)
{
    if (!g->sequence) return;
    descent_exit_cost asked = descent_sequence_exit_cost(g->sequence);
    g->report.row_steps += descent_sequence_steps_run(g->sequence);
    g->report.logits_read += descent_sequence_logits_read(g->sequence);
    g->report.exit_cost.readings += asked.readings;
    g->report.exit_cost.energies += asked.energies;
    descent_sequence_destroy(g->sequence);
    g->sequence = NULL;
    g->drafted = 0;
}

/* Hands on what is to be seen; after a pause only what was not seen before it. */
static void relay(void *user, const descent_observation *observation)
{
    descent_generation *g = user;
    size_t position = observation->site.position;
    if (g->sweep) {
        sweep_observe(g->sweep, observation);
        return;
    }
    if (g->seen[position]++ < g->reported[position]) return;
    g->reported[position]++;
    g->calls.observe(g->user, observation);
}

/* Rows before the first observed one run unobserved, so the two kinds are never in flight together: the number of rows that
 * may be enrolled now, at most `most`. */
static size_t observe_in_time(descent_generation *g, size_t most)
{
    descent_sequence *s = g->sequence;
    if (!g->observe || g->observing) return most;
    size_t next = s->batch ? s->next_row : s->finished; /* rows that stopped early are no longer among s->rows */
    size_t before = 0; /* rows; those that have nothing left to do, having stopped at a smaller depth, are none */
    for (size_t i = next; i < g->observe_from && before < most; i++) before += !sequence_done(s, i);
    if (before > 0) return before;
    if (s->rows > 0) return 0;
    g->observing = descent_sequence_observe(s, g->observe, relay, g, NULL) == DESCENT_OK;
    s->observe_last = g->sweep != NULL;
    return most;
}

bool generation_decodes(const descent_generation *g)
{
    return g->count > g->prompt_count && descent_sequence_finished(g->sequence) + 1 == g->count;
}

bool generation_lacks_row(const descent_generation *g)
{
    return !g->sequence->batch || g->sequence->next_row < g->count;
}

/* Appends what the sequence lacks of the first `count` tokens, drafts included. */
static descent_code append_up_to(descent_generation *g, size_t count, descent_status *status)
{
    size_t length = descent_sequence_length(g->sequence);
    if (length >= count) return descent_ok(status);
    return descent_sequence_append(g->sequence, g->tokens + length, count - length, status);
}

descent_code generation_take_rows(descent_generation *g, descent_batch *batch, size_t most, size_t *added,
                                  descent_status *status)
{
    *added = 0;
    descent_code code = append_up_to(g, g->count, status);
    if (code != DESCENT_OK) return code;
    most = observe_in_time(g, most);
    if (reach_follows(g->reach)) {
        if (g->sequence->rows > 0) return descent_ok(status);
        if ((code = reach_next(g->sequence, status)) != DESCENT_OK) return code;
        most = most > 0;
    }
    return most > 0 ? descent_batch_add(batch, g->sequence, most, added, status) : descent_ok(status);
}

/* ---- Drafts ------------------------------------------------------------------------------------------------------
 *
 * A token's state after some of its steps already guesses the next token, drawn with the very number that will draw it in the
 * end. The guess is appended and its row begins at once, always some steps behind the row it came from and so with all the
 * history it reads: what it computes is what it would compute later, as long as the tokens before it are right. It guesses in
 * turn. Each token is asked again every draft_now steps, and when it has finished; as soon as it says otherwise, what was
 * drafted behind it goes. So up to ceil(T / draft_now) tokens descend at once. None is told to anybody before it is certain,
 * and as none finishes before that, no page of it is offered to others. */

descent_code generation_take_drafts(descent_generation *g, descent_batch *batch, size_t most, descent_status *status)
{
    descent_sequence *s = g->sequence;
    if (generation_lacks_row(g) || s->next_row < g->count || g->drafted == 0) return descent_ok(status);
    size_t end = g->count + g->drafted, first = s->next_row, added;
    if (first + most < end) end = first + most;
    if (first >= end) return descent_ok(status);
    descent_code code = append_up_to(g, end, status);
    if (code != DESCENT_OK) return code;
    return descent_batch_add(batch, s, end - first, &added, status);
}

void generation_count_drafts(descent_generation *g)
{
    const descent_sequence *s = g->sequence;
    for (size_t i = g->count; s->batch && i < s->next_row; i++) g->report.drafted += sequence_progress(s, i) == 0;
}

/* Keeps the drafts before position `from`. */
static void drop_behind(descent_generation *g, size_t from)
{
    descent_status status;
    if (from < g->count) from = g->count;
    if (from < g->count + g->drafted) g->drafted = from - g->count;
    if (descent_sequence_length(g->sequence) <= from) return;
    if (descent_sequence_truncate(g->sequence, from, &status) != DESCENT_OK) generation_end(g, DESCENT_END_FAILED, &status);
}

bool generation_drop_drafts(descent_generation *g)
{
    if (g->drafted == 0) return false;
    drop_behind(g, g->count);
    return true;
}

bool generation_outlives(descent_generation *g)
{
    const descent_sequence *s = g->sequence;
    if (s->ended == DESCENT_OK) return true;
    if (g->sweep) {
        sweep_diverged(g);
        return true;
    }
    if (s->ended_position < g->count || !generation_drop_drafts(g)) return false;
    g->draft_now = 0; /* the same guess would end the same step again */
    g->drafts_from = g->count + 1;
    return true;
}

/* ---- Its logits -------------------------------------------------------------------------------------------------- */

/* A guess may be read at a position: it is on its way there, and what may follow would be begun. */
static bool may_guess(const descent_generation *g, size_t position)
{
    const descent_sequence *s = g->sequence;
    bool decodes = g->count > g->prompt_count && s->finished + 1 >= g->count;
    if (!s->batch || !decodes || position >= s->next_row || position + 2 >= g->most || position + 1 - g->count >= DRAFT_MOST)
        return false;
    uint32_t steps = sequence_progress(s, position);
    return steps > 0 && steps % g->draft_now == 0;
}

static bool guess_due(const descent_generation *g, size_t from, size_t *position)
{
    size_t end = g->count + g->drafted;
    if (g->draft_now == 0) return false;
    if (g->sequence->length < end) end = g->sequence->length;
    for (*position = from; *position < end; ++*position)
        if (may_guess(g, *position)) return true;
    return false;
}

bool generation_due(const descent_generation *g, size_t *position)
{
    if (g->over) return false;
    if (g->sweep) return sweep_due(g, position);
    size_t last = g->count - 1, finished = descent_sequence_finished(g->sequence);
    size_t next = g->read_prompt && g->read < g->prompt_count - (g->limit > 0) ? g->read : last;
    if (next < g->looked) next = g->looked;
    if (next > last || next >= finished) return next >= last && guess_due(g, next, position);
    if (next == last && g->observing && g->sequence->rows > 0) return false; /* a row that still reads its last energy */
    *position = next;
    return true;
}

static bool all_finite(const float *logits, size_t n)
{
    for (size_t v = 0; v < n; v++)
        if (!isfinite(logits[v])) return false;
    return true;
}

void generation_end(descent_generation *g, descent_generation_end end, const descent_status *status)
{
    if (g->over) return;
    g->over = true;
    g->report.end = end;
    if (status) g->report.status = *status;
}

/* `token` follows what is certain: it, and the drafts behind it, where it was drafted. */
static void accept(descent_generation *g, uint32_t token)
{
    bool right = g->drafted > 0 && g->tokens[g->count] == token;
    uint32_t known = right ? g->guessed_after[0] : g->sequence->total;
    draft_count_token(&g->record, g->sequence->total, known, g->count > g->prompt_count ? g->draft_now : 0);
    if (right) {
        bool begun = descent_sequence_length(g->sequence) > g->count && sequence_progress(g->sequence, g->count) > 0;
        g->report.accepted += begun;
        memmove(g->guessed_after, g->guessed_after + 1, --g->drafted * sizeof *g->guessed_after);
    } else {
        (void)generation_drop_drafts(g);
    }
    g->tokens[g->count++] = token;
}

/* What follows a token that is on its way. A guess that is none, as where a logit is not finite, changes nothing; an end of the
 * text has nothing to begin. */
static void guess(descent_generation *g, size_t position, const float *logits, const descent_model *model)
{
    const descent_tokenizer *tokenizer = descent_model_tokenizer(model);
    size_t next = position + 1, at = next - g->count;
    uint32_t token, vocab = descent_model_describe(model)->vocab;
    descent_status status;
    if (descent_sample(&g->sampling, tokenizer, logits, vocab, g->tokens, next, g->prompt_count, &token, &status) != DESCENT_OK)
        return;
    if (at < g->drafted && g->tokens[next] == token) return;
    drop_behind(g, next);
    if (tokenizer && descent_tokenizer_describe(tokenizer)->eos == (int64_t)token) return;
    g->tokens[next] = token;
    g->guessed_after[at] = sequence_progress(g->sequence, position);
    g->drafted++;
}

static void choose(descent_generation *g, const float *logits, const descent_model *model)
{
    const descent_tokenizer *tokenizer = descent_model_tokenizer(model);
    uint32_t token, vocab = descent_model_describe(model)->vocab;
    descent_status status;
    if (descent_sample(&g->sampling, tokenizer, logits, vocab, g->tokens, g->count, g->prompt_count, &token, &status) !=
        DESCENT_OK) {
        generation_end(g, DESCENT_END_FAILED, &status);
        return;
    }
    descent_choice choice = {.position = g->count,
                             .token_chosen = true,
                             .token = token,
                             .logits = logits,
                             .steps = descent_sequence_token_steps(g->sequence, g->count - 1)};
    accept(g, token);
    g->report.generated++;
    bool more = g->calls.chosen(g->user, &choice);
    if (tokenizer && descent_tokenizer_describe(tokenizer)->eos == (int64_t)token)
        generation_end(g, DESCENT_END_EOS, NULL);
    else if (!more)
        generation_end(g, DESCENT_END_STOPPED, NULL);
    else if (g->count == g->most)
        generation_end(g, DESCENT_END_LENGTH, NULL);
}

void generation_read(descent_generation *g, size_t position, const float *logits, const descent_model *model)
{
    uint32_t vocab = descent_model_describe(model)->vocab;
    descent_status status;
    if (g->over || position >= descent_sequence_length(g->sequence)) return;
    if (atomic_load(&g->cancelled)) {
        generation_end(g, DESCENT_END_CANCELLED, NULL);
        return;
    }
    if (g->sweep) {
        sweep_read(g, position, logits);
        return;
    }
    if (position >= descent_sequence_finished(g->sequence)) {
        guess(g, position, logits, model);
        return;
    }
    if (!all_finite(logits, vocab)) {
        (void)descent_fail(&status, DESCENT_DIVERGED, "diverged at token %zu: its logits are not finite", position);
        generation_end(g, DESCENT_END_FAILED, &status);
        return;
    }
    bool last = position + 1 == g->count;
    g->report.unconverged += !descent_sequence_converged(g->sequence, position);
    if (position + 1 == g->prompt_count && !g->prompt_done) {
        g->prompt_done = true;
        generation_charge(g, &g->report.generation_seconds);
    }
    if (g->read_prompt && position == g->read && position < g->prompt_count) {
        descent_choice choice = {
            .position = position, .logits = logits, .steps = descent_sequence_token_steps(g->sequence, position)};
        g->read++;
        if ((!last || g->limit == 0) && !g->calls.chosen(g->user, &choice)) generation_end(g, DESCENT_END_STOPPED, NULL);
    }
    if (!last || g->over) return;
    if (g->limit == 0)
        generation_end(g, DESCENT_END_LENGTH, NULL);
    else
        choose(g, logits, model);
}
