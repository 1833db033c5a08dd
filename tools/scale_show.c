/* scale_show.c: rows as a table for people, as JSON and as CSV. docs/scaling.md says what each column is. */
#include "scale.h"

#include "json_output.h"
#include "scaling_rows.h"
#include "terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static scaling_row row_of(const scale_result *result, size_t i)
{
    return (scaling_row){.row = &result->rows[i],
                         .by_bytes = result->by_bytes ? &result->by_bytes[i] : NULL,
                         .seconds = result->rows[i].sum.seconds,
                         .joules = result->joules[i]};
}

/* ---- The table ---------------------------------------------------------------------------------------------------- */

enum { MOST_COLUMNS = 16, CELL = 32 };

typedef struct table {
    size_t n_rows, n_columns;
    const char *titles[MOST_COLUMNS];
    char (*cells)[MOST_COLUMNS][CELL]; /* [n_rows] */
} table;

static char *cell(table *t, size_t row)
{
    return t->cells[row][t->n_columns];
}

/* A column of numbers, left out where no row has one. `format` takes a double. */
static void add_numbers(table *t, const char *title, const char *format, double (*value)(const scaling_row *, int), int which,
                        const scaling_row *rows)
{
    bool any = false;
    for (size_t i = 0; i < t->n_rows; i++) {
        double number = value(&rows[i], which);
        any = any || isfinite(number);
        if (isfinite(number))
            snprintf(cell(t, i), CELL, format, number);
        else
            snprintf(cell(t, i), CELL, "-");
    }
    if (any) t->titles[t->n_columns++] = title;
}

/* A column "low to high", left out where no row has one. */
static void add_interval(table *t, const char *title, const char *format,
                         const descent_estimate *(*of)(const scaling_row *, int), int which, const scaling_row *rows)
{
    bool any = false;
    for (size_t i = 0; i < t->n_rows; i++) {
        const descent_estimate *estimate = of(&rows[i], which);
        char low[CELL / 2 - 2], high[CELL / 2 - 2];
        bool there = isfinite(estimate->low) && isfinite(estimate->high);
        any = any || there;
        snprintf(low, sizeof low, format, estimate->low);
        snprintf(high, sizeof high, format, estimate->high);
        snprintf(cell(t, i), CELL, there ? "%s..%s" : "-", low, high);
    }
    if (any) t->titles[t->n_columns++] = title;
}

static const descent_estimate *metric_of(const scaling_row *row, int which)
{
    return &row->row->metrics[which];
}

static const descent_estimate *difference_of(const scaling_row *row, int which)
{
    return &row->row->difference[which];
}

static double metric_value(const scaling_row *row, int which)
{
    return row->row->metrics[which].value;
}

static double difference_value(const scaling_row *row, int which)
{
    return row->row->difference[which].value;
}

static double by_bytes_value(const scaling_row *row, int which)
{
    return row->by_bytes ? row->by_bytes->metrics[which].value : NAN;
}

static double steps_a_token(const scaling_row *row, int which)
{
    (void)which;
    return (double)row->row->sum.token_steps / (double)row->row->sum.tokens;
}

static double million_multiply_adds_a_token(const scaling_row *row, int which)
{
    (void)which;
    return 1e-6 * (double)scaling_multiply_adds(&row->row->sum.cost) / (double)row->row->sum.tokens;
}

static double tokens_a_second(const scaling_row *row, int which)
{
    (void)which;
    return scaling_tokens_per_second(row);
}

static double joules(const scaling_row *row, int which)
{
    (void)which;
    return row->joules;
}

static void fill_table(const scale_result *result, const scaling_row *rows, table *t)
{
    const int main = (int)scale_main_metric(result->of);
    const bool texts = result->of->kind == SCALE_TEXTS;
    const char *number = texts ? "%.4f" : "%.3f";
    for (size_t i = 0; i < t->n_rows; i++) snprintf(cell(t, i), CELL, "%s", result->of->depths[i].text);
    t->titles[t->n_columns++] = "T";
    add_numbers(t, texts ? "loss" : "accuracy", number, metric_value, main, rows);
    add_interval(t, "95% interval", number, metric_of, main, rows);
    add_numbers(t, "vs trained", texts ? "%+.4f" : "%+.3f", difference_value, main, rows);
    add_interval(t, "95% interval", texts ? "%+.4f" : "%+.3f", difference_of, main, rows);
    if (texts) {
        add_numbers(t, "perplexity", "%.2f", metric_value, DESCENT_METRIC_PERPLEXITY, rows);
        add_numbers(t, "bits/byte", "%.4f", metric_value, DESCENT_METRIC_BITS, rows);
        add_numbers(t, "accuracy", "%.3f", metric_value, DESCENT_METRIC_ACCURACY, rows);
    } else {
        add_numbers(t, "by bytes", "%.3f", by_bytes_value, DESCENT_METRIC_ACCURACY, rows);
        add_numbers(t, "loss", "%.4f", metric_value, DESCENT_METRIC_LOSS, rows);
    }
    add_numbers(t, "energy", "%.4g", metric_value, DESCENT_METRIC_ENERGY, rows);
    add_numbers(t, "r_t", "%.3g", metric_value, DESCENT_METRIC_CHANGE, rows);
    add_numbers(t, "settled", "%.3f", metric_value, DESCENT_METRIC_CONVERGED, rows);
    add_numbers(t, "steps/token", "%.4g", steps_a_token, 0, rows);
    add_numbers(t, "M mul-adds/token", "%.4g", million_multiply_adds_a_token, 0, rows);
    add_numbers(t, "tokens/s", "%.0f", tokens_a_second, 0, rows);
    add_numbers(t, "joules", "%.4g", joules, 0, rows);
}

