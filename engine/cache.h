/* cache.h: pages of the state cache. A page holds PAGE_TOKENS consecutive tokens: for each its progress and its state x at
 * that progress, and one plane after another of what later tokens read as history. A sequence is a list of pages.
 *
 * A full page whose tokens are finished may be *published*: found again by anybody who has the same tokens behind the same
 * parent page and the same seed. Published pages never lose or alter a plane; where the model deepens they gain some.
 */
#ifndef DESCENT_CACHE_H
#define DESCENT_CACHE_H

#include "descent.h"
#include "model.h"

enum { PAGE_TOKENS = 32 };

/* Everything besides tokens that changes what a page holds, or who may see it. Model and page type are the cache's. */
typedef struct page_seed {
    descent_depth depth; /* zero where the model deepens: planes serve every depth */
    float step_scale;
    uint64_t share_group;
} page_seed;

typedef struct page {
    uint32_t tokens[PAGE_TOKENS];
    uint32_t progress[PAGE_TOKENS]; /* row steps done */
    uint32_t origin[PAGE_TOKENS];   /* where the descent started: planes before it do not exist */
    bool started[PAGE_TOKENS];      /* x was given by descent_sequence_start, not by the embedding */
    float *x;                       /* [PAGE_TOKENS][C]; NULL until a row needs it */
    void **planes;                  /* [n_planes] of [PAGE_TOKENS][slot] */
    uint32_t n_planes;

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

static inline float *page_state(const descent_cache *cache, const page *p, size_t slot)
{
    return p->x + slot * cache->model->info.width;
}

static inline void *page_slot(const descent_cache *cache, const page *p, uint32_t plane, size_t slot)
{
    return (char *)p->planes[plane] + slot * cache->slot_bytes;
}

/* A new page held by one user. Fails with DESCENT_LIMIT or DESCENT_NO_MEMORY. */
descent_code page_create(descent_cache *cache, page **out, descent_status *status);
/* A private copy of the first `count` slots, held by one user. */
descent_code page_copy(descent_cache *cache, const page *from, size_t count, page **out, descent_status *status);
/* Room for states and for planes 0 .. planes-1 (fewer than there are: nothing to do). All or nothing. */
descent_code page_reserve(descent_cache *cache, page *p, uint32_t planes, descent_status *status);

/* Bytes that page_reserve would take. */
uint64_t page_missing(const descent_cache *cache, const page *p, uint32_t planes);

/* Bytes of pages for `tokens` tokens with so many planes each; saturates at UINT64_MAX. */
uint64_t pages_bytes(const descent_model *model, descent_page_type type, uint64_t tokens, uint32_t planes);

/* A user comes or goes. A published page without users becomes idle, an unpublished one is freed. */
void page_hold(descent_cache *cache, page *p);
void page_release(descent_cache *cache, page *p);

/* The published page with these tokens behind parent (NULL: the first), not held. NULL when there is none. */
page *page_find(const descent_cache *cache, const page *parent, const page_seed *seed, const uint32_t *tokens);

/* Publishes a full, finished page behind a published parent. Where an equal one is published already, the caller's user moves
 * to it (it first receives what `p` has more of, unless a batch is working on it), but not where tokens are deeper there than
 * the `total` row steps at which the caller reads them: returns the page the caller holds from now on, published or not. */
page *page_publish(descent_cache *cache, page *p, page *parent, const page_seed *seed, uint32_t total);

#endif
