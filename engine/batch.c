/* batch.c: rows of many sequences advanced together. Owns the rows, the arrays their steps work in, and the order: which
 * rows may run (every earlier token of their sequence has come as far, or comes along), and which share the earliest
 * weights. The arithmetic is the family's. */
#include "batch.h"

#include "attention.h"
#include "exit.h"
#include "kernels/packed.h"
#include "machine.h"
#include "motion.h"
#include "sequence.h"
#include "solver.h"
#include "status.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 65536, DEFAULT_ROWS = 512, MOST_THREADS = 1024 };
enum { MOST_NUMBERS = 1 << 27 }; /* of a workspace, and of what rows keep: half a gigabyte each */

struct descent_batch {
    descent_cache *cache;
    const kernels *kernels;
    team *team;
    row *rows; /* [n] of max_rows; a sequence's rows stand together, in order of position */
    size_t n, max_rows;
    row **order;                /* [max_rows] the rows of a step */
    descent_sequence **touched; /* [max_rows] those that lost rows in a step */
    void *frozen;               /* [max_rows][model->frozen], as lazy_zeros made it */
    float **free_frozen;        /* stack of those not in use */
    size_t n_free_frozen;
    size_t kept;  /* numbers that rows keep to themselves */
    void *arrays; /* the workspace's memory, likewise */
    workspace work;
};

/* ---- Making and unmaking --------------------------------------------------------------------------------------- */

static size_t whole_vectors(size_t n)
{
    return (n + 15) / 16 * 16;
}

/* Zeros aligned as descent_alloc's are, which the system gives memory for when they are written: most batches are not full.
 * *memory is for free(). NULL: no memory. */
static float *lazy_zeros(size_t count, void **memory)
{
    const size_t line = 64 / sizeof(float);
    *memory = calloc(count + line, sizeof(float));
    if (!*memory) return NULL;
    uintptr_t behind = (uintptr_t)*memory % 64;
    return (float *)*memory + (behind ? (64 - behind) / sizeof(float) : 0);
}

/* Packed matrices meet 16 vectors at a time: beyond those more rows in a tile save nothing but meetings of threads, and cost
 * memory. Others are walked along once for all rows. */
static size_t tile_rows(const descent_batch *b)
{
    enum { ROWS_A_THREAD = 8, LEAST = 32 };
    const descent_model *model = b->cache->model;
    uint64_t bytes = 0;
    for (size_t m = 0; m < model->n_matrices; m++)
        if (model->matrices[m].packed) bytes += packed_bytes(model->matrices[m].packed);
    size_t rows = ROWS_A_THREAD * (size_t)team_threads(b->team);
    if (rows < LEAST) rows = LEAST;
    return 2 * bytes > model->info.file_bytes && rows < b->work.rows ? rows : b->work.rows;
}

static bool make_workspace(descent_batch *b)
{
    const descent_model *model = b->cache->model;
    workspace *w = &b->work;
    w->wide_stride = vector_stride(model->info.width);
    w->hidden_stride = vector_stride(model->hidden);
    size_t row_numbers = (WIDE_BUFFERS + 1) * w->wide_stride + HIDDEN_BUFFERS * w->hidden_stride;
    w->rows = MOST_NUMBERS / row_numbers < TILE_ROWS ? MOST_NUMBERS / row_numbers : TILE_ROWS;
    if (w->rows == 0) w->rows = 1;
    w->most = tile_rows(b);
    size_t wide = w->rows * w->wide_stride, hidden = w->rows * w->hidden_stride;
    size_t terms = TILE_ROWS * DESCENT_MAX_TERMS;
    float *at = lazy_zeros((WIDE_BUFFERS + 1) * wide + HIDDEN_BUFFERS * hidden + 2 * ROW_SCRATCH * w->wide_stride + 2 * terms,
                           &b->arrays);
    if (!at) return false;
    for (int i = 0; i < WIDE_BUFFERS; i++, at += wide) w->wide[i] = at;
    for (int i = 0; i < HIDDEN_BUFFERS; i++, at += hidden) w->hidden[i] = at;
    w->velocity = at;
    w->numbers = (double *)(void *)(at + wide); /* behind whole vectors */
    at += wide + 2 * ROW_SCRATCH * w->wide_stride;
    for (int i = 0; i < 2; i++, at += terms) w->energy[i] = (float(*)[DESCENT_MAX_TERMS])(void *)at;
    return true;
}

