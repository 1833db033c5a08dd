/* schedule.c: who holds cache, and which rows enter the batch before a step. Called by scheduler.c, on its thread.
 *
 * Rows go in by this order: first the row that a running text waits for, of each; then rows of prompts, at most `chunk` of them
 * in flight, shared evenly: whoever was served longest ago is next. (What is computed again after a pause counts as prompt.)
 * All sweeps together are one of these, and the first of them goes first: rows of one text are computed faster together, and
 * nobody waits for an answer in the middle of one.
 * Where the model deepens, a row joins between any two steps; elsewhere when the rows in flight have left, so that all go
 * through the layers together. Last, where the batch is small, rows of tokens that are only guessed (generation.c).
 *
 * A head of many tokens takes longer than a step. Where it does, a text that has chosen its first token waits, once and for
 * less than a token's time, until it keeps step with the others of its depth, so that one product reads the logits of all.
 *
 * Memory is taken as rows go in. Where there is none left the generation that began last gives up its own and goes to the
 * head of the line; as whoever begins stands behind those that run, the first of these is never interrupted for another. Before
 * anybody gives up anything, or is refused, everybody's drafts go. A
 * waiting one begins when its text fits beside what the running ones still lack, and a page for each that will grow:
 * otherwise it would be paused at once and its work be lost. */
#include "batch.h"
#include "scheduler.h"
#include "sequence.h"
#include "status.h"

#include <string.h>

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

void line_append(line *l, descent_generation *g)
{
    g->previous = l->last;
    g->next = NULL;
    *(l->last ? &l->last->next : &l->first) = g;
    l->last = g;
    l->count++;
    g->waiting = true;
}

void line_prepend(line *l, descent_generation *g)
{
    g->previous = NULL;
    g->next = l->first;
    *(l->first ? &l->first->previous : &l->last) = g;
    l->first = g;
    l->count++;
    g->waiting = true;
}

void line_remove(line *l, descent_generation *g)
{
    *(g->previous ? &g->previous->next : &l->first) = g->next;
    *(g->next ? &g->next->previous : &l->last) = g->previous;
    g->next = g->previous = NULL;
    l->count--;
    g->waiting = false;
}

/* ---- Running and waiting ----------------------------------------------------------------------------------------- */

static size_t place_of(const descent_scheduler *s, const descent_generation *g)
{
    size_t i = 0;
    while (i < s->n_running && s->running[i] != g) i++;
    return i;
}

static void add_running(descent_scheduler *s, descent_generation *g)
{
    size_t i = s->n_running++;
    for (; i > 0 && s->running[i - 1]->background && !g->background; i--) s->running[i] = s->running[i - 1];
    s->running[i] = g;
}

static void remove_running(descent_scheduler *s, descent_generation *g)
{
    size_t i = place_of(s, g);
    if (i == s->n_running) return;
    s->n_running--;
    for (; i < s->n_running; i++) s->running[i] = s->running[i + 1];
    s->refused = NULL;
}

static descent_generation *last_running(const descent_scheduler *s)
{
    return s->running[s->n_running - 1];
}

/* What was found out about one generation's drafts is where the next one of its depth begins. */
static size_t find_drafted(const descent_scheduler *s, uint32_t total)
{
    size_t i = 0;
    while (i < DRAFT_DEPTHS && s->drafted[i].total != total) i++;
    return i;
}

static void remember_drafts(descent_scheduler *s, const descent_generation *g)
{
    uint32_t total = g->options.depth.steps[0];
    size_t i = find_drafted(s, total);
    if (i == DRAFT_DEPTHS) i--;
    memmove(&s->drafted[1], &s->drafted[0], i * sizeof s->drafted[0]);
    s->drafted[0].total = total;
    s->drafted[0].record = g->record;
}

void schedule_remove(descent_scheduler *s, descent_generation *g)
{
    if (g->draft_steps == DESCENT_DRAFT_AUTO && g->begun) remember_drafts(s, g);
    if (g->waiting) line_remove(&s->lines[g->background], g);
    if (s->refused == g) s->refused = NULL;
    generation_release(g);
    remove_running(s, g);
}

