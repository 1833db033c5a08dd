/* cache.h: pages of the state cache. A page holds PAGE_TOKENS consecutive tokens: for each its progress and its state x at
 * that progress, and one plane after another of what later tokens read as history. A sequence is a list of pages.
 *
 * A token that has *stopped* early, at depth T_j (exit.c), is read at its last state by later tokens at every further step. A
 * reader multiplies with a plane of a page as one matrix of all slots, so the last state is put into its slot of every plane
 * from T_j on that some token of the page comes to; these are the `reached` ones, filled as they are reached. Once all tokens
 * of a page have stopped the page is *settled*: planes past the deepest T_j are given back, and in the last one, where every
 * slot holds its token's last state, it is read at every further step. So history costs what was computed, not T. A prompt's
 * token whose T is less than that of later tokens which read it (the history LATEST) has stopped at its T.
 *
 * Where only last states are read (LAST) a page has one plane, in which each token stands as it is: g(t) of one on its way, for
 * itself, its last state of one that is done.
 *
 * A full page whose tokens are finished may be *published*: found again by anybody who has the same tokens behind the same
 * parent page and the same seed. Published pages never lose or alter a plane; where the model deepens they gain some.
 */
#ifndef DESCENT_CACHE_H
#define DESCENT_CACHE_H

#include "descent.h"
#include "model.h"

#include <math.h>

enum { PAGE_TOKENS = 32 };

/* Everything besides tokens that changes what a page holds, or who may see it. Model and page type are the cache's. */
typedef struct page_seed {
    descent_depth depth; /* zero where tokens are deepened: planes serve every depth */
    descent_motion motion;
    descent_solver solver;
    descent_exit exit;       /* all zero where no token of the page may stop early */
    descent_history history; /* of history_seed */
    uint64_t share_group;
} page_seed;

/* What a token that may stop early remembers of what was asked before (exit.c), from step to step and where it goes on later.
 */
typedef struct exit_memory {
    float energy;       /* E(t) of the step before, NaN where it was not asked for */
    uint32_t likeliest; /* token of the check before, NO_TOKEN: none */
    uint32_t unchanged; /* checks on end at which it was the same as before */
} exit_memory;

enum { NO_TOKEN = UINT32_MAX };
static const exit_memory nothing_asked = {NAN, NO_TOKEN, 0};

typedef struct page {
    uint32_t tokens[PAGE_TOKENS];
    uint32_t progress[PAGE_TOKENS]; /* row steps done */
    uint32_t origin[PAGE_TOKENS];   /* where the descent started: planes before it do not exist */
    uint32_t spent[PAGE_TOKENS];    /* row steps that x took: fewer than its progress where sub-layers stopped early */
    uint16_t stopped[PAGE_TOKENS];  /* the depth T_j at which the token stopped, where planes go on; 0: it has not */
    exit_memory asked[PAGE_TOKENS]; /* by the exit of its seed, where tokens go on from the middle */
    float start[PAGE_TOKENS];       /* |x(0)| where angular steps need it (motion.c) */
    bool unsolved[PAGE_TOKENS];     /* it came to its T before its solver was through */
    bool started[PAGE_TOKENS];      /* x was given by descent_sequence_start, not by the embedding */
    float *x;                       /* [PAGE_TOKENS][C]; NULL until a row needs it */
    float *velocity;                /* [PAGE_TOKENS][C] d, what momentum goes on with; NULL where nobody needs it */
    void **planes;                  /* [n_planes] of [PAGE_TOKENS][slot] */
    uint32_t n_planes;
    uint32_t reached; /* planes 0 .. reached-1 hold the last states of all who stopped before them */
    bool settled;     /* every token has stopped: plane n_planes-1 is read at every further step */

    uint32_t users;                 /* sequences that hold it */
    uint32_t children;              /* published pages whose parent it is */
    const descent_sequence *worker; /* the sequence whose rows of this page are in a batch */

    bool published;
    uint64_t serial; /* of a published page, never used twice */
    uint64_t hash;
    struct page *parent;
    page_seed seed;
    struct page *next_in_bucket;
    struct page *older, *newer; /* the idle list: published pages without users, least recently used first */
} page;

/* One more word into a hash. */
static inline uint64_t hash_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9fb21c651e98df25u;
    return hash ^ hash >> 29;
}

struct descent_cache {
    const descent_model *model;
    descent_page_type page_type;
    number_type number;
    size_t slot_bytes; /* one token in one plane */
    uint64_t bytes, byte_limit;
    uint64_t pages, idle_pages, idle_bytes, hits;
    uint64_t key; /* of the hash, random */
    uint64_t next_serial;
    page **buckets;
    size_t n_buckets, n_published;
    page *oldest, *newest;
};

/* What rows need of their pages beside x. */
typedef struct page_needs {
    uint32_t planes; /* 0 .. planes-1 */
    bool velocity;
} page_needs;

static inline float *page_state(const descent_cache *cache, const page *p, size_t slot)
{
    return p->x + slot * cache->model->info.width;
}

static inline float *page_velocity(const descent_cache *cache, const page *p, size_t slot)
{
    return p->velocity + slot * cache->model->info.width;
}

/* The plane that stands for `plane` in this page. */
static inline uint32_t page_plane(const page *p, uint32_t plane)
{
    return p->settled && plane >= p->n_planes ? p->n_planes - 1 : plane;
}

static inline void *page_slot(const descent_cache *cache, const page *p, uint32_t plane, size_t slot)
{
    return (char *)p->planes[plane] + slot * cache->slot_bytes;
}

/* A new page held by one user. Fails with DESCENT_LIMIT or DESCENT_NO_MEMORY. */
descent_code page_create(descent_cache *cache, page **out, descent_status *status);
/* A private copy of the first `count` slots, held by one user. */
descent_code page_copy(descent_cache *cache, const page *from, size_t count, page **out, descent_status *status);
/* Room for states and for what is needed (planes where there are as many, or the page is settled: nothing to do). All or
 * nothing. */
descent_code page_reserve(descent_cache *cache, page *p, page_needs needs, descent_status *status);

/* Bytes that page_reserve would take. */
uint64_t page_missing(const descent_cache *cache, const page *p, page_needs needs);

/* Makes the slot one of a token that has not begun. */
void page_clear(page *p, size_t slot, uint32_t token);
/* Rows come to a plane of the page, or read it there: it receives the last states of tokens that have stopped. */
void page_reach(const descent_cache *cache, page *p, uint32_t plane);
/* The token in a slot, now at progress `depth`, stops. Plane `depth` is there and holds its last state. */
void page_stop(descent_cache *cache, page *p, size_t slot, uint32_t depth);

/* Bytes of pages for `tokens` tokens; saturates at UINT64_MAX. */
uint64_t pages_bytes(const descent_model *model, descent_page_type type, uint64_t tokens, page_needs needs);

/* A user comes or goes. A published page without users becomes idle, an unpublished one is freed. */
void page_hold(descent_cache *cache, page *p);
void page_release(descent_cache *cache, page *p);

/* The published page with these tokens behind parent (NULL: the first), not held. NULL when there is none. */
page *page_find(const descent_cache *cache, const page *parent, const page_seed *seed, const uint32_t *tokens);

/* Publishes a full, finished page behind a published parent. Where an equal one is published already, the caller's user moves
 * to it (it first receives what `p` has more of, unless a batch is working on it), but not where tokens are deeper there than
 * the row steps `totals` at which the caller reads them: returns the page the caller holds from now on, published or not. */
page *page_publish(descent_cache *cache, page *p, page *parent, const page_seed *seed, const uint32_t totals[PAGE_TOKENS]);

#endif
