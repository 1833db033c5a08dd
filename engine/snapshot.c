/* snapshot.c: a sequence as a file. Owns the format:
 *
 *     header | tokens | page, page, ... | hash of all before
 *     page: planes (u32) | progress, origin, spent (u32 each), stopped (u16), asked (exit_memory), start (f32), unsolved
 *             and started (u8) of its tokens
 *           | x [C], where momentum needs it d [C], and planes [slot] of each token, of one that has stopped also that of its
 *             last state
 *
 * little-endian as in memory, a page holding only the tokens the sequence has. The file is for the same program on the same
 * model; a restored sequence never offers its pages to others, since what is in them came from outside. */
#include "sequence.h"
#include "status.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char magic[8] = "DSCNTSEQ";
enum { VERSION = 6 };

typedef struct header {
    char magic[8];
    uint32_t version, exit_criterion;
    uint64_t fingerprint, length, share_group;
    uint16_t depth[DESCENT_MAX_KINDS];
    uint16_t page_type, has_starts;
    uint32_t exit_first;
    float exit_threshold;
    uint16_t exit_min_steps, exit_check_every;
    uint32_t n_scales;
    float step_scale[DESCENT_MAX_SCALES], momentum;
    uint32_t rule;
    int64_t noise_seed;
    float noise_sigma;
    uint32_t noise_schedule;
    uint16_t solver_method, solver_nstep;
    float solver_residual;
    uint16_t history_policy, history_prompt_steps;
    uint32_t history_prompt;
} header;

_Static_assert(sizeof(header) == 356 + DESCENT_MAX_KINDS * sizeof(uint16_t),
               "nothing between the fields, which would be written as well");

/* One file being written or read, its running hash, and the first thing that went wrong. */
typedef struct stream {
    FILE *file;
    uint64_t hash;
    bool failed;
} stream;

static uint64_t hash_on(uint64_t hash, const unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

static void put(stream *s, const void *data, size_t bytes)
{
    if (s->failed || bytes == 0) return;
    s->hash = hash_on(s->hash, data, bytes);
    s->failed = fwrite(data, 1, bytes, s->file) != bytes;
}

static void take(stream *s, void *data, size_t bytes)
{
    if (s->failed || bytes == 0) return;
    s->failed = fread(data, 1, bytes, s->file) != bytes;
    if (!s->failed) s->hash = hash_on(s->hash, data, bytes);
}

static size_t page_tokens(const descent_sequence *s, size_t block)
{
    size_t left = s->length - block * PAGE_TOKENS;
    return left < PAGE_TOKENS ? left : PAGE_TOKENS;
}

/* The first plane that token i of a page has, none before its start: a layer's plane is written by its first sub-layer. */
static uint32_t first_plane(const descent_sequence *s, const page *p, size_t i)
{
    place from = sequence_place(s, p->origin[i]);
    return from.plane + (from.kind > 0);
}

/* Behind the last plane of token i. */
static uint32_t end_of_planes(const descent_sequence *s, const page *p, size_t i)
{
    uint32_t end = p->progress[i] + (p->stopped[i] > 0);
    if (sequence_reads_last(s)) end = p->progress[i] > p->origin[i];
    return end < p->n_planes ? end : p->n_planes;
}

static bool keeps_velocity(const descent_sequence *s)
{
    return sequence_needs(s, 0).velocity; /* all pages alike */
}

/* Token i has moved and goes on with what momentum gave it. */
static bool has_velocity(const descent_sequence *s, const page *p, size_t i)
{
    return keeps_velocity(s) && p->progress[i] > p->origin[i];
}

/* ---- Saving ---------------------------------------------------------------------------------------------------- */

static void put_page(stream *out, const descent_sequence *s, size_t block)
{
    const page *p = s->pages[block];
    size_t n = page_tokens(s, block), width = s->cache->model->info.width;
    uint32_t planes = p->x ? p->n_planes : 0, has_x = p->x != NULL;
    put(out, &has_x, sizeof has_x);
    put(out, &planes, sizeof planes);
    put(out, p->progress, n * sizeof p->progress[0]);
    put(out, p->origin, n * sizeof p->origin[0]);
    put(out, p->spent, n * sizeof p->spent[0]);
    put(out, p->stopped, n * sizeof p->stopped[0]);
    put(out, p->asked, n * sizeof p->asked[0]);
    put(out, p->start, n * sizeof p->start[0]);
    put(out, p->unsolved, n * sizeof p->unsolved[0]);
    put(out, p->started, n * sizeof p->started[0]);
    for (size_t i = 0; has_x && i < n; i++) {
        if (p->progress[i] > 0 || p->started[i]) put(out, page_state(s->cache, p, i), width * sizeof(float));
        if (has_velocity(s, p, i)) put(out, page_velocity(s->cache, p, i), width * sizeof(float));
        for (uint32_t t = first_plane(s, p, i); t < end_of_planes(s, p, i); t++)
            put(out, page_slot(s->cache, p, t, i), s->cache->slot_bytes);
    }
}

static void put_sequence(stream *out, const descent_sequence *s)
{
    const descent_motion *motion = &s->seed.motion;
    header h = {.version = VERSION,
                .page_type = (uint16_t)s->cache->page_type,
                .fingerprint = s->cache->model->info.fingerprint,
                .length = s->length,
                .share_group = s->seed.share_group,
                .has_starts = s->has_starts,
                .exit_criterion = s->seed.exit.criterion,
                .exit_first = s->seed.exit.first,
                .exit_threshold = s->seed.exit.threshold,
                .exit_min_steps = s->seed.exit.min_steps,
                .exit_check_every = s->seed.exit.check_every,
                .n_scales = motion->n_scales,
                .momentum = motion->momentum,
                .rule = motion->rule,
                .noise_seed = motion->noise.seed,
                .noise_sigma = motion->noise.sigma,
                .noise_schedule = motion->noise.schedule,
                .solver_method = (uint16_t)s->seed.solver.method,
                .solver_nstep = (uint16_t)s->seed.solver.nstep,
                .solver_residual = s->seed.solver.residual,
                .history_policy = (uint16_t)s->history.policy,
                .history_prompt_steps = (uint16_t)s->history.prompt_steps,
                .history_prompt = s->history.prompt};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.step_scale, motion->step_scale, sizeof h.step_scale);
    memcpy(h.depth, s->depth.steps, sizeof h.depth);
    put(out, &h, sizeof h);
    put(out, s->tokens, s->length * sizeof *s->tokens);
    for (size_t b = 0; b < s->n_pages; b++) put_page(out, s, b);
    uint64_t hash = out->hash;
    put(out, &hash, sizeof hash);
}

