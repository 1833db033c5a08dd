/* scaling_answer.c: what an experiment comes to: rows, one for each depth, and the JSON around them:
 *
 *     {"id", "object": "descent.scaling", "created", "model", "system_fingerprint",
 *      "rows": [scaling_rows.h],
 *      "progress": {"done", "total": sweeps, or answers at a depth, "seconds_left": null once all are done},
 *      "usage", "descent": {"reference": the trained depth where it is among the rows, "threshold", "resamples", "level",
 * "seed", what moves steps otherwise, "stop": "time"}}
 *
 * Of a stream each event has id to model as they are, "object": "descent.scaling.chunk", the progress and the rows of what was
 * measured by then; the last one the rest as well.
 */
#include "answer.h"
#include "scaling.h"
#include "scaling_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* What is summed up: measures [n_inputs][n_depths] of what is complete. */
typedef struct gathered {
    descent_measure *measures, *by_bytes; /* by_bytes: the same with answers by the likelihood per byte; NULL: no choices */
    uint64_t *units;
    size_t n_inputs;
    size_t *depths; /* [n_depths] of the plan's */
    size_t n_depths;
    descent_scaling_row *rows, *rows_by_bytes; /* [n_depths] */
} gathered;

static bool make_room(gathered *g, const scaling *s)
{
    const scaling_plan *plan = s->request.scaling;
    size_t inputs = plan->n_questions ? plan->n_questions : plan->n_inputs, cells = inputs * plan->n_depths;
    bool choices = plan->n_questions && !plan->answers;
    g->measures = calloc(cells, sizeof *g->measures);
    g->by_bytes = choices ? calloc(cells, sizeof *g->by_bytes) : NULL;
    g->units = calloc(inputs, sizeof *g->units);
    g->depths = calloc(plan->n_depths, sizeof *g->depths);
    g->rows = calloc(plan->n_depths, sizeof *g->rows);
    g->rows_by_bytes = choices ? calloc(plan->n_depths, sizeof *g->rows_by_bytes) : NULL;
    return g->measures && g->units && g->depths && g->rows && (!choices || (g->by_bytes && g->rows_by_bytes));
}

static void release(gathered *g)
{
    free(g->measures);
    free(g->by_bytes);
    free(g->units);
    free(g->depths);
    free(g->rows);
    free(g->rows_by_bytes);
}

static bool all_done(const bool *done, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!done[first + i]) return false;
    return true;
}

static void gather_windows(gathered *g, const scaling *s)
{
    const scaling_plan *plan = s->request.scaling;
    size_t n = plan->n_depths;
    for (size_t i = 0; i < plan->n_inputs; i++) {
        if (!s->summary.done[i]) continue;
        memcpy(g->measures + g->n_inputs * n, s->measures + i * n, n * sizeof *g->measures);
        g->units[g->n_inputs++] = plan->inputs[i].unit;
    }
}

/* Of a question's choices, whose sweeps lie one behind the other, one measure a depth. */
static descent_measure of_choices(const question *q, const descent_measure *measures, size_t n, size_t d, bool *by_bytes)
{
    descent_measure each[QUESTION_MOST_CHOICES];
    for (size_t c = 0; c < q->n_choices; c++) each[c] = measures[c * n + d];
    return question_measure(q, each, by_bytes);
}

static void gather_choices(gathered *g, const scaling *s)
{
    const scaling_plan *plan = s->request.scaling;
    size_t n = plan->n_depths, first = 0;
    for (size_t i = 0; i < plan->n_questions; first += plan->questions[i++].n_choices) {
        const question *q = &plan->questions[i];
        if (!all_done(s->summary.done, first, q->n_choices)) continue;
        for (size_t d = 0; d < n; d++) {
            bool by_bytes;
            descent_measure m = of_choices(q, s->measures + first * n, n, d, &by_bytes);
            g->measures[g->n_inputs * n + d] = m;
            m.right = by_bytes;
            g->by_bytes[g->n_inputs * n + d] = m;
        }
        g->units[g->n_inputs++] = i;
    }
}