/* A bar from the worst row, which has none, to the best. */
static void print_bar(const scale_result *result, size_t i, int cells)
{
    const int main = (int)scale_main_metric(result->of);
    double best = NAN, worst = NAN, sign = main == DESCENT_METRIC_LOSS ? -1 : 1;
    for (size_t k = 0; k < result->of->n_depths; k++) {
        best = fmax(best, sign * result->rows[k].metrics[main].value);
        worst = fmin(worst, sign * result->rows[k].metrics[main].value);
    }
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    double part = (sign * result->rows[i].metrics[main].value - worst) / (best - worst);
    if (!(part >= 0) || !(best > worst)) return;
    int filled = (int)(8 * cells * part);
    for (int c = 0; c < filled / 8; c++) fputs("█", stdout);
    fputs(eighths[filled % 8], stdout);
}

/* The columns begin .. end - 1 behind the first one, and a bar behind them where it has so many cells. */
static void print_columns(const scale_result *result, const table *t, const size_t *widths, size_t begin, size_t end, int bar)
{
    const char *bold = terminal_style_on(stdout, STYLE_BOLD), *dim = terminal_style_on(stdout, STYLE_DIM);
    const char *plain = terminal_style_on(stdout, STYLE_PLAIN);
    printf("%s%*s", dim, (int)widths[0], t->titles[0]);
    for (size_t c = begin; c < end; c++) printf("  %*s", (int)widths[c], t->titles[c]);
    printf("%s\n", plain);
    for (size_t i = 0; i < t->n_rows; i++) {
        bool trained = (int)i == result->of->trained;
        printf("%s%*s", trained ? bold : "", (int)widths[0], t->cells[i][0]);
        for (size_t c = begin; c < end; c++) printf("  %*s", (int)widths[c], t->cells[i][c]);
        if (bar) {
            fputs("  ", stdout);
            print_bar(result, i, bar);
        }
        printf("%s\n", trained ? plain : "");
    }
}

/* On a terminal as many columns as it is wide, the others below. */
static void print_table(const scale_result *result, const table *t)
{
    enum { BAR = 10 };
    size_t widths[MOST_COLUMNS];
    for (size_t c = 0; c < t->n_columns; c++) {
        widths[c] = strlen(t->titles[c]);
        for (size_t i = 0; i < t->n_rows; i++)
            if (strlen(t->cells[i][c]) > widths[c]) widths[c] = strlen(t->cells[i][c]);
    }
    bool seen = terminal_is(stdout);
    for (size_t begin = 1, end; begin < t->n_columns; begin = end) {
        int bar = seen && begin == 1 ? BAR : 0;
        size_t room = seen ? (size_t)(terminal_width(stdout) - bar - 2) : SIZE_MAX, width = widths[0];
        for (end = begin; end < t->n_columns && (end == begin || width + 2 + widths[end] <= room); end++)
            width += 2 + widths[end];
        if (begin > 1) printf("\n");
        print_columns(result, t, widths, begin, end, bar);
    }
}

static void print_notes(const scale_result *result)
{
    const scale_experiment *e = result->of;
    uint64_t diverged = 0;
    char model[128], data[128], trained[32];
    printf("%s on %s: %zu %s", scale_text(e, "model", model, sizeof model), scale_text(e, "name", data, sizeof data), e->n_done,
           e->kind == SCALE_TEXTS ? "windows" : "questions");
    if (e->n_done < e->n_inputs) printf(" of %zu", e->n_inputs);
    printf(", %" PRIu64 " %s", e->kind == SCALE_ANSWERS ? result->rows[0].sum.items : result->rows[0].sum.predictions,
           e->kind == SCALE_ANSWERS ? "answers" : "predictions");
    if (e->trained >= 0)
        printf("; trained T %s", e->depths[e->trained].text);
    else
        printf("; the trained T, %s, is not among these", scale_text(e, "trained", trained, sizeof trained));
    if (result->n_units > 1)
        printf("; 95%% intervals: %" PRIu32 " resamples of %zu %s", result->resamples, result->n_units, result->units);
    printf("\n");
    for (size_t i = 0; i < e->n_depths; i++)
        if (result->rows[i].diverged > diverged) diverged = result->rows[i].diverged;
    if (diverged) printf("up to %" PRIu64 " inputs diverged at one T: their rows have no loss, energy or r_t\n", diverged);
}