descent_code descent_sequence_save(const descent_sequence *s, const char *path, descent_status *status)
{
    descent_code code = descent_sequence_state_code(s, status);
    if (code != DESCENT_OK) return code;
    if (s->batch)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "cannot save while the sequence has rows in a batch: take them out first");
    if (s->n_starts > 0 && !sequence_resumes(s) && s->finished < s->length)
        return descent_fail(status, DESCENT_UNSUPPORTED, "a %s sequence with started tokens is saved once they are finished",
                            s->cache->model->info.family);
    size_t size = strlen(path) + 24;
    char *beside = malloc(size);
    if (!beside) return descent_fail(status, DESCENT_NO_MEMORY, "no memory to save a sequence");
    (void)snprintf(beside, size, "%s.%ld.part", path, (long)getpid());
    stream out = {.file = fopen(beside, "wb"), .hash = 0xcbf29ce484222325u};
    if (!out.file) {
        code = descent_fail(status, DESCENT_IO, "cannot write %s: %s", beside, strerror(errno));
        free(beside);
        return code;
    }
    put_sequence(&out, s);
    if (fflush(out.file) != 0 || fsync(fileno(out.file)) != 0) out.failed = true;
    int saved = errno;
    if (fclose(out.file) != 0) out.failed = true;
    if (!out.failed && rename(beside, path) != 0) {
        out.failed = true;
        saved = errno;
    }
    if (out.failed) {
        (void)remove(beside);
        code = descent_fail(status, DESCENT_IO, "cannot write %s: %s", path, strerror(saved));
    }
    free(beside);
    return code == DESCENT_OK ? descent_ok(status) : code;
}

/* ---- Restoring ------------------------------------------------------------------------------------------------- */

static bool finite_numbers(const void *data, size_t n, number_type type)
{
    const float *wide = data;
    const uint16_t *half = data;
    const q8_block *block = data;
    for (size_t i = 0; i < n; i++) {
        if (type == NUMBER_F32 && !isfinite(wide[i])) return false;
        if (type == NUMBER_F16 && (half[i] & 0x7c00u) == 0x7c00u) return false;
        if (type == NUMBER_BF16 && (half[i] & 0x7f80u) == 0x7f80u) return false;
        if (type == NUMBER_Q8_ROWS && !isfinite(block[i / Q8_BLOCK].scale)) return false;
    }
    return true;
}

static descent_code short_file(const char *path, descent_status *status)
{
    return descent_fail(status, DESCENT_BAD_FILE, "%s ends early or cannot be read: not a whole saved sequence", path);
}

static descent_code damaged(const char *path, const char *what, size_t position, descent_status *status)
{
    return descent_fail(status, DESCENT_BAD_FILE, "%s: %s of token %zu is out of range: the file is damaged", path, what,
                        position);
}

/* Where histories are not OWN, nobody asks which planes a token has that is done: the last state of one has been written, and
 * one that others outlast has stopped. */