void schedule_pause_last(descent_scheduler *s)
{
    descent_generation *g = last_running(s);
    generation_charge(g, &g->report.queue_seconds);
    generation_release(g);
    remove_running(s, g);
    line_prepend(&s->lines[g->background], g);
    g->report.pauses++;
    s->counted.pauses++;
}

/* Somebody in the foreground is there: the background stands still. */
static bool foreground_waits(const descent_scheduler *s)
{
    return s->lines[0].count > 0 || (s->n_running > 0 && !s->running[0]->background);
}

/* ---- Beginning --------------------------------------------------------------------------------------------------- */

/* Bytes that the rows of its text will still take. */
static uint64_t missing_bytes(const descent_scheduler *s, const descent_generation *g)
{
    uint64_t bytes = 0;
    for (size_t k = 0; k < g->sequence->n_pages; k++)
        bytes += page_missing(s->cache, g->sequence->pages[k], generation_needs(g, s->model, k));
    return bytes;
}

/* Bytes of the next page of a text that will come to need one; drafts may have it already. */
static uint64_t growth(const descent_scheduler *s, const descent_generation *g)
{
    size_t tokens = g->sequence->n_pages * PAGE_TOKENS;
    if (tokens >= generation_most_held(g) || tokens >= g->count + PAGE_TOKENS) return 0;
    return pages_bytes(s->model, s->page_type, 1, generation_needs(g, s->model, g->sequence->n_pages));
}

/* A generation that has just received its sequence fits beside those that run. */
static bool fits(const descent_scheduler *s, const descent_generation *g)
{
    uint64_t wanted = s->cache->bytes - s->cache->idle_bytes + missing_bytes(s, g) + growth(s, g);
    for (size_t i = 0; i < s->n_running; i++) wanted += missing_bytes(s, s->running[i]) + growth(s, s->running[i]);
    return wanted <= s->byte_limit;
}

static bool lacks_memory(descent_code code)
{
    return code == DESCENT_LIMIT || code == DESCENT_NO_MEMORY;
}

/* All drafts go, and for a while there are none. False: there were none. */
static bool drop_drafts(descent_scheduler *s)
{
    const uint64_t steps_without = 64;
    bool any = false;
    for (size_t i = 0; i < s->n_running; i++) any |= generation_drop_drafts(s->running[i]);
    if (any) s->drafts_from = s->counted.steps + steps_without;
    return any;
}

static void start_running(descent_scheduler *s, descent_generation *g)
{
    line_remove(&s->lines[g->background], g);
    generation_charge(g, g->prompt_done ? &g->report.generation_seconds : &g->report.prompt_seconds);
    size_t known = find_drafted(s, g->options.depth.steps[0]);
    if (!g->begun && known < DRAFT_DEPTHS) g->record = s->drafted[known].record;
    if (!g->begun) {
        g->report.reused = descent_sequence_reused(g->sequence);
        g->report.deepened = descent_sequence_deepened(g->sequence);
    }
    g->begun = true;
    g->like = NULL;
    g->turn = s->turns;
    add_running(s, g);
}

/* False where there is no room: it stays in its line. */
static bool begin(descent_scheduler *s, descent_generation *g)
{
    descent_status status;
    for (;;) {
        if (s->n_running > 0 && s->refused == g) return false;
        descent_code code = generation_begin(g, s->cache, &status);
        if (code == DESCENT_OK && (s->n_running == 0 || fits(s, g))) {
            start_running(s, g);
            return true;
        }
        generation_release(g);
        if (code != DESCENT_OK && !lacks_memory(code)) break;
        if (drop_drafts(s)) continue;
        if (s->n_running == 0 && g->options.no_sharing) break;
        if (s->n_running == 0) {
            g->options.no_sharing = true; /* what others left holds more than it needs: alone with its own it fits */
        } else if (!g->background && last_running(s)->background) {
            schedule_pause_last(s);
        } else {
            s->refused = g;
            return false;
        }
    }
    generation_end(g, DESCENT_END_FAILED, &status);
    s->failed_waiting = true;
    return true;
}