/* Depths at which every question is answered, in the order asked. */
static void gather_answers(gathered *g, const scaling *s)
{
    const scaling_plan *plan = s->request.scaling;
    bool complete[DESCENT_SWEEP_DEPTHS] = {false};
    g->n_depths = 0;
    for (size_t place = 0; place < plan->n_depths; place++)
        complete[scaling_depth_at(plan, place)] = all_done(s->summary.done, place * plan->n_questions, plan->n_questions);
    for (size_t d = 0; d < plan->n_depths; d++)
        if (complete[d]) g->depths[g->n_depths++] = d;
    for (size_t i = 0; i < plan->n_questions; i++) {
        for (size_t k = 0; k < g->n_depths; k++)
            g->measures[i * g->n_depths + k] = s->measures[i * plan->n_depths + g->depths[k]];
        g->units[i] = i;
    }
    g->n_inputs = g->n_depths ? plan->n_questions : 0;
}

static void gather(gathered *g, const scaling *s)
{
    const scaling_plan *plan = s->request.scaling;
    g->n_depths = plan->n_depths;
    for (size_t d = 0; d < plan->n_depths; d++) g->depths[d] = d;
    (plan->answers ? gather_answers : plan->n_questions ? gather_choices : gather_windows)(g, s);
}

static json_t *depth_json(const descent_model_info *info, descent_depth depth)
{
    json_t *object = json_object();
    uint32_t last = 0, deep = 0;
    for (uint32_t k = 0; k < info->kinds; k++) {
        if (!info->trained.steps[k]) continue;
        json_object_set_new(object, info->kind_names[k], json_integer(depth.steps[k]));
        last = k;
        deep++;
    }
    if (deep > 1) return object;
    json_decref(object);
    return deep ? json_integer(depth.steps[last]) : json_null();
}

static json_t *row_json(const scaling *s, const gathered *g, size_t k)
{
    const scaling_plan *plan = s->request.scaling;
    size_t d = g->depths[k];
    double seconds = g->rows[k].sum.seconds;
    scaling_row row = {.row = &g->rows[k],
                       .by_bytes = g->rows_by_bytes ? &g->rows_by_bytes[k] : NULL,
                       .seconds = plan->answers       ? s->seconds[d]
                                  : s->summary.shared ? NAN
                                                      : seconds};
    /* Of sweeps, which take several depths in one pass, by what each took of the time. */
    row.joules = plan->answers ? s->joules[d] : row.seconds / s->summary.elapsed * s->summary.joules;
    return scaling_row_json(&row, depth_json(s->request.model->info, plan->depths[d]));
}

static bool is_wanted(void *user, uint64_t done, uint64_t total)
{
    const scaling *s = user;
    (void)done;
    (void)total;
    return !atomic_load_explicit(&s->summary.unwanted, memory_order_relaxed);
}

static descent_code summarize(gathered *g, scaling *s, descent_status *status)
{
    descent_scaling_options options = s->request.scaling->options;
    int reference = options.reference;
    options.reference = DESCENT_NO_REFERENCE;
    options.progress = is_wanted;
    options.user = s;
    for (size_t k = 0; k < g->n_depths; k++)
        if (reference >= 0 && g->depths[k] == (size_t)reference) options.reference = (int)k;
    descent_code code = descent_scaling_summarize(g->measures, g->units, g->n_inputs, g->n_depths, &options, g->rows, status);
    if (code != DESCENT_OK || !g->by_bytes) return code;
    return descent_scaling_summarize(g->by_bytes, g->units, g->n_inputs, g->n_depths, &options, g->rows_by_bytes, status);
}

