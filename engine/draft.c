/* draft.c: see draft.h. Owns nothing; its callers are generation.c (what became of guesses), scheduler.c (what steps cost) and
 * schedule.c (what to do). */
#include "draft.h"

#include <stdbool.h>

static const double step_share = 0.1;             /* of a new measurement in the mean of a step's seconds */
static const double memory = 64;                  /* tokens that a record remembers */
static const double enough = 8;                   /* of which so many say something */
enum { EXPLORE_EVERY = 256, EXPLORE_TOKENS = 4 }; /* what was seen at long intervals may have changed at short */
static const double most_slower = 1.25;           /* what others' steps may take longer for drafts */
static const double least_gain = 0.95;            /* of the time without: less is within the error */

static uint32_t part_steps(uint32_t total)
{
    return (total + DRAFT_PARTS - 1) / DRAFT_PARTS;
}

/* Others on the machine make single steps slow; one is believed to be so as the mean says, at most twice. */
static void average(double *mean, double seconds)
{
    if (*mean > 0)
        *mean += step_share * ((seconds < 2 * *mean ? seconds : 2 * *mean) - *mean);
    else
        *mean = seconds;
}

void draft_count_step(draft_costs *costs, size_t rows, double seconds)
{
    if (rows > 0 && rows <= DRAFT_ROWS) average(&costs->step[rows], seconds);
}

void draft_count_readings(draft_costs *costs, size_t count, double seconds)
{
    if (count > 0) average(&costs->reading, seconds / (double)count);
}

void draft_count_token(draft_record *record, uint32_t total, uint32_t steps)
{
    uint32_t part = part_steps(total), k = (steps + part - 1) / part;
    record->tokens++;
    if (steps == 0) return;
    record->weight = 0;
    for (uint32_t i = 0; i <= DRAFT_PARTS; i++) {
        record->known[i] *= 1 - 1 / memory;
        record->known[i] += i == (k < DRAFT_PARTS ? k : DRAFT_PARTS);
        record->weight += record->known[i];
    }
}

/* Steps after which the next token begins, on average, where guesses are asked for every `steps`. */
static double delay(const draft_record *record, uint32_t total, uint32_t steps)
{
    uint32_t part = part_steps(total);
    double sum = 0;
    for (uint32_t k = 1; k <= DRAFT_PARTS; k++) {
        uint32_t after = (k * part + steps - 1) / steps * steps;
        sum += record->known[k] * (after < total ? after : total);
    }
    return sum / record->weight;
}

/* Seconds of a step of so many rows; where it was never made, those of the next smaller one that was: so it will be made, and
 * then it is known. */
static double step_seconds(const draft_costs *costs, size_t rows)
{
    while (rows > 1 && costs->step[rows] == 0) rows--;
    return costs->step[rows];
}

uint32_t draft_choose(const draft_costs *costs, const draft_record *record, uint32_t total, size_t others)
{
    uint32_t part = part_steps(total), best = 0;
    bool explores = others == 0 && (record->weight < enough || record->tokens % EXPLORE_EVERY < EXPLORE_TOKENS);
    if (total < 2 || others + 2 > DRAFT_ROWS) return 0;
    if (explores) return part;
    if (record->weight < enough) return 0;
    double alone = step_seconds(costs, others + 1);
    double least = least_gain * (total * alone + costs->reading);
    for (uint32_t steps = part; steps < total; steps += part) {
        size_t rows = (total + steps - 1) / steps;
        if (others + rows > DRAFT_ROWS) continue;
        double together = step_seconds(costs, others + rows);
        if (others > 0 && together > most_slower * alone) continue;
        double cost = delay(record, total, steps) * (together + costs->reading * (double)rows / steps);
        if (cost >= least) continue;
        least = cost;
        best = steps;
    }
    return best;
}
