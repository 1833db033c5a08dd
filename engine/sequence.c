/* sequence.c: tokens and the pages that belong to them. Owns appending, truncating, changing depth, and what is shared
 * with others: pages are looked for when an empty sequence receives its first tokens (or a new depth), and offered once full
 * and no longer holding the last token. Rows are advanced by batch.c. */
#include "sequence.h"

#include "batch.h"
#include "exit.h"
#include "motion.h"
#include "solver.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

/* ---- Shared with batch.c, observe.c and snapshot.c -------------------------------------------------------------- */

void sequence_count(descent_sequence *s)
{
    size_t i = s->finished;
    while (i < s->length && sequence_done(s, i)) i++;
    s->finished = i;
}

/* No token of a page that ends before exit.first stops early: it is the page of who asks for no exit. Where tokens of one T are
 * not those of another, those of a prompt are those of who has its T. */
static page_seed sequence_seed(const descent_sequence *s, size_t block)
{
    page_seed seed = s->seed;
    size_t end = (block + 1) * PAGE_TOKENS;
    if (end <= seed.exit.first) seed.exit = (descent_exit){.criterion = DESCENT_EXIT_NONE};
    if (sequence_reads_last(s)) seed.depth = sequence_token_depth(s, end - 1);
    return seed;
}

/* Behind the last block that others may see, or that may be another's. */
static size_t shared_blocks(const descent_sequence *s)
{
    return s->private_from < s->uneven_from ? s->private_from : s->uneven_from;
}

void sequence_publish(descent_sequence *s, bool last)
{
    if (s->no_sharing || s->ended != DESCENT_OK) return;
    page *parent = NULL;
    for (size_t b = 0; b < s->n_pages && b < shared_blocks(s); b++) {
        size_t end = (b + 1) * PAGE_TOKENS;
        if (end > s->finished || (end == s->length && !last)) return;
        page *p = s->pages[b];
        if (!p->published) {
            if (p->worker) return;
            page_seed seed = sequence_seed(s, b);
            uint32_t totals[PAGE_TOKENS]; /* a prompt may end within the page */
            for (size_t i = 0; i < PAGE_TOKENS; i++) totals[i] = sequence_total(s, b * PAGE_TOKENS + i);
            p = page_publish(s->cache, p, parent, &seed, totals);
            s->pages[b] = p;
            if (!p->published) return;
        }
        parent = p;
    }
}

descent_code sequence_make_private(descent_sequence *s, size_t first, descent_status *status)
{
    for (size_t b = first; b < s->n_pages; b++) {
        page *p = s->pages[b], *own;
        if (!p->published && p->users == 1) continue;
        size_t held = s->length - b * PAGE_TOKENS;
        descent_code code = page_copy(s->cache, p, held < PAGE_TOKENS ? held : PAGE_TOKENS, &own, status);
        if (code != DESCENT_OK) return code;
        s->pages[b] = own;
        page_release(s->cache, p);
    }
    if (first < s->private_from) s->private_from = first;
    return DESCENT_OK;
}

void sequence_end(descent_sequence *s, size_t position, place where)
{
    if (s->ended != DESCENT_OK) return;
    s->ended = DESCENT_DIVERGED;
    s->ended_position = position;
    s->ended_step = where.step;
    s->ended_layer = where.layer;
    s->ended_kind = where.kind;
}

static descent_code sequence_alive(const descent_sequence *s, descent_status *status)
{
    if (s->ended == DESCENT_OK) return DESCENT_OK;
    return descent_sequence_state_code(s, status);
}

/* ---- Making and unmaking --------------------------------------------------------------------------------------- */

static void sequence_settle(descent_sequence *s)
{
    const descent_model *model = s->cache->model;
    s->total = model->family->progression->total(model, s->depth);
    s->prompt_total = s->history.prompt > 0 ? history_prompt_steps(&s->history, s->depth) : s->total;
    s->seed.history = history_seed(&s->history, s->depth);
    s->seed.depth = sequence_resumes(s) ? (descent_depth){{0}} : s->depth;
    s->uneven_from = history_uneven(&s->history, s->depth) ? s->history.prompt / PAGE_TOKENS : SIZE_MAX;
}

