/* generation.h: one prompt and the tokens that follow it, as the scheduler's files see it.
 *
 * A generation's text is kept apart from its sequence: the sequence comes and goes with the memory there is (waiting: none),
 * the text stays, so that what was chosen once is never chosen again. Everything here is the scheduler thread's, but for the
 * fields named otherwise. */
#ifndef DESCENT_GENERATION_H
#define DESCENT_GENERATION_H

#include "cache.h"
#include "draft.h"
#include "reach.h"

#include <stdatomic.h>

struct descent_generation {
    descent_scheduler *scheduler;
    struct sweep *sweep;                          /* what it measures instead of choosing tokens (sweep.h); NULL: it is none */
    descent_generation *live_before, *live_after; /* every generation there is; under the scheduler's lock */
    descent_generation *next, *previous;          /* the line it waits in */
    bool waiting;                                 /* stands in a line */
    atomic_bool cancelled;                        /* any thread */

    /* What was asked. */
    size_t prompt_count, limit;
    descent_sampling sampling; /* its bias is a copy */
    descent_sequence_options options;
    bool read_prompt, background;
    int draft_steps;      /* as asked; 0 where nothing may be drafted */
    descent_reach *reach; /* a copy; NULL: nothing */
    int observe;
    size_t observe_from; /* the first position whose rows are reported */
    descent_generation_calls calls;
    void *user;
    descent_generation *like; /* NULL once it need not wait any longer; that one counts its followers, under the lock */
    size_t followers;

    /* The text. */
    uint32_t *tokens; /* [most] the prompt, which never changes, what was chosen, and drafts behind */
    size_t count, most;
    size_t drafted;                     /* drafts, which stand at tokens[count ...] */
    uint32_t guessed_after[DRAFT_MOST]; /* of each, the steps that the token before it had done when it became this one */
    uint32_t draft_now;                 /* steps between guesses; 0: none are made */
    size_t drafts_from;                 /* the length of the text from which guesses are made again */
    uint32_t draft_chosen;              /* of DESCENT_DRAFT_AUTO, when so many tokens had been generated: */
    size_t draft_chosen_for;
    draft_record record; /* how early what follows was known */
    size_t read;         /* prompt positions whose logits were handed out */
    bool prompt_done;    /* once: not undone by a pause */
    uint32_t *reported;  /* [most] observations handed out of each position; NULL where nobody observes */
    uint32_t *seen;      /* [most] of each position since it was begun last */

    /* The computation. */
    descent_sequence *sequence; /* NULL: it holds no cache */
    bool observing;             /* its sequence is observed */
    bool begun;                 /* once */
    uint64_t turn;              /* when it was last given prompt rows, counted in turns */
    bool satisfied;             /* takes no more rows of its prompt before the next step */
    size_t looked;              /* positions before this one have been collected for reading since the last step */

    bool over; /* `report` says how it ended */
    descent_generation_report report;
    double since, *clock; /* when its present phase began, and where the phase's seconds are counted */
};

double monotonic_seconds(void);

/* Checks the options and copies what they point to. `like` is the scheduler's affair. */
descent_code generation_create(const descent_model *model, const descent_generation_options *options, descent_generation **out,
                               descent_status *status);
/* One that chooses nothing and reads its prompt as whoever makes it says: `how` is complete, the rest is for the caller to fill
 * in. */
descent_code generation_create_reading(const uint32_t *prompt, size_t count, const descent_sequence_options *how, int observe,
                                       size_t observe_from, descent_generation **out, descent_status *status);
void generation_free(descent_generation *g);

/* Tokens whose states it may come to hold. The last one chosen is not among them. */
size_t generation_most_held(const descent_generation *g);
/* What its page `block` needs. */
page_needs generation_needs(const descent_generation *g, const descent_model *model, size_t block);

/* Makes the sequence of its text, nothing computed. Fails with DESCENT_LIMIT or DESCENT_NO_MEMORY, no memory held. */
descent_code generation_begin(descent_generation *g, descent_cache *cache, descent_status *status);
/* Lets all its memory go but the text. */
void generation_release(descent_generation *g);

/* True when all that is missing is the row of its last token, one it has chosen, and whatever was drafted behind. */
bool generation_decodes(const descent_generation *g);
/* True when a row of its text has not entered the batch: when it decodes, that one. */
bool generation_lacks_row(const descent_generation *g);
/* Enrols at most `most` rows, tokens chosen meanwhile included. Fails as descent_batch_add. */
descent_code generation_take_rows(descent_generation *g, descent_batch *batch, size_t most, size_t *added,
                                  descent_status *status);
/* Enrols at most `most` rows of drafts, if its last token's row is in the batch. Fails as descent_batch_add. */
descent_code generation_take_drafts(descent_generation *g, descent_batch *batch, size_t most, descent_status *status);
/* Counts the drafts that begin with the next step. */
void generation_count_drafts(descent_generation *g);
/* Forgets its drafts; the memory of pages that hold nothing else is free. False: there were none. */
bool generation_drop_drafts(descent_generation *g);

/* False where its sequence has ended: a state was not finite. One of a draft's only ends the drafts; a sweep goes on, or ends
 * with what it has. */
bool generation_outlives(descent_generation *g);

/* True when the logits of a position not yet looked at are there and wait to be read; the first of them. */
bool generation_due(const descent_generation *g, size_t *position);
/* Takes the logits [V] of a position that was due: hands them out and chooses from them where it is the last, and guesses from
 * them what follows where it has not finished. Drafts may be gone with what was read before in the same step: then nothing
 * happens. */
void generation_read(descent_generation *g, size_t position, const float *logits, const descent_model *model);

/* It has ended, unless it has already. `status` may be NULL. */
void generation_end(descent_generation *g, descent_generation_end end, const descent_status *status);
/* The seconds since the last call went to the present phase. */
void generation_charge(descent_generation *g, double *next_clock);

#endif