void scale_show_table(const scale_result *result)
{
    const size_t n = result->of->n_depths;
    table t = {.n_rows = n, .cells = calloc(n, sizeof *t.cells)};
    scaling_row *rows = calloc(n, sizeof *rows);
    for (size_t i = 0; rows && i < n; i++) rows[i] = row_of(result, i);
    if (t.cells && rows) {
        fill_table(result, rows, &t);
        print_table(result, &t);
        print_notes(result);
    } else {
        cli_error("no memory left");
    }
    free(t.cells);
    free(rows);
}

/* ---- JSON --------------------------------------------------------------------------------------------------------- */

int scale_show_json(const scale_result *result)
{
    const scale_experiment *e = result->of;
    json_t *object = json_deep_copy(e->setup), *rows = json_array();
    json_object_del(object, "fields");
    json_object_del(object, "depths");
    json_object_del(object, "shard");
    for (size_t i = 0; i < e->n_depths; i++) {
        scaling_row row = row_of(result, i);
        json_array_append_new(rows, scaling_row_json(&row, json_depth(e->depths[i].text)));
    }
    char trained[32];
    json_object_set_new(object, "trained", json_depth(scale_text(e, "trained", trained, sizeof trained)));
    json_object_set_new(object, "done", json_integer((json_int_t)e->n_done));
    json_object_set_new(object, "units", json_string(result->units));
    json_object_set_new(object, "n_units", json_integer((json_int_t)result->n_units));
    json_object_set_new(object, "resamples", json_integer((json_int_t)result->resamples));
    json_object_set_new(object, "level", json_real(result->level));
    json_object_set_new(object, "rows", rows);
    return json_output(object, 17);
}

/* ---- CSV ---------------------------------------------------------------------------------------------------------- */

/* Empty where there is none, as spreadsheets and pandas read it. */
static void csv_number(FILE *to, double value)
{
    if (isfinite(value))
        fprintf(to, ",%.17g", value);
    else
        fputc(',', to);
}

static void csv_head(FILE *to, const scale_result *result)
{
    fputs("steps", to);
    for (int m = 0; m < DESCENT_METRICS; m++) {
        const char *name = descent_metric_name((descent_metric)m);
        fprintf(to, ",%s,%s_low,%s_high,%s_difference,%s_difference_low,%s_difference_high", name, name, name, name, name,
                name);
    }
    if (result->by_bytes) fputs(",accuracy_by_bytes,accuracy_by_bytes_low,accuracy_by_bytes_high", to);
    fputs(",inputs,diverged,predictions,bytes,items,right,tokens,token_steps,multiply_adds,multiply_adds_weights,"
          "multiply_adds_attention,multiply_adds_head,multiply_adds_exit,seconds,tokens_per_second,joules\n",
          to);
}

static void csv_row(FILE *to, const scale_result *result, size_t i)
{
    const scaling_row row = row_of(result, i);
    const descent_measure *sum = &row.row->sum;
    fputs(result->of->depths[i].text, to);
    for (int m = 0; m < DESCENT_METRICS; m++) {
        const descent_estimate *pair[] = {&row.row->metrics[m], &row.row->difference[m]};
        for (int k = 0; k < 2; k++) {
            csv_number(to, pair[k]->value);
            csv_number(to, pair[k]->low);
            csv_number(to, pair[k]->high);
        }
    }
    if (row.by_bytes) {
        csv_number(to, row.by_bytes->metrics[DESCENT_METRIC_ACCURACY].value);
        csv_number(to, row.by_bytes->metrics[DESCENT_METRIC_ACCURACY].low);
        csv_number(to, row.by_bytes->metrics[DESCENT_METRIC_ACCURACY].high);
    }
    const uint64_t counts[] = {row.row->inputs,   row.row->diverged,   sum->predictions,
                               sum->bytes,        sum->items,          sum->right,
                               sum->tokens,       sum->token_steps,    scaling_multiply_adds(&sum->cost),
                               sum->cost.weights, sum->cost.attention, sum->cost.head,
                               sum->cost.exit};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) fprintf(to, ",%" PRIu64, counts[k]);
    csv_number(to, row.seconds);
    csv_number(to, scaling_tokens_per_second(&row));
    csv_number(to, row.joules);
    fputc('\n', to);
}

int scale_write_csv(const scale_result *result, const char *path)
{
    errno = 0;
    FILE *to = fopen(path, "w");
    if (to) {
        csv_head(to, result);
        for (size_t i = 0; i < result->of->n_depths; i++) csv_row(to, result, i);
    }
    bool failed = !to || ferror(to);
    if ((to && fclose(to) != 0) || failed) {
        cli_error("cannot write %s: %s", path, strerror(errno));
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