descent_code sequence_complete_options(const descent_model *model, descent_sequence_options *options, descent_status *status)
{
    const descent_depth none = {{0}};
    if (!memcmp(&options->depth, &none, sizeof none)) options->depth = model->info.trained;
    descent_code code = depth_check(model, options->depth, status);
    if (code == DESCENT_OK) code = motion_complete(model, &options->motion, status);
    if (code == DESCENT_OK && options->motion.noise.sigma > 0) options->no_sharing = true;
    if (code == DESCENT_OK) code = exit_complete(&model->info, &options->exit, status);
    if (code == DESCENT_OK) code = solver_complete(model, &options->motion, &options->exit, &options->solver, status);
    return code == DESCENT_OK ? history_complete(model, options, status) : code;
}

/* Planes of a page whose tokens have that T. */
static uint32_t planes_of(const descent_model *model, const descent_sequence_options *options, descent_depth depth,
                          descent_history_policy policy, int observe)
{
    bool deepens = model->info.deepens, measures = model->family->measures && (observe & DESCENT_OBSERVE_FINAL);
    bool stops = deepens && options->exit.criterion != DESCENT_EXIT_NONE && options->exit.criterion != DESCENT_EXIT_ENERGY;
    stops = stops || (deepens && options->solver.method == DESCENT_SOLVER_ANDERSON);
    bool outlasted = policy == DESCENT_HISTORY_LATEST && depth.steps[0] < options->depth.steps[0];
    return model->family->progression->planes(model, depth) + (measures || stops || outlasted);
}

page_needs needs_of(const descent_model *model, const descent_sequence_options *options, int observe, size_t block)
{
    descent_history_policy policy = history_seed(&options->history, options->depth).policy;
    descent_depth first = history_depth(&options->history, options->depth, block * PAGE_TOKENS);
    descent_depth last = history_depth(&options->history, options->depth, (block + 1) * PAGE_TOKENS - 1);
    uint32_t of_first = planes_of(model, options, first, policy, observe);
    uint32_t of_last = planes_of(model, options, last, policy, observe);
    uint32_t planes = of_first > of_last ? of_first : of_last;
    return (page_needs){.planes = policy == DESCENT_HISTORY_LAST ? 1 : planes,
                        .velocity = model->info.deepens && options->motion.momentum > 0};
}

static descent_sequence_options options_of(const descent_sequence *s)
{
    return (descent_sequence_options){
        .depth = s->depth, .motion = s->seed.motion, .exit = s->seed.exit, .solver = s->seed.solver, .history = s->history};
}

page_needs sequence_needs(const descent_sequence *s, size_t block)
{
    descent_sequence_options options = options_of(s);
    return needs_of(s->cache->model, &options, s->observe, block);
}

/* Pages are alike before the one in which the prompt ends, and behind it. */
uint64_t text_bytes(const descent_model *model, descent_page_type type, const descent_sequence_options *options, int observe,
                    uint64_t tokens)
{
    uint64_t ends = options->history.prompt / PAGE_TOKENS, firsts[] = {0, ends, ends + 1}, sum = 0;
    for (size_t k = 0; k < 3; k++) {
        uint64_t begin = firsts[k] * PAGE_TOKENS, end = k < 2 ? firsts[k + 1] * PAGE_TOKENS : UINT64_MAX;
        if (tokens <= begin) continue;
        page_needs needs = needs_of(model, options, observe, (size_t)firsts[k]);
        uint64_t bytes = pages_bytes(model, type, (tokens < end ? tokens : end) - begin, needs);
        if (__builtin_add_overflow(sum, bytes, &sum)) return UINT64_MAX;
    }
    return sum;
}

uint64_t sequence_bytes(const descent_sequence *s, uint64_t tokens)
{
    descent_sequence_options options = options_of(s);
    return text_bytes(s->cache->model, s->cache->page_type, &options, s->observe, tokens);
}

uint64_t descent_cache_bytes_needed(const descent_model *model, descent_page_type type, uint64_t tokens,
                                    const descent_sequence_options *options)
{
    descent_sequence_options asked = options ? *options : (descent_sequence_options){.no_sharing = false};
    if ((unsigned)type >= DESCENT_PAGE_TYPES || sequence_complete_options(model, &asked, NULL) != DESCENT_OK) return UINT64_MAX;
    return text_bytes(model, type, &asked, 0, tokens);
}