static void write_rows(scaling *s, const gathered *g)
{
    json_t *rows = json_array();
    for (size_t k = 0; k < g->n_depths; k++) json_array_append_new(rows, row_json(s, g, k));
    char *text = json_array_size(rows) == g->n_depths ? json_dumps(rows, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (text) json_text_put(&s->summary.rows, text);
    s->summary.rows.failed |= !text;
    s->summary.n_rows = g->n_depths;
    free(text);
    json_decref(rows);
}

void scaling_sum_up(scaling *s)
{
    scaling_summary *sum = &s->summary;
    uint64_t began = uv_hrtime();
    gathered g = {0};
    descent_status status = {.code = DESCENT_NO_MEMORY, .message = "no memory for the rows"};
    json_text_clear(&sum->rows);
    sum->n_rows = 0;
    bool fits = make_room(&g, s);
    if (fits) gather(&g, s);
    if (fits && g.n_inputs > 0 && summarize(&g, s, &status) == DESCENT_OK)
        write_rows(s, &g);
    else if ((!fits || g.n_inputs > 0) && is_wanted(s, 0, 0))
        (void)api_fail_status(&sum->error, NULL, &status);
    release(&g);
    sum->seconds = (double)(uv_hrtime() - began) * 1e-9;
}

/* ---- Around them ------------------------------------------------------------------------------------------------- */

static void put_text(json_text *out, const char *name, const char *text)
{
    json_text_put(out, name);
    json_text_string(out, text, strlen(text));
}

static void put_count(json_text *out, const char *name, uint64_t count)
{
    json_text_put(out, name);
    json_text_unsigned(out, count);
}

static void put_real(json_text *out, const char *name, double value)
{
    json_text_put(out, name);
    json_text_real(out, value);
}

static void put_head(scaling *s, const char *object)
{
    json_text *out = &s->out;
    put_text(out, "{\"id\":", s->id);
    put_text(out, ",\"object\":", object);
    put_count(out, ",\"created\":", (uint64_t)s->created);
    put_text(out, ",\"model\":", s->request.model_name);
    put_text(out, ",\"system_fingerprint\":", s->request.model->fingerprint);
}

static void put_rows(scaling *s, bool with_rows)
{
    json_text_put(&s->out, ",\"rows\":");
    if (with_rows && s->summary.n_rows > 0)
        json_text_bytes(&s->out, s->summary.rows.text, s->summary.rows.bytes);
    else
        json_text_put(&s->out, "[]");
    s->out.failed |= with_rows && s->summary.rows.failed;
}

static void put_progress(scaling *s)
{
    json_text *out = &s->out;
    double elapsed = (double)(uv_hrtime() - s->began) * 1e-9;
    double left = (double)(s->request.scaling->token_steps - s->steps_done);
    bool known = s->steps_done > 0 && s->n_done < s->n_tasks;
    put_count(out, ",\"progress\":{\"done\":", s->n_done);
    put_count(out, ",\"total\":", s->n_tasks);
    put_real(out, ",\"seconds_left\":", known ? elapsed * left / (double)s->steps_done : NAN);
    json_text_put(out, "}");
}

static void put_rest(scaling *s)
{
    json_text *out = &s->out;
    const scaling_plan *plan = s->request.scaling;
    const log_request *log = &s->log;
    put_count(out, ",\"usage\":{\"prompt_tokens\":", log->prompt_tokens);
    put_count(out, ",\"completion_tokens\":", log->generated_tokens);
    put_count(out, ",\"total_tokens\":", log->prompt_tokens + log->generated_tokens);
    put_count(out, ",\"prompt_tokens_details\":{\"cached_tokens\":", log->cached_tokens);
    put_count(out, "},\"descent_steps\":", log->token_steps);
    if (s->exit_cost.readings) put_count(out, ",\"descent_readings\":", s->exit_cost.readings);
    if (s->exit_cost.energies) put_count(out, ",\"descent_energies\":", s->exit_cost.energies);
    json_text_put(out, "},\"descent\":{\"reference\":");
    json_t *reference =
        plan->options.reference < 0 ? json_null() : depth_json(s->request.model->info, plan->depths[plan->options.reference]);
    char *text = json_dumps(reference, JSON_COMPACT | JSON_ENCODE_ANY);
    json_text_put(out, text ? text : "null");
    free(text);
    json_decref(reference);
    put_real(out, ",\"threshold\":", plan->threshold);
    put_count(out, ",\"resamples\":", plan->options.resamples);
    put_real(out, ",\"level\":", plan->options.level);
    put_count(out, ",\"seed\":", plan->options.seed);
    put_text(out, ",\"units\":", plan->n_questions ? "records" : plan->units == SCALING_DOCUMENTS ? "documents" : "windows");
    answer_put_motion(out, &s->request);
    if (s->late) json_text_put(out, ",\"stop\":\"time\"");
    json_text_put(out, "}");
}

void scaling_put_answer(scaling *s)
{
    put_head(s, "descent.scaling");
    put_rows(s, true);
    put_progress(s);
    put_rest(s);
    json_text_put(&s->out, "}");
}

void scaling_put_event(scaling *s, bool with_rows, bool last)
{
    json_text_put(&s->out, "data: ");
    put_head(s, "descent.scaling.chunk");
    put_rows(s, with_rows);
    put_progress(s);
    if (last) put_rest(s);
    json_text_put(&s->out, last ? "}\n\ndata: [DONE]\n\n" : "}\n\n");
}
