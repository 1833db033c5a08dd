/* sequence.h: one mutable timeline, as the engine's own files see it. */
#ifndef DESCENT_SEQUENCE_H
#define DESCENT_SEQUENCE_H

#include "cache.h"
#include "history.h"

/* Every flag of descent_sequence_observe. */
enum {
    OBSERVE_KNOWN = DESCENT_OBSERVE_ENERGY | DESCENT_OBSERVE_CONVERGENCE | DESCENT_OBSERVE_STATE | DESCENT_OBSERVE_FINAL |
                    DESCENT_OBSERVE_SLOPE | DESCENT_OBSERVE_LOGITS
};

/* What descent_sequence_intervene was asked, kept in order. */
typedef struct intervention {
    descent_site site;
    descent_intervention how;
    float *values; /* [C] */
} intervention;

/* Row steps run, by the kind of sub-layer; those of them that began one; and the positions up to their own, added
 * up over all of them. What was run to see which tokens stop: readings of logits, and energies, counted likewise. */
typedef struct sequence_work {
    uint64_t steps[DESCENT_MAX_KINDS], begun[DESCENT_MAX_KINDS], seen[DESCENT_MAX_KINDS];
    uint64_t readings, energies[DESCENT_MAX_KINDS], energies_seen[DESCENT_MAX_KINDS];
} sequence_work;

/* What descent_sequence_start was given, where a token may have to begin again. */
typedef struct start {
    size_t position;
    float *x; /* [C] */
} start;

struct descent_sequence {
    descent_cache *cache;
    descent_depth depth;
    descent_history history; /* as asked */
    uint32_t total;          /* row steps of a token at that depth; */
    uint32_t prompt_total;   /* of one before history.prompt */
    page_seed seed;          /* of its pages, but for those of prompts (sequence_seed) */
    bool no_sharing;
    size_t private_from; /* the first block (page index) that is kept from others; SIZE_MAX: none */
    size_t uneven_from;  /* the same, at this depth, for what history_uneven says */

    uint32_t *tokens;
    size_t length;
    page **pages;         /* [blocks in use] */
    uint32_t *lacking;    /* of each of these pages a bit for each token that was found short of the depth and is still there */
    size_t n_pages, room; /* pages held; pages the arrays have room for */

    size_t finished; /* tokens, from the first, whose progress has reached total */
    size_t reused, deepened;
    uint64_t steps_run;
    sequence_work work; /* the same in more detail, and beside it */

    struct descent_batch *batch; /* that holds its rows, or NULL */
    size_t rows;                 /* of them */
    size_t next_row;             /* the first position not enrolled yet, while in a batch */

    int observe;
    bool observe_last; /* only the last step of each descent and what lies behind; every step where tokens may stop early */
    descent_observer observer;
    void *observer_user;
    uint64_t logits_read; /* for it */
    intervention *interventions;
    size_t n_interventions;
    start *starts;
    size_t n_starts;
    bool has_starts; /* some token's history begins after step 0 */

    descent_code ended; /* DESCENT_DIVERGED, or DESCENT_OK */
    size_t ended_position;
    uint32_t ended_step, ended_layer, ended_kind;

    uint32_t rest_step; /* of solver.c: tokens before rest_before have stopped by the step behind this one */
    size_t rest_before;
    uint32_t scan_level; /* of batch.c, within one step: the lowest level of the rows seen so far */
};

static inline page *sequence_page(const descent_sequence *s, size_t position)
{
    return s->pages[position / PAGE_TOKENS];
}

static inline uint32_t sequence_progress(const descent_sequence *s, size_t position)
{
    return sequence_page(s, position)->progress[position % PAGE_TOKENS];
}

/* Tokens go on from the middle of a descent, and to a larger T from where they stand: all of it lies in the page. */
static inline bool sequence_resumes(const descent_sequence *s)
{
    return s->cache->model->info.deepens && s->seed.solver.method == DESCENT_SOLVER_PLAIN;
}

/* A larger T takes tokens on from where they stand. */
static inline bool sequence_deepens(const descent_sequence *s)
{
    return sequence_resumes(s) && s->history.policy == DESCENT_HISTORY_OWN;
}

/* Later tokens read one state of each, its last: no two tokens are on their way at once. */
static inline bool sequence_reads_last(const descent_sequence *s)
{
    return s->seed.history.policy == DESCENT_HISTORY_LAST;
}

/* T of a token, and its row steps. */
static inline descent_depth sequence_token_depth(const descent_sequence *s, size_t position)
{
    return history_depth(&s->history, s->depth, position);
}

static inline uint32_t sequence_total(const descent_sequence *s, size_t position)
{
    return position < s->history.prompt ? s->prompt_total : s->total;
}

/* A token that has done so many steps ends there and is read by tokens that go further. */
static inline bool sequence_outlasts(const descent_sequence *s, size_t position, uint32_t progress)
{
    return s->seed.history.policy == DESCENT_HISTORY_LATEST && position < s->history.prompt && progress >= s->prompt_total;
}

/* Where in the network a token's next step lies. */
static inline place sequence_place(const descent_sequence *s, uint32_t progress)
{
    place where = s->cache->model->family->progression->locate(s->cache->model, s->depth, progress);
    if (sequence_reads_last(s)) where.plane = 0;
    return where;
}

/* The token has no step left to make at the sequence's depth. */
static inline bool sequence_done(const descent_sequence *s, size_t position)
{
    const page *p = sequence_page(s, position);
    return p->progress[position % PAGE_TOKENS] >= sequence_total(s, position) || p->stopped[position % PAGE_TOKENS] > 0;
}

/* Puts defaults where fields are 0, and checks depth, motion, exit and solver. */
descent_code sequence_complete_options(const descent_model *model, descent_sequence_options *options, descent_status *status);

/* What page `block` needs for rows of a sequence with these (completed) options: of planes one more than T has where a token
 * may stop at T, or where x(T) is observed and history moves. */
page_needs needs_of(const descent_model *model, const descent_sequence_options *options, int observe, size_t block);
page_needs sequence_needs(const descent_sequence *s, size_t block);
/* Bytes of the pages of its first `tokens` tokens; saturates at UINT64_MAX. */
uint64_t text_bytes(const descent_model *model, descent_page_type type, const descent_sequence_options *options, int observe,
                    uint64_t tokens);
uint64_t sequence_bytes(const descent_sequence *s, uint64_t tokens);

/* Counts `finished` on, after tokens have come further. */
void sequence_count(descent_sequence *s);

/* Publishes what is full and finished; the page of the last token only where `last`. */
void sequence_publish(descent_sequence *s, bool last);

/* From block `first` on, pages that others may see become copies of the sequence's own. */
descent_code sequence_make_private(descent_sequence *s, size_t first, descent_status *status);

/* Ends the sequence: its state at `place` of `position` is not finite. */
void sequence_end(descent_sequence *s, size_t position, place where);

/* Puts x of a token that has done none of its steps into its page (which has room for it). */
void sequence_begin_token(const descent_sequence *s, size_t position);

/* Forgets starts from position `first` on. */
void sequence_drop_starts(descent_sequence *s, size_t first);

/* The site exists at that depth, and `values` are C finite numbers. *progress: how far a token has come there. */
descent_code site_check(const descent_model *model, descent_depth depth, descent_site site, const float *values,
                        uint32_t *progress, descent_status *status);

/* Applies the interventions on x (or on g, where `on_g`) at a place to values [C]. True where there was one. */
bool sequence_intervene(const descent_sequence *s, size_t position, place where, bool on_g, float *values);

#endif