descent_code descent_sequence_create(descent_cache *cache, const descent_sequence_options *options, descent_sequence **out,
                                     descent_status *status)
{
    if (!cache || !out) return descent_fail(status, DESCENT_BAD_ARGUMENT, "a sequence needs a cache and a place to be put");
    descent_sequence_options asked = options ? *options : (descent_sequence_options){.no_sharing = false};
    descent_code code = sequence_complete_options(cache->model, &asked, status);
    if (code != DESCENT_OK) return code;
    descent_sequence *s = calloc(1, sizeof *s);
    if (!s) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a sequence");
    s->cache = cache;
    s->depth = asked.depth;
    s->seed.motion = asked.motion;
    s->seed.solver = asked.solver;
    s->seed.exit = asked.exit;
    s->history = asked.history;
    s->seed.share_group = asked.share_group;
    s->no_sharing = asked.no_sharing;
    s->private_from = SIZE_MAX;
    sequence_settle(s);
    *out = s;
    return descent_ok(status);
}

static void drop_pages(descent_sequence *s, size_t keep)
{
    while (s->n_pages > keep) page_release(s->cache, s->pages[--s->n_pages]);
}

void descent_sequence_destroy(descent_sequence *s)
{
    if (!s) return;
    if (s->batch) descent_batch_remove(s->batch, s);
    sequence_publish(s, true);
    drop_pages(s, 0);
    for (size_t i = 0; i < s->n_interventions; i++) free(s->interventions[i].values);
    free(s->interventions);
    sequence_drop_starts(s, 0);
    free(s->starts);
    free(s->lacking);
    free(s->pages);
    free(s->tokens);
    free(s);
}

/* ---- Tokens ---------------------------------------------------------------------------------------------------- */

static descent_code make_room(descent_sequence *s, size_t length, descent_status *status)
{
    size_t blocks = (length + PAGE_TOKENS - 1) / PAGE_TOKENS;
    if (blocks <= s->room) return DESCENT_OK;
    size_t room = blocks > 2 * s->room ? blocks : 2 * s->room;
    uint32_t *tokens = realloc(s->tokens, room * PAGE_TOKENS * sizeof *tokens);
    if (tokens) s->tokens = tokens;
    page **pages = tokens ? realloc(s->pages, room * sizeof *pages) : NULL;
    if (pages) s->pages = pages;
    uint32_t *lacking = pages ? realloc(s->lacking, room * sizeof *lacking) : NULL;
    if (!lacking) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a sequence of %zu tokens", length);
    memset(lacking + s->room, 0, (room - s->room) * sizeof *lacking);
    s->lacking = lacking;
    s->room = room;
    return DESCENT_OK;
}

/* Takes pages that others computed for the sequence's first tokens. */
static void adopt_shared(descent_sequence *s)
{
    if (s->no_sharing) return;
    page *parent = NULL;
    while ((s->n_pages + 1) * PAGE_TOKENS < s->length && s->n_pages < shared_blocks(s)) {
        page_seed seed = sequence_seed(s, s->n_pages);
        page *p = page_find(s->cache, parent, &seed, s->tokens + s->n_pages * PAGE_TOKENS);
        if (!p) break;
        page_hold(s->cache, p);
        s->pages[s->n_pages++] = p;
        s->cache->hits++;
        parent = p;
    }
}

/* Pages for every token that has none, with those tokens in them. */
static descent_code add_pages(descent_sequence *s, size_t from, descent_status *status)
{
    while (s->n_pages * PAGE_TOKENS < s->length) {
        descent_code code = page_create(s->cache, &s->pages[s->n_pages], status);
        if (code != DESCENT_OK) return code;
        s->n_pages++;
    }
    for (size_t i = from; i < s->length; i++) {
        page *p = sequence_page(s, i);
        if (!p->published) page_clear(p, i % PAGE_TOKENS, s->tokens[i]);
    }
    return DESCENT_OK;
}

/* What an empty sequence found for its first tokens: finished, or on the way to its depth. Behind the first of these there may
 * be some that have stopped: they are neither reused, which is a run from the first token on, nor deepened. */
static void count_found(descent_sequence *s)
{
    _Static_assert(PAGE_TOKENS <= 32, "a bit for each token of a page");
    s->reused = s->finished;
    s->deepened = 0;
    for (size_t i = s->finished; i < s->length && sequence_progress(s, i) > 0; i++) {
        if (sequence_done(s, i)) continue;
        s->lacking[i / PAGE_TOKENS] |= UINT32_C(1) << i % PAGE_TOKENS;
        s->deepened++;
    }
}

