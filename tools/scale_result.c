/* scale_result.c: the experiment's memory, and its rows: readings summed up, one row a depth, in the order of the inputs, so
 * that the rows do not depend on the order in which inputs were finished, nor on the files they came from. */
#include "scale.h"

#include "utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(void)
{
    cli_error("no memory left");
    return EXIT_FAILURE;
}

int scale_experiment_make_room(scale_experiment *e)
{
    if (e->n_inputs > SCALE_MOST_READINGS / e->n_depths) {
        cli_error(
            "%zu inputs at %zu depths are more than the %d readings that one experiment may have: make it several, or the "
            "depths fewer",
            e->n_inputs, e->n_depths, SCALE_MOST_READINGS);
        return EXIT_FAILURE;
    }
    e->documents = calloc(e->n_inputs, sizeof *e->documents);
    e->done = calloc(e->n_inputs, sizeof *e->done);
    e->readings = calloc(e->n_inputs * e->n_depths, sizeof *e->readings);
    return e->documents && e->done && e->readings ? EXIT_SUCCESS : no_memory();
}

void scale_experiment_release(scale_experiment *e)
{
    json_decref(e->setup);
    free(e->depths);
    free(e->documents);
    free(e->done);
    free(e->readings);
    *e = (scale_experiment){.setup = NULL};
}

/* ---- Units -------------------------------------------------------------------------------------------------------- */

/* Windows of one text resemble each other more than those of different texts, which intervals should know of; but of a handful
 * of texts no interval says much. */
static const char *choose_units(const scale_experiment *e, scale_units wanted)
{
    enum { ENOUGH = 8 };
    if (e->kind != SCALE_TEXTS) return "questions";
    bool documents = wanted == SCALE_UNITS_BY_RULE ? e->n_documents >= ENOUGH : wanted == SCALE_UNITS_DOCUMENTS;
    return documents ? "documents" : "windows";
}

static size_t count_units(const uint64_t *units, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += i == 0 || units[i] != units[i - 1]; /* inputs of a document follow each other */
    return count;
}

/* ---- Rows --------------------------------------------------------------------------------------------------------- */

/* The measures of the inputs that are done [n_done][n_depths], and the units they belong to. */
static void gather(const scale_experiment *e, bool by_bytes, bool documents, descent_measure *measures, uint64_t *units)
{
    size_t row = 0;
    for (size_t i = 0; i < e->n_inputs; i++) {
        if (!e->done[i]) continue;
        for (size_t d = 0; d < e->n_depths; d++) {
            const scale_reading *reading = &e->readings[i * e->n_depths + d];
            descent_measure *into = &measures[row * e->n_depths + d];
            *into = reading->measure;
            if (by_bytes) into->right = reading->right_by_bytes;
        }
        units[row++] = documents ? e->documents[i] : i;
    }
}

static int summarize(scale_result *result, bool documents, descent_measure *measures, uint64_t *units)
{
    const scale_experiment *e = result->of;
    const descent_scaling_options options = {.resamples = result->resamples,
                                             .level = result->level,
                                             .reference = e->trained < 0 ? DESCENT_NO_REFERENCE : e->trained};
    descent_status status;
    descent_code code = DESCENT_OK;
    for (int by_bytes = 0; by_bytes < 2 && code == DESCENT_OK; by_bytes++) {
        descent_scaling_row *rows = by_bytes ? result->by_bytes : result->rows;
        if (!rows) continue;
        gather(e, by_bytes, documents, measures, units);
        code = descent_scaling_summarize(measures, units, e->n_done, e->n_depths, &options, rows, &status);
    }
    result->n_units = count_units(units, e->n_done);
    if (code == DESCENT_OK) return EXIT_SUCCESS;
    cli_error("%s", status.message);
    return EXIT_FAILURE;
}

int scale_summarize(const scale_experiment *e, scale_units wanted, int64_t resamples, scale_result *result)
{
    *result = (scale_result){.of = e, .units = choose_units(e, wanted), .resamples = (uint32_t)resamples, .level = 0.95};
    result->rows = calloc(e->n_depths, sizeof *result->rows);
    result->joules = calloc(e->n_depths, sizeof *result->joules);
    if (e->kind == SCALE_CHOICES) result->by_bytes = calloc(e->n_depths, sizeof *result->by_bytes);
    descent_measure *measures = calloc(e->n_done * e->n_depths, sizeof *measures);
    uint64_t *units = calloc(e->n_done, sizeof *units);
    int exit_code = EXIT_FAILURE;
    if (!result->rows || !result->joules || (e->kind == SCALE_CHOICES && !result->by_bytes) || !measures || !units)
        no_memory();
    else
        exit_code = summarize(result, result->units[0] == 'd', measures, units);
    for (size_t i = 0; result->joules && i < e->n_inputs; i++)
        for (size_t d = 0; d < e->n_depths && e->done[i]; d++) result->joules[d] += e->readings[i * e->n_depths + d].joules;
    free(measures);
    free(units);
    return exit_code;
}

void scale_result_release(scale_result *result)
{
    free(result->rows);
    free(result->by_bytes);
    free(result->joules);
    *result = (scale_result){.of = NULL};
}

const char *scale_printable(const char *text, char *out, size_t size)
{
    return utf8_printable(text, strlen(text), out, size);
}

const char *scale_text(const scale_experiment *experiment, const char *key, char *out, size_t size)
{
    const char *text = json_string_value(json_object_get(experiment->setup, key));
    return scale_printable(text ? text : "?", out, size);
}

descent_metric scale_main_metric(const scale_experiment *experiment)
{
    return experiment->kind == SCALE_TEXTS ? DESCENT_METRIC_LOSS : DESCENT_METRIC_ACCURACY;
}