static bool leaves_history(const descent_sequence *s, const page *p, size_t i, size_t position)
{
    if (sequence_reads_last(s)) return p->progress[i] > p->origin[i] || p->progress[i] < sequence_total(s, position);
    return p->stopped[i] > 0 || !sequence_outlasts(s, position, p->progress[i]);
}

/* The progress and origin of the token in slot i, the sequence's at `position`, are such as its model and depth can give. */
static bool plausible(const descent_sequence *s, const page *p, size_t i, size_t position, uint32_t planes)
{
    bool deepens = s->cache->model->info.deepens, last = sequence_reads_last(s);
    uint32_t progress = p->progress[i], origin = p->origin[i];
    if (!leaves_history(s, p, i, position)) return false;
    if (!(p->start[i] >= 0) || isinf(p->start[i])) return false;
    if (p->spent[i] > progress || p->asked[i].unchanged > progress) return false;
    bool may_stop = s->seed.exit.criterion != DESCENT_EXIT_NONE || s->seed.solver.method != DESCENT_SOLVER_PLAIN ||
                    s->seed.history.policy == DESCENT_HISTORY_LATEST;
    uint32_t held = last && planes > 0 ? DESCENT_MAX_STEPS + 1 : planes; /* steps that planes are there for */
    if (p->stopped[i] > 0 && (!may_stop || !deepens || p->stopped[i] != progress || progress == origin || progress >= held))
        return false;
    if (deepens) return origin <= progress && (progress <= held || progress == origin) && progress <= DESCENT_MAX_STEPS;
    return (progress == 0 || progress == s->total) && origin < s->total &&
           (progress == 0 || planes >= s->cache->model->info.layers);
}

/* Puts the last states of tokens that have stopped where later tokens read them. */
static void fill_stopped(const descent_sequence *s, page *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (end_of_planes(s, p, i) > p->reached) p->reached = end_of_planes(s, p, i);
    for (size_t i = 0; i < n; i++)
        if (p->stopped[i] > 0) page_stop(s->cache, p, i, p->stopped[i]);
}

static descent_code take_page(stream *in, descent_sequence *s, size_t block, const char *path, descent_status *status)
{
    page *p = s->pages[block];
    size_t n = page_tokens(s, block), width = s->cache->model->info.width, first = block * PAGE_TOKENS;
    uint32_t has_x = 0, planes = 0;
    unsigned char started[PAGE_TOKENS] = {0}, unsolved[PAGE_TOKENS] = {0};
    take(in, &has_x, sizeof has_x);
    take(in, &planes, sizeof planes);
    take(in, p->progress, n * sizeof p->progress[0]);
    take(in, p->origin, n * sizeof p->origin[0]);
    take(in, p->spent, n * sizeof p->spent[0]);
    take(in, p->stopped, n * sizeof p->stopped[0]);
    take(in, p->asked, n * sizeof p->asked[0]);
    take(in, p->start, n * sizeof p->start[0]);
    take(in, unsolved, n);
    take(in, started, n);
    if (in->failed) return short_file(path, status);
    uint32_t most = s->cache->model->info.deepens ? DESCENT_MAX_STEPS + 1 : s->cache->model->info.layers;
    if (planes > most) return damaged(path, "the number of planes", first, status);
    for (size_t i = 0; i < n; i++) {
        p->started[i] = started[i] != 0;
        p->unsolved[i] = unsolved[i] != 0;
        s->has_starts = s->has_starts || p->origin[i] > 0; /* whatever the header says: planes before do not exist */
        if (!plausible(s, p, i, first + i, planes) || (!has_x && (p->progress[i] || p->started[i])))
            return damaged(path, "the progress", first + i, status);
    }
    if (!has_x) return DESCENT_OK;
    descent_code code = page_reserve(s->cache, p, (page_needs){.planes = planes, .velocity = keeps_velocity(s)}, status);
    if (code != DESCENT_OK) return code;
    for (size_t i = 0; i < n; i++) {
        float *x = page_state(s->cache, p, i);
        bool holds_x = p->progress[i] > 0 || p->started[i];
        float *velocity = has_velocity(s, p, i) ? page_velocity(s->cache, p, i) : NULL;
        if (holds_x) take(in, x, width * sizeof *x);
        if (velocity) take(in, velocity, width * sizeof *velocity);
        if (in->failed) return short_file(path, status);
        if (holds_x && !finite_numbers(x, width, NUMBER_F32)) return damaged(path, "the state", first + i, status);
        if (velocity && !finite_numbers(velocity, width, NUMBER_F32)) return damaged(path, "the momentum", first + i, status);
        for (uint32_t t = first_plane(s, p, i); t < end_of_planes(s, p, i); t++) {
            void *slot = page_slot(s->cache, p, t, i);
            take(in, slot, s->cache->slot_bytes);
            if (in->failed) return short_file(path, status);
            if (!finite_numbers(slot, s->cache->model->slot, s->cache->number))
                return damaged(path, "a plane", first + i, status);
        }
    }
    fill_stopped(s, p, n);
    return DESCENT_OK;
}

