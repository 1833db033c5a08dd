/* drive.h: running sequences through descent.h in the many ways that must come to the same, and collecting everything that
 * comes out. What a function here is refused by the engine fails the running test with the engine's message. */
#ifndef TEST_DRIVE_H
#define TEST_DRIVE_H

#include "descent.h"
#include "reference.h"
#include "rng.h"

enum {
    OBSERVE_ALL = DESCENT_OBSERVE_ENERGY | DESCENT_OBSERVE_CONVERGENCE | DESCENT_OBSERVE_STATE | DESCENT_OBSERVE_FINAL |
                  DESCENT_OBSERVE_SLOPE
};

/* What an observer saw, laid out as a reference_run: at[program][step], arrays over positions. */
typedef struct record_step {
    unsigned *seen; /* [L] how many times */
    float *x, *g;   /* [L][C] */
    float *energy[DESCENT_MAX_TERMS];
    float *own_change, *history_change, *update_norm, *relative_change, *slope; /* [L] */
} record_step;

typedef struct record {
    size_t count, width, programs, kinds;
    size_t *steps;
    record_step **at;
} record;

/* Room for `count` tokens at up to `depth`. */
record *record_create(const descent_model *model, size_t count, descent_depth depth);
void record_free(record *r);
/* Observes into r from now on. */
void record_observe(record *r, descent_sequence *sequence, int flags);
const record_step *record_at(const record *r, descent_site site);
/* Every observation against the reference's: x and g as states, energies and norms as energies. Fails where positions
 * from..to-1 have one not seen. Everything must have been asked for. */
void compare_record(const record *got, const reference_run *expected, size_t from, size_t to);
/* The same of x, g and energies alone: where a token was reached into, what its changes are measured from is not defined. */
void compare_record_looks(const record *got, const reference_run *expected, size_t from, size_t to);
/* The same bits, at sites that both have seen; fails where there is none. */
void compare_records(const record *got, const record *expected);

typedef enum drive_chunks {
    DRIVE_WHOLE = 0, /* all tokens appended at once, descent_batch_finish */
    DRIVE_SINGLE,    /* one token appended, finished, its logits read; and the next */
    DRIVE_UNEVEN     /* appended in random chunks, added and stepped in random amounts */
} drive_chunks;

typedef struct drive_options {
    descent_depth depth;
    descent_motion motion;
    descent_solver solver;
    descent_exit exit;
    descent_history history;
    descent_page_type page_type;
    uint64_t byte_limit; /* 0: the default */
    uint32_t max_rows;   /* 0: the default */
    uint32_t threads;    /* 0: 1 */
    drive_chunks chunks;
    size_t mates;  /* other sequences enrolled beside this one, of depths and motions of their own */
    int observe;   /* flags, or 0 */
    bool sharing;  /* look for and offer shared pages */
    uint64_t seed; /* of chunks and mates */
} drive_options;

/* Everything that came out of one sequence. */
typedef struct outcome {
    size_t count, width, vocab;
    float *logits; /* [L][V] */
    float *states; /* [L][C] */
    record *seen;  /* NULL where nobody observed */
} outcome;

/* One sequence from nothing to its end, in a cache and batch of its own. */
outcome drive(const descent_model *model, const uint32_t *tokens, size_t count, const drive_options *options);
/* The same in a cache and batch that exist; options say what they need not. The sequence is destroyed. */
outcome drive_in(descent_cache *cache, descent_batch *batch, const descent_model *model, const uint32_t *tokens, size_t count,
                 const drive_options *options);
/* Logits and states of a finished sequence. */
outcome drive_read(descent_batch *batch, const descent_model *model, const descent_sequence *sequence);
void outcome_free(outcome *o);
void compare_outcome(const outcome *got, const reference_run *expected);
/* The same bits everywhere. */
void compare_outcomes(const outcome *got, const outcome *expected);

/* descent_cache_bytes_needed at a depth, all else as it comes. */
uint64_t bytes_at(const descent_model *model, descent_page_type type, uint64_t tokens, descent_depth depth);
/* Anything a step may be asked, mostly little of it; of a model whose steps may be angular, that too. */
descent_motion motion_random(rng *r, bool angular);
/* Every step s times as long. */
descent_motion motion_scaled(float s);

/* ---- Small steps ------------------------------------------------------------------------------------------------- */

descent_model *drive_open(const char *path);
/* Writes the model into a scratch file and opens it. */
descent_model *drive_open_test_model(const test_model *model);
descent_cache *drive_cache(const descent_model *model, descent_page_type page_type, uint64_t byte_limit);
/* Destroys a cache in which nobody holds a page: those that are left are idle, and when these have to go nothing is left. */
void drive_cache_end(descent_cache *cache);
descent_batch *drive_batch(descent_cache *cache, uint32_t max_rows, uint32_t threads);
/* `count` tokens appended (0: none), at `depth`. */
descent_sequence *drive_sequence(descent_cache *cache, descent_depth depth, bool sharing, const uint32_t *tokens, size_t count);
/* The same with whatever options. */
descent_sequence *drive_sequence_as(descent_cache *cache, const descent_sequence_options *options, const uint32_t *tokens,
                                    size_t count);
void drive_append(descent_sequence *sequence, const uint32_t *tokens, size_t count);
void drive_finish(descent_batch *batch, descent_sequence *sequence);
/* Logits [V] of one position. */
void drive_logits(descent_batch *batch, const descent_sequence *sequence, size_t position, float *logits);

/* Fails the running test unless the code is the one wanted and the message (NULL: not looked at) holds the words. */
void expect_code(descent_code code, descent_code wanted, const descent_status *status, const char *words);
void expect_ok(descent_code code, const descent_status *status);

#endif
