/* bench_report.c: what was measured, as a table for people and as JSON. */
#include "bench.h"

#include "json_output.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "6,12,24" */
static const char *depths_text(const bench_line *line, char text[64])
{
    text[0] = '\0';
    for (size_t i = 0; i < line->n_depths; i++)
        (void)snprintf(text + strlen(text), 64 - strlen(text), "%s%s", i ? "," : "", line->depths[i].text);
    return text;
}

/* Of the readings of a sweep: every T. */
static const char *line_depths(const bench_line *line, char text[64])
{
    if (line->kind == LINE_SWEEP) return "1..32";
    return depths_text(line, text);
}

static double rate(bench_line *line, double share)
{
    return (double)line->counts.tokens / load_samples_at(&line->seconds, 1 - share);
}

static double multiply_adds(const bench_line *line)
{
    return (double)(line->work.weights + line->work.attention + line->work.head);
}

/* ---- Table -------------------------------------------------------------------------------------------------------- */

static void print_heading(void)
{
    const char *bold = terminal_style_on(stdout, STYLE_BOLD), *plain = terminal_style_on(stdout, STYLE_PLAIN);
    printf("\n%s%-10s%8s%7s %-10s%28s%11s%10s%10s%10s%10s%10s%s\n", bold, "", "context", "batch", "T", "tokens/s", "ms a round",
           "G madds/s", "weights,", "read peak", "memory", "compute", plain);
    printf("%-10s%8s%7s %-10s%28s%11s%10s%10s%10s%10s%10s\n", "", "", "", "", "median (least..most)", "", "", "GB/s", "GB/s",
           "share", "share");
}

static void print_line(bench_line *line)
{
    char text[64], spread[96];
    const line_work *w = &line->work;
    double seconds = load_samples_at(&line->seconds, 0.5);
    printf("%-10s%8zu%7zu %-10s", line_names[line->kind], line->context, line->batch, line_depths(line, text));
    (void)snprintf(spread, sizeof spread, "%.1f (%.1f..%.1f)", rate(line, 0.5), rate(line, 0), rate(line, 1));
    if (line->kind == LINE_LATENCY || line->kind == LINE_DRAFTS) {
        printf("%28s%11.3f\n", line->kind == LINE_DRAFTS ? spread : "",
               1e3 * seconds / (line->kind == LINE_DRAFTS ? (double)line->counts.tokens : 1));
        return;
    }
    double rounds =
        (double)line->counts.tokens / (double)(line->batch > 1 || line->kind == LINE_DECODE ? line->batch : line->context);
    printf("%28s%11.3f%10.1f%10.1f%10.1f%10.2f%10.2f\n", spread, 1e3 * seconds / rounds, multiply_adds(line) / seconds / 1e9,
           (double)w->weight_bytes / seconds / 1e9, (double)w->weight_bytes / w->weight_seconds / 1e9,
           w->memory_seconds / seconds, w->compute_seconds / seconds);
}

static void print_besides(bench_line *line)
{
    for (size_t i = 0; i < LINE_BESIDES && line->beside[i].name; i++)
        printf("%35s %s: %.3f ms, ratio %.3f\n", "", line->beside[i].name, 1e3 * load_samples_at(&line->beside[i].seconds, 0.5),
               line_ratio(line, i));
}

static void print_drafts(const bench_line *line)
{
    if (line->kind == LINE_DRAFTS)
        printf("%35s drafted %" PRIu64 ", accepted %" PRIu64 "\n", "", line->drafted, line->accepted);
}

static void print_memory(const bench_memory *m)
{
    printf("\nresident %.1f MB; file and cache %.1f MB: %.2f of it (before the model was opened: %.1f MB)\n",
           (double)m->resident / 1e6, (double)(m->file + m->cache) / 1e6, (double)m->resident / (double)(m->file + m->cache),
           (double)m->resident_before / 1e6);
}

static double of_read(const bench_product *p, int back)
{
    return p->read / p->seconds[back];
}

static double of_peak(const bench_product *p, int back)
{
    return (double)p->multiply_adds / p->seconds[back] / p->peak;
}

