/* scaling_rows.c: see scaling_rows.h. docs/scaling.md says what every field is. */
#include "scaling_rows.h"

#include <math.h>

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

double scaling_tokens_per_second(const scaling_row *of)
{
    return of->seconds > 0 ? (double)of->row->sum.tokens / of->seconds : NAN;
}

uint64_t scaling_multiply_adds(const descent_multiply_adds *of)
{
    return of->weights + of->attention + of->head + of->exit;
}

/* A metric under its name in `values`, the sides of its interval in `intervals`, and its difference to the reference. */
static void add_metric(json_t *values, json_t *intervals, json_t *differences, const char *name, const descent_estimate *metric,
                       const descent_estimate *difference)
{
    json_object_set_new(values, name, number(metric->value));
    json_object_set_new(intervals, name, json_pack("[oo]", number(metric->low), number(metric->high)));
    json_object_set_new(differences, name,
                        json_pack("{sososo}", "value", number(difference->value), "low", number(difference->low), "high",
                                  number(difference->high)));
}

static void add_counts(json_t *object, const descent_scaling_row *row)
{
    const descent_measure *sum = &row->sum;
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"inputs", row->inputs},
                  {"diverged", row->diverged},
                  {"predictions", sum->predictions},
                  {"bytes", sum->bytes},
                  {"items", sum->items},
                  {"right", sum->right},
                  {"tokens", sum->tokens},
                  {"token_steps", sum->token_steps},
                  {"multiply_adds", scaling_multiply_adds(&sum->cost)}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        json_object_set_new(object, counts[i].name, json_integer((json_int_t)counts[i].value));
    json_object_set_new(object, "multiply_adds_by",
                        json_pack("{sI sI sI sI}", "weights", (json_int_t)sum->cost.weights, "attention",
                                  (json_int_t)sum->cost.attention, "head", (json_int_t)sum->cost.head, "exit",
                                  (json_int_t)sum->cost.exit));
}

json_t *scaling_row_json(const scaling_row *of, json_t *steps)
{
    json_t *object = json_object(), *intervals = json_object(), *differences = json_object();
    json_object_set_new(object, "steps", steps);
    for (int m = 0; m < DESCENT_METRICS; m++) {
        add_metric(object, intervals, differences, descent_metric_name((descent_metric)m), &of->row->metrics[m],
                   &of->row->difference[m]);
        if (m == DESCENT_METRIC_ACCURACY && of->by_bytes)
            add_metric(object, intervals, differences, "accuracy_by_bytes", &of->by_bytes->metrics[m],
                       &of->by_bytes->difference[m]);
    }
    add_counts(object, of->row);
    json_object_set_new(object, "seconds", number(of->seconds));
    json_object_set_new(object, "tokens_per_second", number(scaling_tokens_per_second(of)));
    json_object_set_new(object, "joules", number(of->joules));
    json_object_set_new(object, "intervals", intervals);
    json_object_set_new(object, "difference", differences);
    return object;
}
