/* draft.c: see draft.h. Owns nothing; its callers are generation.c (what became of guesses), scheduler.c (what steps cost) and
 * schedule.c (what to do). */
#include "draft.h"

#include <stdbool.h>

static const double quicker = 0.25, slower = 0.02; /* shares of a new measurement in what is believed */
static const double memory = 64;                   /* tokens that a record remembers */
static const double enough = 8;                    /* of which so many say something */
enum { EXPLORE_EVERY = 256, EXPLORE_TOKENS = 4 };  /* what was seen at long intervals may have changed at short */
static const double most_slower = 1.25;            /* what others' steps may take longer for drafts */
static const double least_gain = 0.95;             /* of the time without: less is within the error */

static uint32_t part_steps(uint32_t total)
{
    return (total + DRAFT_PARTS - 1) / DRAFT_PARTS;
}

/* What a step takes when nothing disturbs it: others on the machine make single ones longer, nobody makes them shorter. */
static void follow(double *mean, double seconds)
{
    if (*mean > 0)
        *mean += (seconds < *mean ? quicker : slower) * ((seconds < 2 * *mean ? seconds : 2 * *mean) - *mean);
    else
        *mean = seconds;
}

void draft_count_step(draft_costs *costs, size_t rows, double seconds)
{
    if (rows > 0 && rows <= DRAFT_ROWS) follow(&costs->step[rows], seconds);
}

void draft_count_readings(draft_costs *costs, size_t count, double seconds)
{
    if (count > 0) follow(&costs->reading, seconds / (double)count);
}

/* Asked every second step, a token known after one step is seen to be after two: it counts as parts of one there, as much as
 * others that were asked more often were known that early. */
void draft_count_token(draft_record *record, uint32_t total, uint32_t steps, uint32_t between)
{
    uint32_t part = part_steps(total), first, last = (steps + part - 1) / part;
    double shares = 0;
    record->tokens++;
    if (between == 0) return;
    if (last > DRAFT_PARTS) last = DRAFT_PARTS;
    first = (steps - 1) / between * between / part + 1;
    if (first > last) first = last;
    for (uint32_t k = first; k <= last; k++) shares += record->known[k];
    record->weight = 0;
    for (uint32_t k = 1; k <= DRAFT_PARTS; k++) {
        double own = k < first || k > last ? 0 : shares > 0 ? record->known[k] / shares : k == last;
        record->known[k] = record->known[k] * (1 - 1 / memory) + own;
        record->weight += record->known[k];
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

/* The same of a mean number of rows. */
static double mean_seconds(const draft_costs *costs, double rows)
{
    size_t below = (size_t)rows;
    double low = step_seconds(costs, below);
    return rows > (double)below ? low + (rows - (double)below) * (step_seconds(costs, below + 1) - low) : low;
}

/* Seconds of a token: its row and those of drafts, ceil(T / steps) in all where every guess is right, and on average half of
 * that where every one is wrong and all behind it goes. */
static double token_seconds(const draft_costs *costs, const draft_record *record, uint32_t total, uint32_t steps, size_t others)
{
    double after = delay(record, total, steps), most = (double)((total + steps - 1) / steps);
    double rows = (total / after + most) / 2;
    if (rows > most) rows = most;
    return after * (mean_seconds(costs, (double)others + rows) + costs->reading * rows / steps);
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
        double cost = token_seconds(costs, record, total, steps, others);
        if (cost >= least) continue;
        least = cost;
        best = steps;
    }
    return best;
}