/* A line of the table has all numbers of vectors, which follow each other. */
static void print_products(const bench_run *b)
{
    const char *bold = terminal_style_on(stdout, STYLE_BOLD), *plain = terminal_style_on(stdout, STYLE_PLAIN);
    printf("\n%s%-12s%-8s%8s%10s%16s", bold, "products", "from", "MB", "GB/s", "1: of reading");
    for (size_t i = 1; i < b->n_products && b->products[i].vectors != b->products[0].vectors; i++)
        printf("%8u: of the peak", (unsigned)b->products[i].vectors);
    printf("%s\n", plain);
    for (size_t i = 0; i < b->n_products; i++) {
        const bench_product *p = &b->products[i];
        char name[32], shares[32];
        bool first = p->vectors == b->products[0].vectors,
             last = i + 1 == b->n_products || p[1].vectors == b->products[0].vectors;
        (void)snprintf(name, sizeof name, "%s%s%s", p->type, p->scales ? " " : "", p->scales ? p->scales : "");
        if (first) printf("%-12s%-8s%8.1f%10.1f", name, p->set, (double)p->bytes / 1e6, (double)p->bytes / p->read / 1e9);
        (void)snprintf(shares, sizeof shares, "%.2f %.2f", first ? of_read(p, 0) : of_peak(p, 0),
                       first ? of_read(p, 1) : of_peak(p, 1));
        printf(first ? "%16s" : "%21s", shares);
        if (last) printf("\n");
    }
    printf("each W x, then W^T u\n");
}

int report_text(bench_run *b)
{
    char features[256];
    const descent_model_info *info = b->with.info;
    printf("%s: %s, %s, %s, %" PRIu64 " parameters, T %s; %d threads, %s kernels, %s pages; %" PRId64 " repetitions\n",
           info->name, info->family, info->variant, info->weight_type, info->parameters, b->depth.text, b->threads,
           descent_isa(), page_type_names[b->with.page_type], b->repeats);
    if (b->machine.threads)
        printf("machine: %s; products of int8 %.0f, of f32 %.0f G multiply-adds/s (%s)\n",
               machine_features(features, sizeof features), b->machine.int8 / 1e9, b->machine.f32 / 1e9,
               machine_loops_get()->name);
    if (b->n_lines) print_heading();
    for (size_t i = 0; i < b->n_lines; i++) {
        print_line(&b->lines[i]);
        print_besides(&b->lines[i]);
        print_drafts(&b->lines[i]);
    }
    if (b->has_memory) print_memory(&b->memory);
    if (b->n_products) print_products(b);
    return EXIT_SUCCESS;
}

/* ---- JSON --------------------------------------------------------------------------------------------------------- */

static json_t *spread_json(load_samples *samples)
{
    return json_pack("{s:o, s:o, s:o}", "median", json_number(load_samples_at(samples, 0.5)), "least",
                     json_number(load_samples_at(samples, 0)), "most", json_number(load_samples_at(samples, 1)));
}

static json_t *work_json(const line_work *w)
{
    json_t *counted =
        json_pack("{s:I, s:I, s:I, s:I, s:I}", "weights", (json_int_t)w->weights, "attention", (json_int_t)w->attention, "head",
                  (json_int_t)w->head, "saved_by_cheaper_form", (json_int_t)w->saved, "of_bytes", (json_int_t)w->of_bytes);
    json_t *bytes = json_pack("{s:I, s:I, s:I}", "per_product", (json_int_t)w->product_bytes, "weights",
                              (json_int_t)w->weight_bytes, "history", (json_int_t)w->history_bytes);
    json_t *limits =
        json_pack("{s:o, s:o, s:o, s:o}", "weights", json_number(w->weight_seconds), "memory", json_number(w->memory_seconds),
                  "compute", json_number(w->compute_seconds), "compute_in_cheaper_form", json_number(w->cheaper_form_seconds));
    return json_pack("{s:o, s:o, s:o, s:o}", "multiply_adds", counted, "bytes", bytes, "limit_seconds", limits,
                     "read_bandwidth", json_number((double)w->weight_bytes / w->weight_seconds));
}

static json_t *besides_json(bench_line *line)
{
    json_t *all = json_object();
    for (size_t i = 0; i < LINE_BESIDES && line->beside[i].name; i++)
        (void)json_object_set_new(all, line->beside[i].name,
                                  json_pack("{s:o, s:o}", "seconds", spread_json(&line->beside[i].seconds), "ratio",
                                            json_number(line_ratio(line, i))));
    return all;
}

