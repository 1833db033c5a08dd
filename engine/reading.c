/* reading.c: what leaves the batch. The logits [n][V] of all tokens that have finished their descent, and of those that are
 * asked for a guess on their way, are read through one product with the head, and handed to their generations. Called by
 * scheduler.c behind a step, on its thread. */
#include "batch.h"
#include "scheduler.h"
#include "sweep.h"

/* Fills readings with positions that are due, from the running generation *next on; *next is then the first not looked at to
 * its end. */
static size_t collect(descent_scheduler *s, size_t *next)
{
    size_t n = 0;
    for (; *next < s->n_running; ++*next) {
        descent_generation *g = s->running[*next];
        size_t position;
        while (generation_due(g, &position)) {
            if (n == s->most_readings) return n;
            s->readers[n] = g;
            s->readings[n++] = (descent_reading){g->sequence, position};
            g->looked = position + 1;
        }
    }
    return n;
}

void read_logits(descent_scheduler *s)
{
    size_t next = 0, n, vocab = descent_model_describe(s->model)->vocab;
    for (size_t i = 0; i < s->n_running; i++) s->running[i]->looked = 0;
    while ((n = collect(s, &next)) > 0) {
        double began = monotonic_seconds();
        descent_status status;
        descent_code code = batch_logits_so_far(s->batch, s->readings, n, s->logits, &status);
        sweeps_charge_reading(s->readers, n, monotonic_seconds() - began);
        for (size_t i = 0; i < n; i++) {
            if (code == DESCENT_OK || code == DESCENT_DIVERGED) /* which one did is seen from its logits */
                generation_read(s->readers[i], s->readings[i].position, s->logits + i * vocab, s->model);
            else
                generation_end(s->readers[i], DESCENT_END_FAILED, &status);
        }
        draft_count_readings(&s->draft_costs, n, monotonic_seconds() - began);
    }
}