/* Whose turn it is to begin. */
static descent_generation *first_waiting(const descent_scheduler *s)
{
    descent_generation *g = s->lines[foreground_waits(s) ? 0 : 1].first;
    while (g && (g->over || (g->like && !g->like->prompt_done))) g = g->next;
    return g;
}

static void let_begin(descent_scheduler *s)
{
    descent_generation *g;
    while ((g = first_waiting(s)) != NULL) {
        if (s->n_running == s->max_running) {
            if (g->background || !last_running(s)->background) return;
            schedule_pause_last(s);
        }
        if (!begin(s, g)) return;
    }
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* Enrols rows of a running generation, pausing the last ones while there is no memory for the first of these rows. */
static size_t enrol(descent_scheduler *s, descent_generation *g, size_t most)
{
    for (;;) {
        size_t added;
        descent_status status;
        descent_code code = generation_take_rows(g, s->batch, most, &added, &status);
        if (code == DESCENT_OK) return added;
        if (lacks_memory(code) && drop_drafts(s)) continue;
        bool alone = s->n_running == 1, may_pause = lacks_memory(code) && !(alone && g->options.no_sharing);
        if (!may_pause) {
            generation_end(g, DESCENT_END_FAILED, &status);
            return 0;
        }
        if (alone) g->options.no_sharing = true; /* as in begin() */
        bool itself = last_running(s) == g;
        schedule_pause_last(s);
        if (itself) return 0;
    }
}

/* Those from place `runnable` on are in the background while somebody else is there. */
static size_t count_runnable(const descent_scheduler *s)
{
    size_t n = s->n_running;
    if (!foreground_waits(s)) return n;
    while (n > 0 && s->running[n - 1]->background) n--;
    return n;
}

/* What is told of its rows is not lost if they leave now. A sweep is told of them once more when they come back, but not of the
 * energy behind a last step. */
static bool may_leave(const descent_scheduler *s, const descent_generation *g)
{
    if (!sequence_resumes(g->sequence)) return false;
    return !g->observe || (g->sweep && !batch_measures(s->batch, g->sequence));
}

/* Their rows leave where that loses nothing; elsewhere they finish their tokens. */
static void stop_background(descent_scheduler *s)
{
    if (!descent_model_describe(s->model)->deepens) return;
    for (size_t i = count_runnable(s); i < s->n_running; i++)
        if (may_leave(s, s->running[i])) descent_batch_remove(s->batch, s->running[i]->sequence);
}

/* What may end anywhere does not keep step. */
static bool keeps_step(const descent_generation *g)
{
    return !g->over && generation_decodes(g) && g->options.exit.criterion == DESCENT_EXIT_NONE &&
           g->options.solver.method == DESCENT_SOLVER_PLAIN && g->draft_now == 0 && g->drafted == 0;
}

/* Running generation i is about to begin a token, and would have its logits read by itself from now on, while those of somebody
 * who began before it are read some steps earlier or later again and again: it begins with the step from which they are read
 * together. That is asked once more with each token, and is true but once, until whom it follows has gone. */
static bool falls_in_step(const descent_scheduler *s, size_t i)
{
    const descent_generation *g = s->running[i];
    if (!s->heavy_head || !keeps_step(g)) return false;
    for (size_t k = 0; k < i; k++) {
        const descent_generation *leader = s->running[k];
        if (!keeps_step(leader) || !leader->sequence->batch) continue;
        uint32_t own = g->sequence->total, its = leader->sequence->total, both = own < its ? own : its;
        if (own % both == 0 && its % both == 0)
            return (its - sequence_progress(leader->sequence, leader->count - 1)) % both != 0;
    }
    return false;
}

static void enrol_decodes(descent_scheduler *s)
{
    for (size_t i = 0; i < count_runnable(s); i++) {
        descent_generation *g = s->running[i];
        if (!g->over && generation_decodes(g) && generation_lacks_row(g) && !falls_in_step(s, i)) (void)enrol(s, g, 1);
    }
}

static bool wants_prompt_rows(const descent_generation *g)
{
    return !g->over && !g->satisfied && !generation_decodes(g) && generation_lacks_row(g);
}

static uint64_t *turn_of(descent_scheduler *s, descent_generation *g)
{
    return g->sweep ? &s->sweeps_turn : &g->turn;
}

/* The prompt that was served longest ago; of sweeps the first. */
static descent_generation *next_prompt(descent_scheduler *s)
{
    descent_generation *best = NULL;
    bool sweeps = false;
    for (size_t i = 0; i < count_runnable(s); i++) {
        descent_generation *g = s->running[i];
        if (!wants_prompt_rows(g) || (g->sweep && sweeps)) continue;
        sweeps = sweeps || g->sweep;
        if (!best || *turn_of(s, g) < *turn_of(s, best)) best = g;
    }
    return best;
}

static void enrol_prompts(descent_scheduler *s)
{
    size_t in_flight = 0, prompts = 0, sweeps = 0, runnable = count_runnable(s);
    for (size_t i = 0; i < s->n_running; i++) {
        descent_generation *g = s->running[i];
        g->satisfied = i >= runnable;
        if (!generation_decodes(g)) in_flight += g->sequence->rows;
        *(g->sweep ? &sweeps : &prompts) += wants_prompt_rows(g);
    }
    prompts += sweeps > 0;
    size_t room = in_flight < s->chunk ? s->chunk - in_flight : 0;
    size_t share = prompts > 0 && room > prompts ? room / prompts : 1;
    descent_generation *g;
    while (room > 0 && (g = next_prompt(s)) != NULL) {
        size_t added = enrol(s, g, share < room ? share : room);
        *turn_of(s, g) = ++s->turns;
        g->satisfied = added == 0;
        room -= added;
    }
}

/* ---- Drafts ------------------------------------------------------------------------------------------------------ */

static void enrol_drafts(descent_scheduler *s)
{
    for (size_t i = 0; i < count_runnable(s); i++) {
        descent_generation *g = s->running[i];
        size_t rows = descent_batch_rows(s->batch);
        descent_status status;
        if (rows >= DRAFT_ROWS) return;
        if (g->over || !generation_decodes(g)) continue;
        if (generation_take_drafts(g, s->batch, DRAFT_ROWS - rows, &status) != DESCENT_OK) (void)drop_drafts(s);
    }
}

/* Whether the tokens of a running generation are asked for guesses, and how often. A choice stands until the next token. */
static uint32_t steps_between_guesses(descent_scheduler *s, descent_generation *g)
{
    size_t rows = descent_batch_rows(s->batch), others = rows - g->sequence->rows;
    if (s->counted.steps < s->drafts_from || g->count < g->drafts_from || others + 2 > DRAFT_ROWS) return 0;
    if (g->draft_steps != DESCENT_DRAFT_AUTO) return (uint32_t)g->draft_steps;
    if (g->report.generated == g->draft_chosen_for) return g->draft_chosen;
    g->draft_chosen_for = g->report.generated;
    g->draft_chosen = draft_choose(&s->draft_costs, &g->record, g->sequence->total, others);
    return g->draft_chosen;
}

static void choose_drafting(descent_scheduler *s)
{
    s->drafting = false;
    for (size_t i = 0; i < s->n_running; i++) {
        descent_generation *g = s->running[i];
        if (g->draft_steps == 0) continue;
        g->draft_now = steps_between_guesses(s, g);
        s->drafting |= g->draft_now > 0 || g->drafted > 0;
    }
}

/* A token that was enrolled loses its row with the drafts behind it where these go for somebody else's memory, whoever comes to
 * lack it; so tokens are enrolled once more at the end, where no drafts are left that could go. */
void schedule_rows(descent_scheduler *s)
{
    let_begin(s);
    stop_background(s);
    if (!descent_model_describe(s->model)->deepens && descent_batch_rows(s->batch) > 0) return;
    enrol_decodes(s);
    enrol_prompts(s);
    if (s->drafting) enrol_drafts(s);
    enrol_decodes(s);
    for (size_t i = 0; i < s->n_running; i++) generation_count_drafts(s->running[i]);
    choose_drafting(s);
}