/* Scratch for scores over histories of `longest` tokens on every thread. */
static bool reserve_scores(descent_batch *b, size_t longest)
{
    workspace *w = &b->work;
    if (longest <= w->score_room) return true;
    size_t room = vector_stride(longest > 2 * w->score_room ? longest : 2 * w->score_room);
    float *scores = descent_alloc(team_threads(b->team) * SCORE_BUFFERS * RUN_ROWS * room, sizeof *scores);
    if (!scores) return false;
    free(w->scores);
    w->scores = scores;
    w->score_room = w->score_stride = room;
    return true;
}

/* Its rows' logits are read on the way, to see whether they stop or for the observer. */
static bool reads_on_the_way(const descent_sequence *s)
{
    return exit_reads(&s->seed.exit) || (s->observe & DESCENT_OBSERVE_LOGITS);
}

/* Room for logits of rows on their way, once one asks: of a whole tile where that is not too much. */
static bool reserve_readings(descent_batch *b, row *const *rows, size_t n)
{
    enum { LEAST = 2, MOST_LOGITS = 1 << 22 };
    workspace *w = &b->work;
    size_t vocab = b->cache->model->info.vocab, most = LEAST * w->rows;
    while (n > 0 && !reads_on_the_way(rows[n - 1]->sequence)) n--;
    if (n == 0 || w->logits) return true;
    w->readings = most * vocab <= MOST_LOGITS ? most : MOST_LOGITS / vocab;
    if (w->readings < LEAST) w->readings = LEAST;
    w->logits = descent_alloc(w->readings * vocab, sizeof *w->logits);
    return w->logits != NULL;
}

static bool make_rows(descent_batch *b)
{
    size_t frozen = whole_vectors(b->cache->model->frozen);
    b->rows = calloc(b->max_rows, sizeof *b->rows);
    b->order = calloc(b->max_rows, sizeof *b->order);
    b->touched = calloc(b->max_rows, sizeof *b->touched);
    if (!b->rows || !b->order || !b->touched) return false;
    if (frozen == 0) return true;
    float *first = lazy_zeros(b->max_rows * frozen, &b->frozen);
    b->free_frozen = calloc(b->max_rows, sizeof *b->free_frozen);
    if (!first || !b->free_frozen) return false;
    for (size_t i = 0; i < b->max_rows; i++) b->free_frozen[b->n_free_frozen++] = first + i * frozen;
    return true;
}

descent_code descent_batch_create(descent_cache *cache, const descent_batch_options *options, descent_batch **out,
                                  descent_status *status)
{
    static const descent_batch_options defaults = {0};
    if (!cache || !out) return descent_fail(status, DESCENT_BAD_ARGUMENT, "a batch needs a cache and a place to be put");
    if (!options) options = &defaults;
    if (options->max_rows > MOST_ROWS)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "%u rows in a batch; expected at most %d", options->max_rows,
                            MOST_ROWS);
    if (options->threads > MOST_THREADS)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "%u threads; expected at most %d", options->threads, MOST_THREADS);
    descent_batch *b = calloc(1, sizeof *b);
    if (!b) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a batch");
    b->cache = cache;
    b->kernels = kernels_get();
    b->max_rows = options->max_rows ? options->max_rows : DEFAULT_ROWS;
    size_t frozen = whole_vectors(cache->model->frozen);
    if (frozen > 0 && b->max_rows > MOST_NUMBERS / frozen) {
        size_t rows = b->max_rows;
        descent_batch_destroy(b);
        return descent_fail(status, DESCENT_LIMIT,
                            "%zu rows of this model keep %zu numbers each; a batch holds at most %d in all", rows, frozen,
                            MOST_NUMBERS);
    }
    b->team = team_create(options->threads ? options->threads : cpus_available());
    if (!b->team || !make_rows(b) || !make_workspace(b)) {
        descent_batch_destroy(b);
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a batch of %zu rows", b->max_rows);
    }
    *out = b;
    return descent_ok(status);
}

void descent_batch_destroy(descent_batch *b)
{
    if (!b) return;
    while (b->n > 0) descent_batch_remove(b, b->rows[b->n - 1].sequence);
    team_destroy(b->team);
    free(b->work.scores);
    free(b->work.logits);
    free(b->arrays);
    free(b->rows);
    free(b->order);
    free(b->touched);
    free(b->frozen);
    free(b->free_frozen);
    free(b);
}

