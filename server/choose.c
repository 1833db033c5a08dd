/* choose.c: see choose.h. */
#include "choose.h"

#include "grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const choose_rule_names[] = {"logprob", "energy", "energy_gap", "vote", NULL};

int choose_flags(choose_rule by)
{
    return by == CHOOSE_ENERGY || by == CHOOSE_ENERGY_GAP ? DESCENT_OBSERVE_ENERGY | DESCENT_OBSERVE_FINAL : 0;
}

/* ---- Gathering --------------------------------------------------------------------------------------------------- */

/* The token at `position`, which is at most a few behind those there are; NULL without memory. */
static token_energy *energy_at(candidate *c, size_t position)
{
    size_t i = position - c->first;
    size_t more = i < c->n_energy ? 0 : i + 1 - c->n_energy;
    if (!grow(&c->energy, c->n_energy, more, &c->energy_room, sizeof *c->energy)) return NULL;
    if (more > 0) memset(c->energy + c->n_energy, 0, more * sizeof *c->energy);
    c->n_energy += more;
    return &c->energy[i];
}

void candidate_observe(candidate *c, const descent_observation *seen)
{
    const descent_model_info *info = descent_model_describe(c->model);
    const descent_site *site = &seen->site;
    if (site->position < c->first || c->failed) return;
    token_energy *token = energy_at(c, site->position);
    c->failed = !token;
    if (!token || token->complete) return;
    bool begins = site->step == 0 && !seen->final;
    if (begins && site->layer == 0 && site->kind == 0) *token = (token_energy){0};
    double energy = 0;
    for (uint32_t k = 0; k < info->terms[site->kind]; k++) energy += (double)seen->energy[k];
    if (begins) token->start += energy;
    if (!seen->final) return;
    token->end += energy;
    token->complete = site->layer + 1 == info->layers && site->kind + 1 == info->kinds;
}

void candidate_release(candidate *c)
{
    free(c->energy);
    *c = (candidate){0};
}

/* ---- Judging ----------------------------------------------------------------------------------------------------- */

/* Tokens of the text, from its first, whose energies are known. */
static size_t judged(const candidate *c)
{
    size_t most = c->tokens < c->n_energy ? c->tokens : c->n_energy, count = 0;
    while (count < most && c->energy[count].complete) count++;
    return count;
}

static size_t shortest(const candidate *candidates, size_t n)
{
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        size_t own = judged(&candidates[i]);
        if (own > 0 && own < least) least = own;
    }
    return least;
}

static double mean_energy(const candidate *c, size_t common)
{
    double sum = 0;
    if (judged(c) == 0) return NAN;
    for (size_t i = 0; i < common; i++) sum += c->energy[i].end + descent_model_history_term(c->model, c->first + i);
    return sum / (double)common;
}

static double mean_gap(const candidate *c)
{
    size_t count = judged(c);
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += c->energy[i].start - c->energy[i].end;
    return count > 0 ? sum / (double)count : NAN;
}

static double votes(const candidate *candidates, size_t n, const candidate *c)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += candidates[i].bytes == c->bytes && (c->bytes == 0 || !memcmp(candidates[i].text, c->text, c->bytes));
    return (double)count;
}

static bool better(choose_rule by, const candidate *a, const candidate *b)
{
    if (isnan(a->score)) return false;
    if (isnan(b->score)) return true;
    if (by == CHOOSE_ENERGY) return a->score < b->score;
    return a->score > b->score || (by == CHOOSE_VOTE && a->score == b->score && a->logprob > b->logprob);
}

size_t choose_best(choose_rule by, candidate *candidates, size_t n)
{
    size_t best = 0, common = shortest(candidates, n);
    for (size_t i = 0; i < n; i++) {
        candidate *c = &candidates[i];
        c->worth[CHOOSE_LOGPROB] = c->tokens > 0 ? c->logprob : NAN;
        c->worth[CHOOSE_ENERGY] = mean_energy(c, common);
        c->worth[CHOOSE_ENERGY_GAP] = mean_gap(c);
        c->worth[CHOOSE_VOTE] = votes(candidates, n, c);
        c->score = c->worth[by];
        if (better(by, c, &candidates[best])) best = i;
    }
    return best;
}
