/* cache.c: memory of pages. Owns the accounting against the limit, the table of published pages and the list of idle
 * ones. Called by sequence.c and batch.c; knows nothing of steps. */
#include "cache.h"

#include "exit.h"
#include "history.h"
#include "motion.h"
#include "solver.h"
#include "status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { FIRST_BUCKETS = 256 };

static size_t state_bytes(const descent_cache *cache)
{
    return (size_t)PAGE_TOKENS * cache->model->info.width * sizeof(float);
}

static size_t plane_bytes(const descent_cache *cache)
{
    return PAGE_TOKENS * cache->slot_bytes;
}

static number_type page_number(descent_page_type type)
{
    static const number_type numbers[DESCENT_PAGE_TYPES] = {[DESCENT_PAGE_F32] = NUMBER_F32,
                                                            [DESCENT_PAGE_F16] = NUMBER_F16,
                                                            [DESCENT_PAGE_BF16] = NUMBER_BF16,
                                                            [DESCENT_PAGE_Q8] = NUMBER_Q8_ROWS};
    return numbers[type];
}

static size_t slot_bytes(const descent_model *model, descent_page_type type)
{
    if (type == DESCENT_PAGE_Q8) return slot_part(model->slot) / Q8_BLOCK * sizeof(q8_block);
    return model->slot * number_bytes(page_number(type));
}

static uint64_t page_bytes(const descent_cache *cache, const page *p)
{
    size_t states = (p->x ? 1u : 0u) + (p->velocity ? 1u : 0u);
    return sizeof *p + states * state_bytes(cache) + p->n_planes * (uint64_t)plane_bytes(cache);
}

/* ---- The idle list --------------------------------------------------------------------------------------------- */

static void idle_append(descent_cache *cache, page *p)
{
    p->older = cache->newest;
    p->newer = NULL;
    if (cache->newest)
        cache->newest->newer = p;
    else
        cache->oldest = p;
    cache->newest = p;
    cache->idle_pages++;
    cache->idle_bytes += page_bytes(cache, p);
}

static void idle_remove(descent_cache *cache, page *p)
{
    *(p->older ? &p->older->newer : &cache->oldest) = p->newer;
    *(p->newer ? &p->newer->older : &cache->newest) = p->older;
    p->older = p->newer = NULL;
    cache->idle_pages--;
    cache->idle_bytes -= page_bytes(cache, p);
}

/* ---- The table of published pages ------------------------------------------------------------------------------ */

/* Keyed, so that nobody can choose texts that collide. */
static uint64_t page_hash(const descent_cache *cache, const page *parent, const page_seed *seed, const uint32_t *tokens)
{
    uint64_t hash = hash_mix(cache->key, parent ? parent->serial : 0);
    uint32_t threshold, residual;
    hash = motion_hash(&seed->motion, hash_mix(hash, seed->share_group));
    memcpy(&residual, &seed->solver.residual, sizeof residual);
    hash = hash_mix(hash_mix(hash, seed->solver.method), (uint64_t)seed->solver.nstep << 32 | residual);
    memcpy(&threshold, &seed->exit.threshold, sizeof threshold);
    hash = hash_mix(hash_mix(hash, (uint64_t)seed->exit.criterion << 32 | threshold), seed->exit.first);
    hash = hash_mix(hash, (uint64_t)seed->exit.min_steps << 16 | seed->exit.check_every);
    hash = hash_mix(hash, (uint64_t)seed->history.policy << 32 | seed->history.prompt_steps);
    for (int k = 0; k < DESCENT_MAX_KINDS; k++) hash = hash_mix(hash, seed->depth.steps[k]);
    for (int i = 0; i < PAGE_TOKENS; i++) hash = hash_mix(hash, tokens[i]);
    return hash_mix(hash, cache->key);
}