/* Of what it found, the first `count` tokens are left. */
static void count_left(descent_sequence *s, size_t count)
{
    if (s->reused > count) s->reused = count;
    for (size_t i = count; i < s->length; i++) {
        uint32_t *of_page = &s->lacking[i / PAGE_TOKENS], bit = UINT32_C(1) << i % PAGE_TOKENS;
        s->deepened -= (*of_page & bit) != 0;
        *of_page &= ~bit;
    }
}

descent_code descent_sequence_append(descent_sequence *s, const uint32_t *tokens, size_t count, descent_status *status)
{
    const descent_model_info *info = &s->cache->model->info;
    descent_code code = sequence_alive(s, status);
    if (code != DESCENT_OK) return code;
    if (count == 0) return descent_ok(status);
    if (count > info->context - s->length)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "%zu tokens after %zu: the context of %s holds %u", count, s->length,
                            info->name, info->context);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] >= info->vocab)
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "token %u at position %zu: the vocabulary has ids 0 to %u",
                                tokens[i], s->length + i, info->vocab - 1);
    size_t length = s->length, n_pages = s->n_pages;
    if ((code = make_room(s, length + count, status)) != DESCENT_OK) return code;
    memcpy(s->tokens + length, tokens, count * sizeof *tokens);
    s->length += count;
    if (length == 0) adopt_shared(s);
    if ((code = add_pages(s, length, status)) != DESCENT_OK) {
        s->length = length;
        drop_pages(s, n_pages);
        return code;
    }
    sequence_count(s);
    if (length == 0) count_found(s);
    sequence_publish(s, false);
    return descent_ok(status);
}

static bool any_started(const descent_sequence *s)
{
    for (size_t i = 0; s->has_starts && i < s->length; i++)
        if (sequence_page(s, i)->started[i % PAGE_TOKENS]) return true;
    return false;
}

descent_code descent_sequence_truncate(descent_sequence *s, size_t count, descent_status *status)
{
    if (count > s->length)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "cannot keep %zu tokens of a sequence of %zu", count, s->length);
    if (s->ended != DESCENT_OK && count > s->ended_position)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "the sequence diverged at token %zu: at most that many tokens can be kept", s->ended_position);
    if (count == s->length) return descent_ok(status);
    if (s->batch) descent_batch_remove(s->batch, s);
    sequence_publish(s, true);
    size_t kept = count / PAGE_TOKENS, part = count % PAGE_TOKENS;
    if (part) { /* a page cut in two goes on as a page of its own */
        page *p = s->pages[kept];
        if (p->published || p->users > 1) {
            page *own;
            descent_code code = page_copy(s->cache, p, part, &own, status);
            if (code != DESCENT_OK) return code;
            s->pages[kept] = own;
            page_release(s->cache, p);
        }
        kept++;
    }
    drop_pages(s, kept);
    sequence_drop_starts(s, count);
    count_left(s, count);
    s->length = count;
    if (s->rest_before > count) s->rest_before = count;
    s->has_starts = any_started(s);
    if (s->finished > count) s->finished = count;
    s->ended = DESCENT_OK;
    return descent_ok(status);
}

/* ---- Depth ----------------------------------------------------------------------------------------------------- */

/* Where another depth is another computation: every token starts again, from what others have computed at that depth. */
static descent_code restart(descent_sequence *s, descent_depth depth, descent_status *status)
{
    descent_depth before = s->depth;
    page **pages = s->pages;
    size_t n_pages = s->n_pages;
    s->pages = calloc(s->room ? s->room : 1, sizeof *s->pages);
    if (!s->pages) {
        s->pages = pages;
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory to restart a sequence of %zu tokens", s->length);
    }
    s->n_pages = 0;
    s->depth = depth;
    sequence_settle(s);
    adopt_shared(s);
    descent_code code = add_pages(s, s->n_pages * PAGE_TOKENS, status);
    page **dropped = code == DESCENT_OK ? pages : s->pages;
    size_t n_dropped = code == DESCENT_OK ? n_pages : s->n_pages;
    if (code != DESCENT_OK) {
        s->pages = pages;
        s->n_pages = n_pages;
        s->depth = before;
        sequence_settle(s);
    }
    while (n_dropped > 0) page_release(s->cache, dropped[--n_dropped]);
    free(dropped);
    if (code != DESCENT_OK) return code;
    s->finished = s->rest_before = 0;
    sequence_count(s);
    s->reused = s->finished;
    return DESCENT_OK;
}