static json_t *line_json(bench_line *line)
{
    json_t *steps = json_array();
    for (size_t i = 0; i < line->n_depths; i++) (void)json_array_append_new(steps, json_depth(line->depths[i].text));
    json_t *told = json_pack("{s:s, s:I, s:I, s:o, s:o, s:o}", "what", line_names[line->kind], "context",
                             (json_int_t)line->context, "batch", (json_int_t)line->batch, "steps", steps, "seconds",
                             spread_json(&line->seconds), "beside", besides_json(line));
    if (line->kind == LINE_LATENCY) return told;
    double seconds = load_samples_at(&line->seconds, 0.5);
    json_t *rates = json_pack("{s:o, s:o, s:o}", "median", json_number(rate(line, 0.5)), "least", json_number(rate(line, 0)),
                              "most", json_number(rate(line, 1)));
    (void)json_object_set_new(told, "tokens", json_integer((json_int_t)line->counts.tokens));
    (void)json_object_set_new(told, "row_steps", json_integer((json_int_t)line->counts.row_steps));
    (void)json_object_set_new(told, "tokens_per_second", rates);
    if (line->kind == LINE_DRAFTS) {
        (void)json_object_set_new(told, "drafted", json_integer((json_int_t)line->drafted));
        (void)json_object_set_new(told, "accepted", json_integer((json_int_t)line->accepted));
        return told;
    }
    (void)json_object_set_new(told, "multiply_adds_per_second", json_number(multiply_adds(line) / seconds));
    (void)json_object_set_new(told, "fraction_of_limit", json_number(line_fraction(line)));
    (void)json_object_set_new(told, "work", work_json(&line->work));
    return told;
}

static json_t *machine_json(const bench_run *b)
{
    char features[256];
    const machine *m = &b->machine;
    json_t *sets = json_array();
    for (size_t i = 0; i < m->n_sets; i++)
        (void)json_array_append_new(sets, json_pack("{s:I, s:o}", "bytes", (json_int_t)m->sets[i].bytes, "bytes_per_second",
                                                    json_number(m->sets[i].rate)));
    return json_pack("{s:s, s:i, s:s, s:o, s:o, s:I, s:I, s:o}", "cpu", machine_features(features, sizeof features), "threads",
                     b->threads, "loops", machine_loops_get()->name, "int8_multiply_adds_per_second", json_number(m->int8),
                     "f32_multiply_adds_per_second", json_number(m->f32), "l2_bytes", (json_int_t)machine_cache(2), "l3_bytes",
                     (json_int_t)machine_cache(3), "read", sets);
}

static json_t *memory_json(const bench_memory *m)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:o}", "resident_bytes", (json_int_t)m->resident, "resident_before",
                     (json_int_t)m->resident_before, "file_bytes", (json_int_t)m->file, "cache_bytes", (json_int_t)m->cache,
                     "ratio", json_number((double)m->resident / (double)(m->file + m->cache)));
}

static json_t *product_json(const bench_product *p)
{
    json_t *told = json_pack("{s:s, s:s?, s:s, s:I, s:I, s:I, s:o}", "type", p->type, "scales", p->scales, "from", p->set,
                             "bytes", (json_int_t)p->bytes, "multiply_adds", (json_int_t)p->multiply_adds, "vectors",
                             (json_int_t)p->vectors, "read_seconds", json_number(p->read));
    for (int back = 0; back < 2; back++)
        (void)json_object_set_new(told, back ? "back" : "forth",
                                  json_pack("{s:o, s:o, s:o}", "seconds", json_number(p->seconds[back]), "of_reading",
                                            json_number(of_read(p, back)), "of_peak", json_number(of_peak(p, back))));
    return told;
}

int report_json(bench_run *b)
{
    const descent_model_info *info = b->with.info;
    json_t *lines = json_array(), *products = json_array();
    for (size_t i = 0; i < b->n_products; i++) (void)json_array_append_new(products, product_json(&b->products[i]));
    for (size_t i = 0; i < b->n_lines; i++) (void)json_array_append_new(lines, line_json(&b->lines[i]));
    json_t *model = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "name", info->name, "family", info->family,
                              "variant", info->variant, "type", info->weight_type, "parameters", (json_int_t)info->parameters,
                              "file_bytes", (json_int_t)info->file_bytes, "width", (json_int_t)info->width, "vocab",
                              (json_int_t)info->vocab, "context", (json_int_t)info->context);
    return json_output(json_pack("{s:o, s:o, s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:o}", "model", model, "steps",
                                 json_depth(b->depth.text), "version", descent_version(), "isa", descent_isa(), "page_type",
                                 page_type_names[b->with.page_type], "repeats", (json_int_t)b->repeats, "machine",
                                 b->machine.threads ? machine_json(b) : json_null(), "lines", lines, "memory",
                                 b->has_memory ? memory_json(&b->memory) : json_null(), "products", products),
                       6);
}