team *batch_team(const descent_batch *b)
{
    return b->team;
}

void batch_set_kernels(descent_batch *b, const kernels *k)
{
    b->kernels = k;
}

size_t descent_batch_rows(const descent_batch *b)
{
    return b->n;
}

/* ---- Enrolling ------------------------------------------------------------------------------------------------- */

/* The sequence's pages that have rows in the batch are its own to work on; others are free for others. */
static void mark_pages(descent_batch *b, descent_sequence *s)
{
    for (size_t k = 0; k < s->n_pages; k++)
        if (s->pages[k]->worker == s) s->pages[k]->worker = NULL;
    bool any = false;
    for (size_t i = 0; i < b->n; i++)
        if (b->rows[i].sequence == s) {
            sequence_page(s, b->rows[i].position)->worker = s;
            any = true;
        }
    s->batch = any ? b : NULL;
}

static size_t numbers_kept(const descent_batch *b, const descent_sequence *s)
{
    const descent_model *model = b->cache->model;
    return motion_row_numbers(model, &s->seed.motion) + solver_row_numbers(model, &s->seed.solver);
}

/* A row goes. A token that cannot go on from the middle of its descent stands at its beginning again. */
static void leave(descent_batch *b, row *r)
{
    if (!sequence_resumes(r->sequence) && !sequence_done(r->sequence, r->position))
        sequence_begin_token(r->sequence, r->position);
    if (r->frozen) b->free_frozen[b->n_free_frozen++] = r->frozen;
    r->frozen = NULL;
    if (r->kept) b->kept -= numbers_kept(b, r->sequence);
    free(r->kept);
    r->kept = r->velocity = NULL;
    r->sequence->rows--;
}

void descent_batch_remove(descent_batch *b, descent_sequence *s)
{
    if (s->batch != b) return;
    size_t kept = 0;
    for (size_t i = 0; i < b->n; i++) {
        row *r = &b->rows[i];
        if (r->sequence != s) {
            b->rows[kept++] = *r;
            continue;
        }
        leave(b, r);
    }
    b->n = kept;
    mark_pages(b, s);
}

bool batch_measures(const descent_batch *b, const descent_sequence *s)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->rows[i].sequence == s && b->rows[i].measuring) return true;
    return false;
}

/* Every token that this one reads must have every plane it reads: histories begin at step 0 unless told otherwise. */
static descent_code check_origins(const descent_sequence *s, size_t position, descent_status *status)
{
    if (!s->has_starts || sequence_reads_last(s)) return DESCENT_OK;
    uint32_t own = sequence_page(s, position)->origin[position % PAGE_TOKENS];
    if (sequence_progress(s, position) > own) own = sequence_progress(s, position);
    for (size_t j = 0; j < position; j++) {
        uint32_t origin = sequence_page(s, j)->origin[j % PAGE_TOKENS];
        if (origin > own)
            return descent_fail(
                status, DESCENT_BAD_ARGUMENT,
                "token %zu stands at row step %u, but token %zu of its history was started at %u: start it there as well",
                position, own, j, origin);
    }
    return DESCENT_OK;
}

/* Its tokens take one step more, to read their energy at x(T). */
static bool measures(const descent_sequence *s)
{
    return s->cache->model->family->measures && (s->observe & DESCENT_OBSERVE_FINAL);
}

/* Memory for the whole descent of the token at `position`. */
static descent_code reserve(const descent_sequence *s, size_t position, descent_status *status)
{
    size_t block = position / PAGE_TOKENS;
    for (size_t k = measures(s) ? 0 : block; k <= block; k++) {
        descent_code code = page_reserve(s->cache, s->pages[k], sequence_needs(s, k), status);
        if (code != DESCENT_OK) return code;
    }
    return DESCENT_OK;
}

/* Room for what a row of the sequence keeps to itself, and the memory. False: no room now; *code says where there is no memory.
 */
static bool take_kept(const descent_batch *b, const descent_sequence *s, float **kept, descent_code *code,
                      descent_status *status)
{
    size_t numbers = numbers_kept(b, s);
    *kept = NULL;
    if (numbers == 0) return true;
    if (b->n > 0 && numbers > MOST_NUMBERS - b->kept) return false;
    *kept = descent_alloc(numbers, sizeof **kept);
    if (!*kept) *code = descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu numbers that a row keeps", numbers);
    return *kept != NULL;
}