static bool seeds_equal(const page_seed *a, const page_seed *b)
{
    return a->share_group == b->share_group && !memcmp(&a->depth, &b->depth, sizeof a->depth) &&
           motions_equal(&a->motion, &b->motion) && solvers_equal(&a->solver, &b->solver) && exits_equal(&a->exit, &b->exit) &&
           histories_equal(&a->history, &b->history);
}

page *page_find(const descent_cache *cache, const page *parent, const page_seed *seed, const uint32_t *tokens)
{
    uint64_t hash = page_hash(cache, parent, seed, tokens);
    for (page *p = cache->buckets[hash & (cache->n_buckets - 1)]; p; p = p->next_in_bucket)
        if (p->hash == hash && p->parent == parent && seeds_equal(&p->seed, seed) &&
            !memcmp(p->tokens, tokens, sizeof p->tokens))
            return p;
    return NULL;
}

/* Twice the buckets once there are more pages than buckets; goes on with long chains where memory is short. */
static void table_grow(descent_cache *cache)
{
    size_t n = cache->n_buckets * 2;
    page **buckets = calloc(n, sizeof *buckets);
    if (!buckets) return;
    for (size_t b = 0; b < cache->n_buckets; b++)
        for (page *p = cache->buckets[b], *next; p; p = next) {
            next = p->next_in_bucket;
            p->next_in_bucket = buckets[p->hash & (n - 1)];
            buckets[p->hash & (n - 1)] = p;
        }
    free(cache->buckets);
    cache->buckets = buckets;
    cache->n_buckets = n;
}

static void table_insert(descent_cache *cache, page *p)
{
    if (cache->n_published >= cache->n_buckets) table_grow(cache);
    page **bucket = &cache->buckets[p->hash & (cache->n_buckets - 1)];
    p->next_in_bucket = *bucket;
    *bucket = p;
    cache->n_published++;
}

