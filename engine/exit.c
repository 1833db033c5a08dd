/* exit.c: early exit. Owns the criterion and when it is asked; shapes: g before and after a step, [rows of the tile][stride].
 * sequence.c has what was asked checked here, the families ask behind each step, and batch.c acts on the answer: a token of a
 * model that deepens stops for good (cache.h says how it is read), elsewhere it goes on to its next sub-layer. */
#include "exit.h"

#include "batch.h"
#include "sequence.h"
#include "status.h"

#include <math.h>
#include <string.h>

/* ---- What was asked ---------------------------------------------------------------------------------------------- */

descent_code exit_complete(const descent_model_info *info, descent_exit *exit, descent_status *status)
{
    if (exit->criterion == DESCENT_EXIT_NONE) {
        *exit = (descent_exit){.criterion = DESCENT_EXIT_NONE};
        return DESCENT_OK;
    }
    if (exit->criterion != DESCENT_EXIT_STATE)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "exit criterion %d; expected DESCENT_EXIT_NONE or DESCENT_EXIT_STATE",
                            (int)exit->criterion);
    if (!(exit->threshold >= 0) || isinf(exit->threshold))
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "exit threshold is %g; expected a finite number of at least 0",
                            (double)exit->threshold);
    bool descends = false;
    for (uint32_t k = 0; k < info->kinds; k++) descends = descends || info->terms[k] > 0;
    if (!descends)
        return descent_fail(status, DESCENT_UNSUPPORTED,
                            "early exit is asked of %s (%s, %s), which does not descend an energy; expected none", info->name,
                            info->family, info->variant);
    if (exit->min_steps == 0) exit->min_steps = 1;
    if (exit->check_every == 0) exit->check_every = 1;
    return DESCENT_OK;
}

bool exits_equal(const descent_exit *a, const descent_exit *b)
{
    return a->criterion == b->criterion && !memcmp(&a->threshold, &b->threshold, sizeof a->threshold) &&
           a->min_steps == b->min_steps && a->check_every == b->check_every && a->first == b->first;
}

/* ---- After a step ------------------------------------------------------------------------------------------------ */

enum { LANES = 8 };

float relative_change(const float *g, const float *next_g, size_t n)
{
    double moved[LANES] = {0}, length[LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        double before = (double)g[i], change = (double)next_g[i] - before;
        moved[i % LANES] += change * change;
        length[i % LANES] += before * before;
    }
    for (int k = 1; k < LANES; k++) {
        moved[0] += moved[k];
        length[0] += length[k];
    }
    return (float)sqrt(moved[0] / length[0]);
}

/* The step that this row has just made is one after which its sequence asks. */
static bool asks(const descent_model *model, const row *r)
{
    const descent_exit *exit = &r->sequence->seed.exit;
    uint32_t done = r->where.step + 1;
    return exit->criterion != DESCENT_EXIT_NONE && r->moved && r->position >= exit->first && done >= exit->min_steps &&
           (done - exit->min_steps) % exit->check_every == 0 && model->info.terms[r->where.kind] > 0;
}

bool tile_asks(const tile *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (asks(t->model, t->rows[i])) return true;
    return false;
}

void tile_decide(const tile *t, const float *g, const float *next_g)
{
    size_t width = t->model->info.width, stride = t->work->wide_stride;
    for (size_t i = 0; i < t->n; i++) {
        row *r = t->rows[i];
        if (asks(t->model, r))
            r->stops = relative_change(g + i * stride, next_g + i * stride, width) < r->sequence->seed.exit.threshold;
    }
}