static void enrol(descent_batch *b, descent_sequence *s, size_t position, size_t index, float *kept)
{
    page *p = sequence_page(s, position);
    size_t slot = position % PAGE_TOKENS;
    memmove(b->rows + index + 1, b->rows + index, (b->n - index) * sizeof *b->rows);
    row *r = &b->rows[index];
    *r = (row){.sequence = s, .position = position, .own_after = NAN, .x = page_state(b->cache, p, slot)};
    r->progress = sequence_resumes(s) ? p->progress[slot] : p->origin[slot];
    r->spent = sequence_resumes(s) ? p->spent[slot] : 0;
    r->asked = sequence_resumes(s) ? p->asked[slot] : nothing_asked;
    r->start = sequence_resumes(s) ? p->start[slot] : 0;
    if (b->frozen) r->frozen = b->free_frozen[--b->n_free_frozen];
    r->kept = kept;
    b->kept += kept ? numbers_kept(b, s) : 0;
    if (s->seed.motion.momentum > 0) r->velocity = sequence_resumes(s) ? page_velocity(b->cache, p, slot) : kept;
    if (!sequence_resumes(s) || (r->progress == 0 && !p->started[slot])) sequence_begin_token(s, position);
    p->worker = s;
    s->rows++;
    b->n++;
}

/* Where the next row of s belongs. */
static size_t insertion(const descent_batch *b, const descent_sequence *s)
{
    size_t at = b->n;
    while (at > 0 && b->rows[at - 1].sequence != s) at--;
    return at > 0 ? at : b->n;
}

descent_code descent_batch_add(descent_batch *b, descent_sequence *s, size_t most, size_t *added, descent_status *status)
{
    *added = 0;
    if (s->cache != b->cache)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "the sequence and the batch are of different caches");
    if (s->batch && s->batch != b) return descent_fail(status, DESCENT_BAD_ARGUMENT, "the sequence has rows in another batch");
    descent_code code = descent_sequence_state_code(s, status);
    if (code != DESCENT_OK) return code;
    uint64_t needed = sequence_bytes(s, s->length);
    if (needed > b->cache->byte_limit)
        return descent_fail(status, DESCENT_LIMIT,
                            "a sequence of length %zu at this depth needs %" PRIu64
                            " bytes of state cache; its limit is %" PRIu64,
                            s->length, needed, b->cache->byte_limit);
    sequence_count(s);
    if (!s->batch) s->next_row = s->finished;
    if (sequence_reads_last(s)) most = most > 0 && s->rows == 0; /* the next token reads what this one comes to */
    size_t index = insertion(b, s), done = 0, position = s->next_row;
    for (; position < s->length && done < most && b->n < b->max_rows; position++) {
        const page *p = sequence_page(s, position);
        if (sequence_done(s, position)) continue;
        if (p->worker && p->worker != s) break;
        if ((code = check_origins(s, position, status)) != DESCENT_OK) break;
        if ((code = reserve(s, position, status)) != DESCENT_OK) break;
        float *kept;
        if (!take_kept(b, s, &kept, &code, status)) break;
        enrol(b, s, position, index++, kept);
        done++;
    }
    s->next_row = position;
    if (done > 0) s->batch = b;
    if (code != DESCENT_OK && done == 0) return code;
    *added = done;
    return descent_ok(status);
}

/* ---- Stepping -------------------------------------------------------------------------------------------------- */

/* Fills `order` with the rows that run now. Returns their number. */
static size_t choose_rows(descent_batch *b)
{
    uint32_t group = UINT32_MAX;
    for (size_t i = 0; i < b->n; i++) {
        row *r = &b->rows[i];
        r->where = sequence_place(r->sequence, r->progress);
        r->moved = r->stops = r->solved = false;
        r->sequence->scan_level = UINT32_MAX;
        if (r->where.group < group) group = r->where.group;
    }
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++) {
        row *r = &b->rows[i];
        uint32_t *level = &r->sequence->scan_level;
        bool ready = r->where.level <= *level;
        if (!ready) continue;
        *level = r->where.level;
        if (r->where.group == group) b->order[n++] = r;
    }
    return n;
}

