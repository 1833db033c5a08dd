/* step.c: what every family's step does beside its products: moving states between pages and the tile, writing keys, and
 * reporting to observers. Shapes: arrays are [rows of the tile][stride]. */
#include "batch.h"
#include "exit.h"
#include "motion.h"
#include "sequence.h"
#include "slope.h"

#include <math.h>
#include <string.h>

double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* ---- States ---------------------------------------------------------------------------------------------------- */

void tile_gather(const tile *t, float *x)
{
    size_t width = t->model->info.width, stride = t->work->wide_stride;
    for (size_t i = 0; i < t->n; i++) {
        row *r = t->rows[i];
        memcpy(x + i * stride, r->x, width * sizeof *x); /* the page keeps x as it was: a step that fails is run again */
        if (!r->measuring && sequence_intervene(r->sequence, r->position, r->where, false, x + i * stride))
            r->own_after = r->asked.energy = NAN;
    }
}

void tile_intervene_g(const tile *t, float *g)
{
    for (size_t i = 0; i < t->n; i++) {
        row *r = t->rows[i];
        if (!r->measuring && sequence_intervene(r->sequence, r->position, r->where, true, g + i * t->work->wide_stride))
            r->own_after = r->asked.energy = NAN;
    }
}

static bool all_finite(const float *v, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &v[i], sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return bad == 0;
}

void tile_scatter(const tile *t, const float *x)
{
    size_t width = t->model->info.width, stride = t->work->wide_stride;
    for (size_t i = 0; i < t->n; i++) {
        row *r = t->rows[i];
        if (r->measuring || r->stops || r->sequence->ended != DESCENT_OK) continue;
        r->moved = all_finite(x + i * stride, width);
        if (r->moved) {
            memcpy(r->x, x + i * stride, width * sizeof *x);
            motion_keep(t, i);
            r->stops = r->solved || sequence_outlasts(r->sequence, r->position, r->progress + 1);
        } else {
            sequence_end(r->sequence, r->position, r->where);
        }
    }
}

/* Numbers of 16 bits whose exponent, these bits, says that they are not finite. */
static bool any_with(const uint16_t *half, size_t n, uint16_t exponent)
{
    bool found = false;
    for (size_t i = 0; i < n; i++) found = found || (half[i] & exponent) == exponent;
    return found;
}

bool tile_write_key(const tile *t, const row *r, uint32_t plane, size_t offset, const float *values, size_t count)
{
    page *p = sequence_page(r->sequence, r->position);
    void *slot = page_slot(t->cache, p, plane, r->position % PAGE_TOKENS);
    size_t slot_numbers = t->model->slot, next = slot_part(offset + count);
    size_t gap = (next < slot_numbers ? next : slot_numbers) - (offset + count); /* saved with the rest: never left as it was */
    uint16_t *half = (uint16_t *)slot + offset;
    bool finite = all_finite(values, count);
    switch (t->cache->number) {
    case NUMBER_F16:
        t->kernels->to_f16(values, count, half);
        finite = finite && !any_with(half, count, 0x7c00u);
        memset(half + count, 0, gap * sizeof *half);
        break;
    case NUMBER_BF16:
        t->kernels->to_bf16(values, count, half);
        finite = finite && !any_with(half, count, 0x7f80u);
        memset(half + count, 0, gap * sizeof *half);
        break;
    case NUMBER_Q8_ROWS:
        if (finite) t->kernels->to_q8(values, count, (q8_block *)slot + offset / Q8_BLOCK);
        break;
    default:
        memcpy((float *)slot + offset, values, count * sizeof(float));
        memset((float *)slot + offset + count, 0, gap * sizeof(float));
        break;
    }
    if (!finite && !r->measuring) sequence_end(r->sequence, r->position, r->where);
    return finite;
}

/* ---- Observing ------------------------------------------------------------------------------------------------- */

static float distance(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return (float)sqrt(sum);
}

static float sum_terms(const float *energy, uint32_t terms)
{
    double sum = 0;
    for (uint32_t k = 0; k < terms; k++) sum += (double)energy[k];
    return (float)sum;
}

int row_watch(const row *r)
{
    const descent_sequence *s = r->sequence;
    bool early = s->seed.exit.criterion != DESCENT_EXIT_NONE || s->seed.solver.method != DESCENT_SOLVER_PLAIN;
    bool last = early || r->where.step + 1 >= sublayer_steps(sequence_token_depth(s, r->position), r->where.kind);
    if (!s->observe_last || r->measuring) return s->observe;
    if (!last) return 0;
    return s->cache->model->family->measures ? s->observe & ~DESCENT_OBSERVE_ENERGY : s->observe; /* or a row measures it */
}

bool tile_moves(const tile *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (!t->rows[i]->measuring) return true;
    return false;
}

void tile_slopes(const tile *t, const slope_norm *norm, const float *x, const float *gradient, const float *rated,
                 const float *factor)
{
    for (size_t i = 0; i < t->n; i++) {
        row *r = t->rows[i];
        size_t at = i * t->work->wide_stride;
        if (r->measuring || !(row_watch(r) & DESCENT_OBSERVE_SLOPE)) continue;
        double slope = slope_along(norm, t->model->info.width, x + at, gradient + at, rated + at);
        r->slope = (float)(factor ? (double)factor[i] * slope : slope);
    }
}