static descent_code check_header(const descent_cache *cache, const header *h, const char *path, descent_status *status)
{
    const descent_model_info *info = &cache->model->info;
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return descent_fail(status, DESCENT_BAD_FILE, "%s is not a saved sequence", path);
    if (h->version != VERSION)
        return descent_fail(status, DESCENT_UNSUPPORTED, "%s has version %u; this program reads %d", path, h->version, VERSION);
    if (h->fingerprint != info->fingerprint)
        return descent_fail(status, DESCENT_BAD_FILE, "%s was saved with another model than %s", path, info->name);
    if (h->page_type != cache->page_type)
        return descent_fail(status, DESCENT_BAD_FILE, "%s was saved with another page type than this cache has", path);
    if (h->length > info->context)
        return descent_fail(status, DESCENT_BAD_FILE, "%s holds %llu tokens; the context of %s holds %u", path,
                            (unsigned long long)h->length, info->name, info->context);
    return DESCENT_OK;
}

static descent_code take_tokens(stream *in, descent_sequence *s, size_t length, const char *path, descent_status *status)
{
    uint32_t *tokens = malloc((length ? length : 1) * sizeof *tokens);
    if (!tokens) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu tokens", length);
    take(in, tokens, length * sizeof *tokens);
    descent_code code = in->failed ? short_file(path, status) : descent_sequence_append(s, tokens, length, status);
    free(tokens);
    return code;
}

/* What the sequence is asked; not checked yet. */
static descent_sequence_options asked_of(const header *h)
{
    descent_sequence_options asked = {
        .exit = {.criterion = (descent_exit_criterion)h->exit_criterion,
                 .threshold = h->exit_threshold,
                 .min_steps = h->exit_min_steps,
                 .check_every = h->exit_check_every,
                 .first = h->exit_first},
        .motion = {.n_scales = h->n_scales,
                   .momentum = h->momentum,
                   .rule = (descent_step_rule)h->rule,
                   .noise = {.seed = h->noise_seed,
                             .sigma = h->noise_sigma,
                             .schedule = (descent_noise_schedule)h->noise_schedule}},
        .solver = {.method = (descent_solver_method)h->solver_method, .nstep = h->solver_nstep, .residual = h->solver_residual},
        .history = {.policy = (descent_history_policy)h->history_policy,
                    .prompt_steps = h->history_prompt_steps,
                    .prompt = h->history_prompt},
        .share_group = h->share_group};
    memcpy(asked.depth.steps, h->depth, sizeof h->depth);
    memcpy(asked.motion.step_scale, h->step_scale, sizeof h->step_scale);
    return asked;
}

static descent_code take_sequence(stream *in, descent_cache *cache, const char *path, descent_sequence **made,
                                  descent_status *status)
{
    header h = {0};
    take(in, &h, sizeof h);
    if (in->failed) return short_file(path, status);
    descent_code code = check_header(cache, &h, path, status);
    if (code != DESCENT_OK) return code;
    descent_sequence_options options = asked_of(&h);
    if ((code = descent_sequence_create(cache, &options, made, status)) != DESCENT_OK) return code;
    descent_sequence *s = *made;
    s->private_from = 0;
    s->has_starts = h.has_starts != 0;
    if ((code = take_tokens(in, s, (size_t)h.length, path, status)) != DESCENT_OK) return code;
    for (size_t b = 0; b < s->n_pages; b++)
        if ((code = take_page(in, s, b, path, status)) != DESCENT_OK) return code;
    uint64_t expected = in->hash, found = 0;
    take(in, &found, sizeof found);
    if (in->failed) return short_file(path, status);
    if (found != expected || fgetc(in->file) != EOF)
        return descent_fail(status, DESCENT_BAD_FILE, "%s is damaged: its contents do not match its hash", path);
    sequence_count(s);
    return DESCENT_OK;
}

descent_code descent_sequence_restore(descent_cache *cache, const char *path, descent_sequence **out, descent_status *status)
{
    stream in = {.file = fopen(path, "rb"), .hash = 0xcbf29ce484222325u};
    if (!in.file) return descent_fail(status, DESCENT_IO, "cannot read %s: %s", path, strerror(errno));
    descent_sequence *made = NULL;
    descent_code code = take_sequence(&in, cache, path, &made, status);
    (void)fclose(in.file);
    if (code != DESCENT_OK) {
        descent_sequence_destroy(made);
        return code;
    }
    *out = made;
    return descent_ok(status);
}