/* The planes that this step reads and writes hold the last states of tokens that stopped before them. Pages before a row's own
 * have been reached by their own rows; but nobody runs step T, whose plane is read for the energy at x(T) only. */
static void reach_planes(const descent_batch *b, const row *r)
{
    const descent_sequence *s = r->sequence;
    size_t block = r->position / PAGE_TOKENS;
    for (size_t k = r->measuring ? 0 : block; k <= block; k++) page_reach(b->cache, s->pages[k], r->where.plane);
}

static void run_tile(descent_batch *b, row **rows, size_t n)
{
    tile t = {.model = b->cache->model,
              .cache = b->cache,
              .kernels = b->kernels,
              .team = b->team,
              .work = &b->work,
              .rows = rows,
              .n = n};
    for (size_t i = 0; i < n; i++) t.watch |= row_watch(rows[i]);
    t.model->family->step(&t);
}

/* Counts the step of a row that has run; a state that moved counts even where the sequence has ended since. True when the row
 * has nothing left to do. */
static bool advance(descent_batch *b, row *r)
{
    descent_sequence *s = r->sequence;
    page *p = sequence_page(s, r->position);
    const descent_model *model = b->cache->model;
    size_t slot = r->position % PAGE_TOKENS;
    if (!r->moved && !r->stops) return true;
    if (r->moved) {
        s->steps_run++;
        s->work.steps[r->where.kind]++;
        s->work.begun[r->where.kind] += r->where.step == 0;
        s->work.seen[r->where.kind] += r->position + 1;
        r->spent++;
        r->progress = r->stops ? model->family->progression->leave(model, s->depth, r->progress) : r->progress + 1;
    }
    bool done = r->progress >= sequence_total(s, r->position) || (model->info.deepens && r->stops);
    if (sequence_resumes(s) || done) {
        p->unsolved[slot] = done && !r->stops && s->seed.solver.method != DESCENT_SOLVER_PLAIN;
        p->progress[slot] = r->progress;
        p->spent[slot] = r->spent;
        p->asked[slot] = r->asked;
    }
    if (b->cache->model->info.deepens && r->stops) page_stop(b->cache, p, slot, r->progress);
    if (!sequence_done(s, r->position)) return false;
    r->measuring = measures(s);
    return !r->measuring;
}

size_t bucket_of(size_t number)
{
    size_t i = 0;
    while (i + 1 < DESCENT_ROW_BUCKETS && number > (size_t)1 << i) i++;
    return i;
}

static void count_row(descent_step_report *report, const row *r)
{
    size_t t = (size_t)r->where.step + 1;
    report->rows++;
    report->rows_by_step[bucket_of(t)]++;
    report->steps_sum += t;
}

/* Takes out rows that have nothing left to do, and all rows of sequences that ended. */
static void settle(descent_batch *b, size_t n, descent_step_report *report)
{
    for (size_t i = 0; i < n; i++) {
        row *r = b->order[i];
        bool gone = advance(b, r);
        if (r->moved) count_row(report, r);
        if (gone && r->sequence->ended == DESCENT_OK) report->finished++;
        if (gone) r->x = NULL; /* marks it as gone until the rows are closed up */
    }
    size_t kept = 0, n_touched = 0;
    for (size_t i = 0; i < b->n; i++) {
        row *r = &b->rows[i];
        if (r->x && r->sequence->ended == DESCENT_OK) {
            b->rows[kept++] = *r;
            continue;
        }
        leave(b, r);
        if (n_touched == 0 || b->touched[n_touched - 1] != r->sequence) b->touched[n_touched++] = r->sequence;
    }
    b->n = kept;
    for (size_t i = 0; i < n_touched; i++) {
        descent_sequence *s = b->touched[i];
        report->diverged += s->ended != DESCENT_OK;
        mark_pages(b, s);
        sequence_count(s);
        sequence_publish(s, false);
    }
}