void tile_report(const tile *t, size_t i, const step_record *record)
{
    row *r = t->rows[i];
    const descent_sequence *s = r->sequence;
    size_t width = t->model->info.width;
    uint32_t terms = t->model->info.terms[r->where.kind];
    descent_observation seen = {.site = {r->where.layer, r->where.kind, r->where.step, r->position}, .final = record->final};
    for (int k = 0; k < DESCENT_MAX_TERMS; k++) seen.energy[k] = NAN;
    seen.own_change = seen.history_change = seen.update_norm = seen.relative_change = seen.slope = NAN;
    if ((s->observe & DESCENT_OBSERVE_ENERGY) && record->before) {
        float now = sum_terms(record->before, terms);
        for (uint32_t k = 0; k < terms; k++) seen.energy[k] = record->before[k];
        seen.history_change = now - r->own_after;
        r->own_after = record->after ? sum_terms(record->after, terms) : NAN;
        seen.own_change = r->own_after - now;
    }
    if ((s->observe & DESCENT_OBSERVE_CONVERGENCE) && record->next_x) {
        seen.update_norm = distance(record->next_x, record->x, width);
        seen.relative_change = relative_change(record->g, record->next_g, width);
    }
    if ((s->observe & DESCENT_OBSERVE_SLOPE) && terms > 0 && record->next_x) seen.slope = r->slope;
    if (s->observe & DESCENT_OBSERVE_LOGITS) seen.logits = record->logits;
    if (s->observe & DESCENT_OBSERVE_STATE) {
        seen.x = record->x;
        seen.g = record->g;
    }
    s->observer(s->observer_user, &seen);
}

static bool ends_sublayer(const row *r)
{
    descent_depth depth = sequence_token_depth(r->sequence, r->position);
    return r->stops || r->where.step + 1 >= sublayer_steps(depth, r->where.kind);
}

void tile_read_logits(const tile *t, const float *const *states, size_t count, float *scratch)
{
    const descent_model *model = t->model;
    size_t vocab = model->info.vocab, stride = t->work->wide_stride;
    for (size_t first = 0; first < count; first += t->work->rows) {
        tile part = *t;
        part.n = count - first < t->work->rows ? count - first : t->work->rows;
        for (size_t i = 0; i < part.n; i++) model->family->final_norm(model, states[first + i], scratch + i * stride);
        tile_project(&part, &model->head, model->head_bias, scratch, stride, t->work->logits + first * vocab, vocab, false);
    }
}

bool row_observed(const row *r)
{
    bool stood = r->stops && !r->moved; /* it had stopped before this step */
    return row_watch(r) && r->sequence->ended == DESCENT_OK && !stood;
}

size_t tile_read_observed(const tile *t, size_t first, const float *x, bool ends, float *scratch)
{
    const float *states[TILE_ROWS];
    size_t count = 0, next = first, vocab = t->model->info.vocab;
    if (!(t->watch & DESCENT_OBSERVE_LOGITS)) return t->n;
    for (; next < t->n && count < t->work->readings; next++) {
        row *r = t->rows[next];
        descent_sequence *s = r->sequence;
        r->logits = NULL;
        if (!(row_watch(r) & DESCENT_OBSERVE_LOGITS) || !row_observed(r) || (ends && !ends_sublayer(r))) continue;
        r->logits = t->work->logits + count * vocab;
        states[count++] = x + next * t->work->wide_stride;
        s->logits_read++;
    }
    tile_read_logits(t, states, count, scratch);
    return next;
}

void tile_report_steps(const tile *t, const float *x, const float *g, const float *next_x, const float *next_g, bool energy,
                       float *scratch)
{
    size_t ws = t->work->wide_stride;
    bool on_the_way = t->model->info.deepens;
    for (size_t i = 0, read = on_the_way ? 0 : t->n; i < t->n; i++) {
        const row *r = t->rows[i];
        if (i == read) read = tile_read_observed(t, i, x, false, scratch);
        if (!row_observed(r)) continue;
        tile_report(t, i,
                    &(step_record){.x = x + i * ws,
                                   .g = g + i * ws,
                                   .next_x = next_x + i * ws,
                                   .next_g = next_g + i * ws,
                                   .before = energy ? t->work->energy[0][i] : NULL,
                                   .after = energy ? t->work->energy[1][i] : NULL,
                                   .logits = on_the_way ? r->logits : NULL});
    }
    for (size_t i = 0, read = 0; i < t->n; i++) {
        row *r = t->rows[i];
        if (i == read) read = tile_read_observed(t, i, next_x, true, scratch);
        if (!row_observed(r) || !ends_sublayer(r)) continue;
        if (r->sequence->observe & DESCENT_OBSERVE_FINAL) {
            r->where.step++;
            tile_report(t, i,
                        &(step_record){.x = next_x + i * ws,
                                       .g = next_g + i * ws,
                                       .before = energy ? t->work->energy[1][i] : NULL,
                                       .logits = r->logits,
                                       .final = true});
            r->where.step--;
        }
        r->own_after = NAN; /* the next sub-layer has an energy of its own */
    }
}
