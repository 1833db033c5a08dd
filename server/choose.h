/* choose.h: one of several candidate texts of a prompt, by a rule of models.md section 4. What the rules look at is gathered
 * per candidate: energies while it is generated, on the thread that steps its batch; its text and its logprob when it has
 * ended. Knows nothing of requests: the command line's candidates are chosen here too.
 *
 * - energy: lowest mean, over the tokens generated, of E_i(T) + descent_model_history_term(i). All candidates over equally many
 *   tokens, as many as the shortest has
 * - energy_gap: largest mean of E_i(0) - E_i(T), over all of a candidate's own tokens
 * - logprob: highest mean logprob of the tokens
 * - vote: the most frequent text; ties go to the higher mean logprob
 *
 * E_i is the sum of all energies the token descended: the terms of one block, or of every attention and MLP of a layered model,
 * each at its own first and last step (where it stopped, if it stopped early). The token chosen last has none, since it is
 * never descended. A candidate without a token to judge by has no score, comes last, and does not shorten the others. What ties
 * goes to the earlier one.
 */
#ifndef DESCENT_SERVER_CHOOSE_H
#define DESCENT_SERVER_CHOOSE_H

#include "descent.h"

typedef enum choose_rule { CHOOSE_LOGPROB, CHOOSE_ENERGY, CHOOSE_ENERGY_GAP, CHOOSE_VOTE } choose_rule;
enum { CHOOSE_RULES = CHOOSE_VOTE + 1 };

extern const char *const choose_rule_names[]; /* by choose_rule; NULL-terminated */

/* DESCENT_OBSERVE_... that a rule needs of the tokens generated; 0: none. */
int choose_flags(choose_rule by);

typedef struct token_energy {
    double start, end; /* sums over descents: E_i(0), E_i(T) */
    bool complete;     /* the last descent is over */
} token_energy;

typedef struct candidate {
    const descent_model *model;
    size_t first;         /* position of the first token generated */
    token_energy *energy; /* [n_energy], by token generated; owned */
    size_t n_energy, energy_room;
    bool failed; /* memory ran out: energies are missing */
    /* Once it has ended, for choose_best: */
    const char *text; /* [bytes], borrowed */
    size_t bytes;
    size_t tokens;  /* generated and part of the text */
    double logprob; /* their mean; -INFINITY where there are none */
    /* choose_best's, by each rule, and by the one that chose. NaN: nothing to judge by; energies were not asked for */
    double worth[CHOOSE_RULES], score;
} candidate;

/* Takes an observation (choose_flags) of the candidate's. Those of tokens before `first` are not looked at; a token that is
 * computed again counts once. */
void candidate_observe(candidate *c, const descent_observation *seen);
void candidate_release(candidate *c);

/* Which of n candidates (at least 1) of one prompt is the best. Gives each its worth by every rule: the larger the better, but
 * for CHOOSE_ENERGY the smaller; of a vote how many have its text. */
size_t choose_best(choose_rule by, candidate *candidates, size_t n);

#endif