descent_code descent_batch_step(descent_batch *b, descent_step_report *report, descent_status *status)
{
    descent_step_report done = {0};
    size_t n = choose_rows(b), longest = 0;
    for (size_t i = 0; i < n; i++)
        if (b->order[i]->position >= longest) longest = b->order[i]->position + 1;
    if (!reserve_scores(b, longest))
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory to attend to %zu tokens on %u threads", longest,
                            team_threads(b->team));
    if (!reserve_readings(b, b->order, n))
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory for logits of %u tokens on their way",
                            b->cache->model->info.vocab);
    size_t most = b->work.most;
    for (size_t i = 0; i < n; i++) reach_planes(b, b->order[i]);
    for (size_t i = 0; i < n; i += most) run_tile(b, b->order + i, n - i < most ? n - i : most);
    settle(b, n, &done);
    if (report) *report = done;
    return descent_ok(status);
}

descent_code descent_batch_finish(descent_batch *b, descent_sequence *s, descent_status *status)
{
    if (s->batch && s->batch != b) return descent_fail(status, DESCENT_BAD_ARGUMENT, "the sequence has rows in another batch");
    while (s->ended == DESCENT_OK && s->finished < s->length) {
        size_t added;
        descent_code code = descent_batch_add(b, s, SIZE_MAX, &added, status);
        if (code != DESCENT_OK) return code;
        if (b->n == 0)
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "token %zu waits for a page that another batch is deepening",
                                s->finished);
        if ((code = descent_batch_step(b, NULL, status)) != DESCENT_OK) return code;
        sequence_count(s);
    }
    while (s->batch && s->ended == DESCENT_OK) { /* rows that only read their last energy */
        descent_code code = descent_batch_step(b, NULL, status);
        if (code != DESCENT_OK) return code;
    }
    return descent_sequence_state_code(s, status);
}

/* ---- Reading logits -------------------------------------------------------------------------------------------- */

static descent_code check_reading(const descent_batch *b, const descent_reading *reading, bool early, descent_status *status)
{
    const descent_sequence *s = reading->sequence;
    if (s->cache != b->cache)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "the sequence and the batch are of different caches");
    if (reading->position >= s->length)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "position %zu of a sequence of %zu tokens", reading->position,
                            s->length);
    if (s->ended != DESCENT_OK && reading->position >= s->ended_position) return descent_sequence_state_code(s, status);
    uint32_t progress = sequence_progress(s, reading->position), total = sequence_total(s, reading->position);
    if (!sequence_done(s, reading->position) && !early)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "token %zu has done %u of its %u row steps", reading->position,
                            progress, total);
    if (progress > total)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "token %zu was computed to row step %u, deeper than %u: truncate the sequence and append it again",
                            reading->position, progress, total);
    return DESCENT_OK;
}

static bool logits_finite(const float *logits, size_t n)
{
    for (size_t v = 0; v < n; v++)
        if (!isfinite(logits[v])) return false;
    return true;
}

static descent_code read_states(descent_batch *b, const descent_reading *readings, size_t count, bool early, float *logits,
                                descent_status *status)
{
    const descent_model *model = b->cache->model;
    size_t vocab = model->info.vocab, stride = b->work.wide_stride;
    for (size_t i = 0; i < count; i++) {
        descent_code code = check_reading(b, &readings[i], early, status);
        if (code != DESCENT_OK) return code;
    }
    float *normed = b->work.wide[0];
    for (size_t first = 0; first < count; first += b->work.rows) {
        size_t n = count - first < b->work.rows ? count - first : b->work.rows;
        tile t = {.model = model, .cache = b->cache, .kernels = b->kernels, .team = b->team, .work = &b->work, .n = n};
        for (size_t i = 0; i < n; i++) {
            const descent_reading *r = &readings[first + i];
            const page *p = sequence_page(r->sequence, r->position);
            model->family->final_norm(model, page_state(b->cache, p, r->position % PAGE_TOKENS), normed + i * stride);
        }
        tile_project(&t, &model->head, model->head_bias, normed, stride, logits + first * vocab, vocab, false);
    }
    for (size_t i = 0; i < count; i++)
        if (!logits_finite(logits + i * vocab, vocab))
            return descent_fail(status, DESCENT_DIVERGED, "diverged at token %zu: its logits are not finite",
                                readings[i].position);
    return descent_ok(status);
}

descent_code descent_batch_logits(descent_batch *b, const descent_reading *readings, size_t count, float *logits,
                                  descent_status *status)
{
    return read_states(b, readings, count, false, logits, status);
}

descent_code batch_logits_so_far(descent_batch *b, const descent_reading *readings, size_t count, float *logits,
                                 descent_status *status)
{
    return read_states(b, readings, count, true, logits, status);
}
