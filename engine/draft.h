/* draft.h: what drafting costs and brings, as measured, and the step at which it pays most to ask for a guess.
 *
 * A generation's newest token may be asked for the next one before it has finished (generation.c): after d of its T steps, and
 * again after every d further. The earlier the right guess comes, the sooner the next token begins: each token then takes the
 * steps until the right guess instead of T. The price is ceil(T / d) rows of one sequence in the batch instead of one, and as
 * many readings. No arithmetic depends on what is chosen here, only its time does. The scheduler's thread's. */
#ifndef DESCENT_DRAFT_H
#define DESCENT_DRAFT_H

#include <stddef.h>
#include <stdint.h>

enum {
    DRAFT_ROWS = 16, /* nothing is drafted into a batch of more rows */
    DRAFT_PARTS = 8, /* of a descent: guesses are asked for at multiples of its parts, ceil(T / DRAFT_PARTS) steps each */
    DRAFT_MOST = DRAFT_ROWS - 1 /* drafts of one generation */
};

/* Seconds, of late and undisturbed; 0: not measured yet. */
typedef struct draft_costs {
    double step[DRAFT_ROWS + 1]; /* [r] of a batch step that advances r rows */
    double reading;              /* of one token's logits, and of what is done with them */
} draft_costs;

/* How early tokens of one T knew what follows them. */
typedef struct draft_record {
    double known[DRAFT_PARTS + 1]; /* [k] tokens whose right guess came in part k (1 the first), the last: or never; fading */
    double weight;                 /* their sum */
    uint32_t tokens;               /* how many were counted, modulo 2^32 */
} draft_record;

void draft_count_step(draft_costs *costs, size_t rows, double seconds);
void draft_count_readings(draft_costs *costs, size_t count, double seconds);
/* A token of `total` steps was chosen which the one before it, asked every `between` of its own, had guessed for good after
 * `steps`, 1..total; total: it had not. between 0: it was not asked. */
void draft_count_token(draft_record *record, uint32_t total, uint32_t steps, uint32_t between);

/* The steps between guesses that make a token of `total` steps cheapest beside `others` rows of other sequences, 0 where none
 * does, or nothing is known of it and others would pay for finding out. */
uint32_t draft_choose(const draft_costs *costs, const draft_record *record, uint32_t total, size_t others);

#endif