descent_code descent_sequence_set_depth(descent_sequence *s, descent_depth depth, descent_status *status)
{
    const descent_model *model = s->cache->model;
    descent_code code = sequence_alive(s, status);
    if (code != DESCENT_OK) return code;
    if ((code = depth_check(model, depth, status)) != DESCENT_OK) return code;
    if ((code = history_check(&s->history, depth, status)) != DESCENT_OK) return code;
    if (!memcmp(&depth, &s->depth, sizeof depth)) return descent_ok(status);
    if (s->has_starts && !sequence_deepens(s))
        return descent_fail(status, DESCENT_UNSUPPORTED,
                            "a %s sequence with started tokens keeps its depth: make a new sequence", model->info.family);
    if (s->batch) descent_batch_remove(s->batch, s);
    sequence_publish(s, true);
    if (!sequence_deepens(s)) {
        code = restart(s, depth, status);
        return code == DESCENT_OK ? descent_ok(status) : code;
    }
    s->depth = depth;
    sequence_settle(s);
    s->finished = 0; /* behind tokens that have more to do there may be some that have stopped */
    sequence_count(s);
    if (s->reused > s->finished) s->reused = s->finished;
    return descent_ok(status);
}

/* ---- Reading --------------------------------------------------------------------------------------------------- */

descent_depth descent_sequence_depth(const descent_sequence *s)
{
    return s->depth;
}

size_t descent_sequence_length(const descent_sequence *s)
{
    return s->length;
}

const uint32_t *descent_sequence_tokens(const descent_sequence *s)
{
    return s->tokens;
}

size_t descent_sequence_finished(const descent_sequence *s)
{
    return s->finished;
}

size_t descent_sequence_reused(const descent_sequence *s)
{
    return s->reused;
}

size_t descent_sequence_deepened(const descent_sequence *s)
{
    return s->deepened;
}

uint64_t descent_sequence_steps_run(const descent_sequence *s)
{
    return s->steps_run;
}

descent_exit_cost descent_sequence_exit_cost(const descent_sequence *s)
{
    descent_exit_cost cost = {.readings = s->work.readings};
    for (int k = 0; k < DESCENT_MAX_KINDS; k++) cost.energies += s->work.energies[k];
    return cost;
}

uint32_t descent_sequence_token_steps(const descent_sequence *s, size_t position)
{
    return position < s->length ? sequence_page(s, position)->spent[position % PAGE_TOKENS] : 0;
}

bool descent_sequence_converged(const descent_sequence *s, size_t position)
{
    return position >= s->length || !sequence_page(s, position)->unsolved[position % PAGE_TOKENS];
}

descent_code descent_sequence_state_code(const descent_sequence *s, descent_status *status)
{
    const descent_model_info *info = &s->cache->model->info;
    if (s->ended == DESCENT_OK) return descent_ok(status);
    if (info->layers == 1 && info->kinds == 1)
        return descent_fail(status, DESCENT_DIVERGED, "diverged at token %zu, step %u: its state is not finite",
                            s->ended_position, s->ended_step);
    return descent_fail(status, DESCENT_DIVERGED, "diverged at token %zu, step %u of %s in layer %u: its state is not finite",
                        s->ended_position, s->ended_step, info->kind_names[s->ended_kind], s->ended_layer);
}

descent_code descent_sequence_state(const descent_sequence *s, size_t position, float *x, uint32_t *steps,
                                    descent_status *status)
{
    const descent_model *model = s->cache->model;
    if (position >= s->length)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "position %zu of a sequence of %zu tokens", position, s->length);
    const page *p = sequence_page(s, position);
    uint32_t progress = p->progress[position % PAGE_TOKENS];
    if (progress == 0 && s->batch && position >= s->finished && position < s->next_row && !sequence_resumes(s))
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "token %zu is in the middle of its descent", position);
    if (progress == 0 && !p->started[position % PAGE_TOKENS])
        model->family->embed(model, s->tokens[position], position, x);
    else
        memcpy(x, page_state(s->cache, p, position % PAGE_TOKENS), model->info.width * sizeof *x);
    if (steps) *steps = progress;
    return descent_ok(status);
}