static void table_remove(descent_cache *cache, page *p)
{
    page **at = &cache->buckets[p->hash & (cache->n_buckets - 1)];
    while (*at != p) at = &(*at)->next_in_bucket;
    *at = p->next_in_bucket;
    cache->n_published--;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static void page_free(descent_cache *cache, page *p)
{
    cache->bytes -= page_bytes(cache, p);
    for (uint32_t i = 0; i < p->n_planes; i++) free(p->planes[i]);
    free(p->planes);
    free(p->x);
    free(p->velocity);
    free(p);
    cache->pages--;
}

/* Frees the least recently used idle page that no published page stands behind. Sequences let their pages go from the last
 * to the first, so children are older than their parents and the oldest page qualifies nearly always. */
static bool evict_one(descent_cache *cache)
{
    page *p = cache->oldest;
    while (p && p->children > 0) p = p->newer;
    if (!p) return false;
    idle_remove(cache, p);
    table_remove(cache, p);
    if (p->parent) p->parent->children--;
    page_free(cache, p);
    return true;
}

/* Makes room for `bytes` more under the limit. */
static descent_code make_room(descent_cache *cache, uint64_t bytes, descent_status *status)
{
    uint64_t wanted;
    if (__builtin_add_overflow(cache->bytes, bytes, &wanted)) wanted = UINT64_MAX;
    while (wanted > cache->byte_limit) {
        uint64_t before = cache->bytes;
        if (bytes > cache->byte_limit || !evict_one(cache))
            return descent_fail(status, DESCENT_LIMIT,
                                "the state cache needs %" PRIu64 " more bytes beside the %" PRIu64
                                " in use; its limit is %" PRIu64,
                                bytes, cache->bytes, cache->byte_limit);
        wanted -= before - cache->bytes;
    }
    return DESCENT_OK;
}

descent_code page_create(descent_cache *cache, page **out, descent_status *status)
{
    descent_code code = make_room(cache, sizeof(page), status);
    if (code != DESCENT_OK) return code;
    page *p = calloc(1, sizeof *p);
    if (!p) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a page of the state cache");
    p->users = 1;
    cache->bytes += sizeof *p;
    cache->pages++;
    *out = p;
    return DESCENT_OK;
}

static uint32_t planes_missing(const page *p, uint32_t planes)
{
    return p->settled || planes <= p->n_planes ? 0 : planes - p->n_planes;
}

uint64_t page_missing(const descent_cache *cache, const page *p, page_needs needs)
{
    size_t states = (p->x ? 0u : 1u) + (needs.velocity && !p->velocity ? 1u : 0u);
    return states * state_bytes(cache) + (uint64_t)planes_missing(p, needs.planes) * plane_bytes(cache);
}

static void *alloc_lines(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

/* `more` planes behind those there are. False: no memory, and nothing has changed but the table's room. */
static bool add_planes(const descent_cache *cache, page *p, uint32_t more)
{
    void **table = more ? realloc(p->planes, (p->n_planes + more) * sizeof *table) : p->planes;
    if (more && !table) return false;
    p->planes = table;
    uint32_t made = 0;
    while (made < more && (table[p->n_planes + made] = alloc_lines(plane_bytes(cache))) != NULL) made++;
    if (made == more) {
        p->n_planes += more;
        return true;
    }
    while (made > 0) free(table[p->n_planes + --made]);
    return false;
}

descent_code page_reserve(descent_cache *cache, page *p, page_needs needs, descent_status *status)
{
    uint64_t bytes = page_missing(cache, p, needs);
    if (bytes == 0) return DESCENT_OK;
    descent_code code = make_room(cache, bytes, status);
    if (code != DESCENT_OK) return code;
    bool moves = needs.velocity && !p->velocity;
    float *x = p->x ? p->x : alloc_lines(state_bytes(cache)), *velocity = moves ? alloc_lines(state_bytes(cache)) : p->velocity;
    if (!x || (moves && !velocity) || !add_planes(cache, p, planes_missing(p, needs.planes))) {
        if (x != p->x) free(x);
        if (moves) free(velocity);
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %" PRIu64 " bytes of the state cache", bytes);
    }
    p->x = x;
    p->velocity = velocity;
    cache->bytes += bytes;
    return DESCENT_OK;
}

descent_code page_copy(descent_cache *cache, const page *from, size_t count, page **out, descent_status *status)
{
    page *p;
    descent_code code = page_create(cache, &p, status);
    if (code != DESCENT_OK) return code;
    page_needs needs = {.planes = from->n_planes, .velocity = from->velocity != NULL};
    if (from->x && (code = page_reserve(cache, p, needs, status)) != DESCENT_OK) {
        page_release(cache, p);
        return code;
    }
    memcpy(p->tokens, from->tokens, count * sizeof p->tokens[0]);
    memcpy(p->progress, from->progress, count * sizeof p->progress[0]);
    memcpy(p->origin, from->origin, count * sizeof p->origin[0]);
    memcpy(p->started, from->started, count * sizeof p->started[0]);
    memcpy(p->spent, from->spent, count * sizeof p->spent[0]);
    memcpy(p->stopped, from->stopped, count * sizeof p->stopped[0]);
    memcpy(p->asked, from->asked, count * sizeof p->asked[0]);
    memcpy(p->start, from->start, count * sizeof p->start[0]);
    memcpy(p->unsolved, from->unsolved, count * sizeof p->unsolved[0]);
    p->reached = from->reached;
    p->settled = from->settled && count == PAGE_TOKENS;
    if (from->x) memcpy(p->x, from->x, count * cache->model->info.width * sizeof(float));
    if (p->velocity) memcpy(p->velocity, from->velocity, count * cache->model->info.width * sizeof(float));
    for (uint32_t i = 0; i < p->n_planes; i++) memcpy(p->planes[i], from->planes[i], count * cache->slot_bytes);
    *out = p;
    return DESCENT_OK;
}

/* ---- Tokens that stop early -------------------------------------------------------------------------------------- */

void page_clear(page *p, size_t slot, uint32_t token)
{
    p->tokens[slot] = token;
    p->progress[slot] = p->origin[slot] = p->spent[slot] = 0;
    p->stopped[slot] = 0;
    p->asked[slot] = nothing_asked;
    p->start[slot] = 0;
    p->unsolved[slot] = false;
    p->started[slot] = false;
    p->settled = false;
}

static void copy_slot(const descent_cache *cache, const page *p, size_t slot, uint32_t from, uint32_t to)
{
    memcpy(page_slot(cache, p, to, slot), page_slot(cache, p, from, slot), cache->slot_bytes);
}

void page_reach(const descent_cache *cache, page *p, uint32_t plane)
{
    uint32_t end = plane < p->n_planes ? plane + 1 : p->n_planes;
    for (; p->reached < end; p->reached++)
        for (size_t i = 0; i < PAGE_TOKENS; i++)
            if (p->stopped[i] && p->stopped[i] < p->reached) copy_slot(cache, p, i, p->reached - 1, p->reached);
}

/* Nobody will come to a plane past the last that somebody has come to. */
static void page_settle(descent_cache *cache, page *p)
{
    uint32_t deepest = 0, before = p->n_planes;
    for (size_t i = 0; i < PAGE_TOKENS; i++)
        if (p->stopped[i] > deepest) deepest = p->stopped[i];
    page_reach(cache, p, deepest);
    while (p->n_planes > deepest + 1) free(p->planes[--p->n_planes]);
    p->reached = p->n_planes;
    cache->bytes -= (uint64_t)(before - p->n_planes) * plane_bytes(cache);
    p->settled = true;
}

void page_stop(descent_cache *cache, page *p, size_t slot, uint32_t depth)
{
    size_t stopped = 0;
    p->stopped[slot] = (uint16_t)depth;
    for (uint32_t t = depth + 1; t < p->reached; t++) copy_slot(cache, p, slot, depth, t);
    for (size_t i = 0; i < PAGE_TOKENS; i++) stopped += p->stopped[i] > 0;
    if (stopped == PAGE_TOKENS) page_settle(cache, p);
}

/* ---- Users ------------------------------------------------------------------------------------------------------- */

void page_hold(descent_cache *cache, page *p)
{
    if (p->users++ == 0) idle_remove(cache, p);
}

void page_release(descent_cache *cache, page *p)
{
    if (--p->users > 0) return;
    if (p->published)
        idle_append(cache, p);
    else
        page_free(cache, p);
}

/* True when every token of a has come at least as far as in b, and a has every plane of b: a row that is on its way may count
 * on one more than the tokens' progress tells. */
static bool page_covers(const page *a, const page *b)
{
    if (a->n_planes < b->n_planes && !a->settled) return false;
    for (int i = 0; i < PAGE_TOKENS; i++)
        if (a->progress[i] < b->progress[i]) return false;
    return true;
}

static void take_computed(page *p, const page *from)
{
    memcpy(p->progress, from->progress, sizeof p->progress);
    memcpy(p->spent, from->spent, sizeof p->spent);
    memcpy(p->stopped, from->stopped, sizeof p->stopped);
    memcpy(p->asked, from->asked, sizeof p->asked);
    memcpy(p->start, from->start, sizeof p->start);
    memcpy(p->unsolved, from->unsolved, sizeof p->unsolved);
    p->x = from->x;
    p->velocity = from->velocity;
    p->planes = from->planes;
    p->n_planes = from->n_planes;
    p->reached = from->reached;
    p->settled = from->settled;
}

/* Two pages of the same tokens trade what was computed for them. */
static void page_exchange(page *a, page *b)
{
    page kept = *a;
    take_computed(a, b);
    take_computed(b, &kept);
}

/* True where a token that stands at its total in a stands past it in b: its logits could no longer be read. */
static bool page_outruns(const page *b, const page *a, const uint32_t totals[PAGE_TOKENS])
{
    for (int i = 0; i < PAGE_TOKENS; i++)
        if (a->progress[i] == totals[i] && b->progress[i] > totals[i]) return true;
    return false;
}

page *page_publish(descent_cache *cache, page *p, page *parent, const page_seed *seed, const uint32_t totals[PAGE_TOKENS])
{
    page *equal = page_find(cache, parent, seed, p->tokens);
    if (!equal) {
        p->published = true;
        p->serial = ++cache->next_serial;
        p->parent = parent;
        p->seed = *seed;
        p->hash = page_hash(cache, parent, seed, p->tokens);
        if (parent) parent->children++;
        table_insert(cache, p);
        return p;
    }
    if (page_covers(equal, p)) {
        if (page_outruns(equal, p, totals)) return p;
        page_hold(cache, equal);
    } else {
        if (equal->worker || !page_covers(p, equal)) return p;
        page_hold(cache, equal); /* an idle page keeps its size */
        page_exchange(equal, p);
    }
    page_release(cache, p);
    return equal;
}

/* ---- Public ---------------------------------------------------------------------------------------------------- */

descent_code descent_cache_create(const descent_model *model, const descent_cache_options *options, descent_cache **out,
                                  descent_status *status)
{
    static const descent_cache_options defaults = {0};
    if (!model || !out) return descent_fail(status, DESCENT_BAD_ARGUMENT, "a cache needs a model and a place to be put");
    if (!options) options = &defaults;
    if ((unsigned)options->page_type >= DESCENT_PAGE_TYPES)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "page type %d; expected DESCENT_PAGE_F32 to DESCENT_PAGE_Q8, 0 to %d",
                            (int)options->page_type, DESCENT_PAGE_TYPES - 1);
    descent_cache *cache = calloc(1, sizeof *cache);
    page **buckets = calloc(FIRST_BUCKETS, sizeof *buckets);
    if (!cache || !buckets) {
        free(cache);
        free(buckets);
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a cache");
    }
    *cache = (descent_cache){.model = model, .page_type = options->page_type, .number = page_number(options->page_type)};
    cache->slot_bytes = slot_bytes(model, options->page_type);
    cache->byte_limit = options->byte_limit ? options->byte_limit : descent_cache_bytes_by_default();
    cache->buckets = buckets;
    cache->n_buckets = FIRST_BUCKETS;
    if (getrandom(&cache->key, sizeof cache->key, GRND_NONBLOCK) != (ssize_t)sizeof cache->key)
        cache->key = (uint64_t)(uintptr_t)cache; /* early in the life of a machine: addresses are random too */
    *out = cache;
    return descent_ok(status);
}

void descent_cache_destroy(descent_cache *cache)
{
    if (!cache) return;
    while (evict_one(cache))
        ;
    free(cache->buckets);
    free(cache);
}

descent_cache_usage descent_cache_describe(const descent_cache *cache)
{
    return (descent_cache_usage){.bytes = cache->bytes,
                                 .byte_limit = cache->byte_limit,
                                 .pages = cache->pages,
                                 .idle_pages = cache->idle_pages,
                                 .shared_hits = cache->hits};
}

uint64_t pages_bytes(const descent_model *model, descent_page_type type, uint64_t tokens, page_needs needs)
{
    uint64_t pages = tokens / PAGE_TOKENS + (tokens % PAGE_TOKENS != 0);
    uint64_t slot = slot_bytes(model, type), state = PAGE_TOKENS * (uint64_t)model->info.width * sizeof(float);
    uint64_t page_total, total;
    if (__builtin_mul_overflow((uint64_t)needs.planes * PAGE_TOKENS, slot, &page_total) ||
        __builtin_add_overflow(page_total, sizeof(page) + (needs.velocity ? 2 : 1) * state, &page_total) ||
        __builtin_mul_overflow(pages, page_total, &total))
        return UINT64_MAX;
    return total;
}
