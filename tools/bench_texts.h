/* bench_texts.h: texts that stand at a context, and the tokens they add there again and again, for the benchmark of a model.
 *
 * A text holds context - 1 tokens, its history computed. A token is appended, descends to the text's depth, its logits are
 * read, and it is taken off: every token of a run sees the same context. Texts of a set have histories of their own, as those
 * of different clients have.
 */
#ifndef DESCENT_TOOLS_BENCH_TEXTS_H
#define DESCENT_TOOLS_BENCH_TEXTS_H

#include "bench_load.h"
#include "session.h"

typedef struct bench_text {
    descent_sequence *sequence;
    descent_depth depth;
    uint64_t quota, done; /* tokens of a run */
    double begun;         /* when the token in progress was appended */
    bool busy;
} bench_text;

typedef struct text_set {
    const session *with;
    size_t context, count;
    bench_text *texts;
    float *logits; /* [count][V] */
    descent_reading *readings;
    size_t *read; /* [count] texts whose tokens are there */
} text_set;

/* What a run did, whatever the shapes. */
typedef struct run_counts {
    uint64_t steps, row_steps; /* of the batch */
    uint64_t rounds;           /* times the batch was filled from empty */
    uint64_t readings;         /* products with the head's weights */
    uint64_t tokens;
} run_counts;

/* `count` texts, text i at depths[i % n_depths]. EXIT_SUCCESS, or the exit code after a message; release in either case. */
int texts_make(const session *with, size_t context, const asked_depth *depths, size_t n_depths, size_t count, text_set *set);
void texts_release(text_set *set);

/* Runs the first `count` texts until each has done its quota; adds to *counts. A text that is done leaves the batch to the
 * others. Times from a token's beginning to its logits go to `times` of texts at depth `timed`; both may be NULL. */
descent_code texts_run(text_set *set, size_t count, const descent_depth *timed, load_samples *times, run_counts *counts,
                       descent_status *status);

/* A new text of `length` random tokens, not descended, that shares with nobody. */
descent_code text_begin(const session *with, size_t length, descent_depth depth, descent_sequence **sequence,
                        descent_status *status);
/* Descends all of its tokens; adds to *counts. */
descent_code text_descend(const session *with, descent_sequence *sequence, run_counts *counts, descent_status *status);

bool depth_equals(descent_depth a, descent_depth b);

#endif
