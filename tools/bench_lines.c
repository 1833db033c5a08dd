/* bench_lines.c: see bench.h. A line is measured in repetitions, in turns with what stands beside it, so that whatever else the
 * machine does hits both; its limit is reckoned at once, from bandwidths measured then.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SWEEP_STEPS = 32, SHALLOW = 4, DEEP = 32, MOST_ROUNDS = 1 << 20, WARM_CONTEXT = 128 };

const char *const line_names[] = {"prefill", "decode", "mixed", "sweep", "deepening", "latency", "drafts", NULL};

/* ---- What a line costs ------------------------------------------------------------------------------------------- */

/* Bytes a number of history takes. */
static double page_bytes(descent_page_type type)
{
    static const double bytes[DESCENT_PAGE_TYPES] = {
        [DESCENT_PAGE_F32] = 4, [DESCENT_PAGE_F16] = 2, [DESCENT_PAGE_BF16] = 2, [DESCENT_PAGE_Q8] = 36.0 / 32};
    return bytes[type];
}

static uint64_t all_weights(const descent_model_cost *cost)
{
    uint64_t sum = cost->head.bytes;
    for (uint32_t k = 0; k < cost->info->kinds; k++) sum += cost->kinds[k].step.bytes + cost->kinds[k].entry.bytes;
    return sum;
}

static void add_token(line_work *work, const descent_token_cost *token, uint64_t times)
{
    work->weights += times * token->weights;
    work->attention += times * token->attention;
    work->saved += times * token->saved;
    work->of_bytes += times * token->of_bytes;
    work->saved_of_bytes += times * token->saved_of_bytes;
    work->product_bytes += times * token->product_bytes;
}

static void add_heads(line_work *work, const descent_model_cost *cost, uint64_t times)
{
    work->head += times * cost->head.multiply_adds;
    work->of_bytes += times * cost->head.of_bytes;
    work->product_bytes += times * cost->head.product_bytes;
}

/* The time the traffic takes: the head and the first step behind it come from where everything lies, further steps with the
 * same weights from where these lie alone. */
static void reckon_memory(bench_run *b, line_work *work, const run_counts *counts, descent_depth deepest, uint64_t history)
{
    const descent_model_cost *cost = &b->cost;
    bool recurrent = cost->info->deepens;
    uint64_t passes = recurrent ? counts->steps : counts->rounds;
    uint64_t first = counts->readings < passes && recurrent ? counts->readings : passes;
    size_t everything = (size_t)(all_weights(cost) + history);
    double far = machine_bandwidth(&b->machine, everything);
    work->weight_bytes = counts->readings * cost->head.bytes;
    work->weight_seconds = (double)work->weight_bytes / far;
    for (uint32_t k = 0; k < cost->info->kinds; k++) {
        const descent_kind_cost *kind = &cost->kinds[k];
        uint64_t again = recurrent ? passes - first : passes * ((cost->info->trained.steps[k] ? deepest.steps[k] : 1u) - 1);
        uint64_t once = first * (kind->step.bytes + kind->entry.bytes), more = again * kind->step.bytes;
        work->weight_bytes += once + more;
        work->weight_seconds += (double)once / far;
        if (more) work->weight_seconds += (double)more / machine_bandwidth(&b->machine, kind->step.bytes / cost->info->layers);
    }
    work->memory_seconds = work->weight_seconds + (double)work->history_bytes / far;
}

static double compute_seconds(const machine *m, uint64_t multiply_adds, uint64_t of_bytes)
{
    return (double)of_bytes / m->int8 + (double)(multiply_adds - of_bytes) / m->f32;
}

static void reckon_compute(bench_run *b, line_work *work)
{
    const machine *m = &b->machine;
    work->compute_seconds = compute_seconds(m, work->weights + work->head, work->of_bytes) + (double)work->attention / m->f32;
    work->cheaper_form_seconds = work->compute_seconds - compute_seconds(m, work->saved, work->saved_of_bytes);
}

static uint64_t seen_by(const bench_run *b, size_t position)
{
    return position + 1 - b->cost.strict;
}

/* Of `length` tokens that descend from nothing to a depth, `readings` of them read. */
static void reckon_prompt(bench_run *b, bench_line *line, size_t length, descent_depth depth, uint64_t readings)
{
    line->work = (line_work){0};
    uint64_t times = line->counts.tokens / length;
    for (size_t p = 0; p < length; p++) {
        descent_token_cost token = descent_cost_token(&b->cost, depth, seen_by(b, p));
        add_token(&line->work, &token, times);
    }
    add_heads(&line->work, &b->cost, times * readings);
    reckon_memory(b, &line->work, &line->counts, depth, 0);
    reckon_compute(b, &line->work);
}

static void reckon_texts(bench_run *b, bench_line *line, const text_set *set)
{
    line->work = (line_work){0};
    descent_depth deepest = {{0}};
    double number = page_bytes(b->with.page_type), bytes = 0, history = 0;
    for (size_t i = 0; i < line->batch; i++) {
        const bench_text *text = &set->texts[i];
        descent_token_cost token = descent_cost_token(&b->cost, text->depth, seen_by(b, line->context - 1));
        add_token(&line->work, &token, text->done);
        bytes += (double)text->done * (double)token.history * number;
        history += (double)token.history * number;
        for (int k = 0; k < DESCENT_MAX_KINDS; k++)
            if (text->depth.steps[k] > deepest.steps[k]) deepest.steps[k] = text->depth.steps[k];
    }
    line->work.history_bytes = (uint64_t)bytes;
    add_heads(&line->work, &b->cost, line->counts.tokens);
    reckon_memory(b, &line->work, &line->counts, deepest, (uint64_t)history);
    reckon_compute(b, &line->work);
}

double line_limit(const bench_line *line)
{
    return fmax(line->work.memory_seconds, line->work.compute_seconds);
}

double line_fraction(bench_line *line)
{
    return line_limit(line) / load_samples_at(&line->seconds, 0.5);
}

double line_ratio(bench_line *line, size_t which)
{
    return load_samples_at(&line->seconds, 0.5) / load_samples_at(&line->beside[which].seconds, 0.5);
}

/* ---- Failing ------------------------------------------------------------------------------------------------------ */

static int failed(const bench_line *line, const descent_status *status)
{
    cli_error("%s at context %zu: %s", line_names[line->kind], line->context, status->message);
    return EXIT_FAILURE;
}

/* Repetitions go on until there are enough; Ctrl-C ends them. */
static bool goes_on(const bench_run *b, int64_t done)
{
    return done < b->repeats && !interrupted();
}

static int ended(void)
{
    return interrupted() ? EXIT_INTERRUPTED : EXIT_SUCCESS;
}

/* So many rounds as take about --seconds, by what one takes. */
static uint64_t rounds_for(const bench_run *b, double one)
{
    double rounds = b->seconds / one;
    return rounds < 1 ? 1 : rounds > MOST_ROUNDS ? MOST_ROUNDS : (uint64_t)rounds;
}

/* ---- Prompts ------------------------------------------------------------------------------------------------------ */

static descent_code read_last(const bench_run *b, const descent_sequence *sequence, size_t length, float *logits,
                              descent_status *status)
{
    descent_reading reading = {.sequence = sequence, .position = length - 1};
    return descent_batch_logits(b->with.batch, &reading, 1, logits, status);
}

/* A prompt from its tokens to the logits of its last; *seconds is what that took. */
static descent_code run_prompt(const bench_run *b, bench_line *line, float *logits, double *seconds, descent_status *status)
{
    descent_sequence *sequence = NULL;
    descent_code code = text_begin(&b->with, line->context, line->depths[0].depth, &sequence, status);
    if (code != DESCENT_OK) return code;
    double begun = seconds_now();
    code = text_descend(&b->with, sequence, &line->counts, status);
    if (code == DESCENT_OK) code = read_last(b, sequence, line->context, logits, status);
    *seconds += seconds_now() - begun;
    line->counts.readings++;
    line->counts.tokens += line->context;
    descent_sequence_destroy(sequence);
    return code;
}

static int measure_prefill(bench_run *b, bench_line *line, progress *bar)
{
    descent_status status;
    uint64_t rounds = 1;
    float *logits = malloc(b->with.info->vocab * sizeof *logits);
    descent_code code = DESCENT_OK;
    if (!logits) {
        cli_error("no memory for %u logits", b->with.info->vocab);
        return EXIT_FAILURE;
    }
    if (line->context <= WARM_CONTEXT) {
        double warm = 0;
        code = run_prompt(b, line, logits, &warm, &status);
        rounds = rounds_for(b, warm);
    }
    for (int64_t i = 0; goes_on(b, i) && code == DESCENT_OK; i++) {
        double seconds = 0;
        line->counts = (run_counts){0};
        for (uint64_t k = 0; k < rounds && code == DESCENT_OK; k++) code = run_prompt(b, line, logits, &seconds, &status);
        load_samples_add(&line->seconds, seconds);
        progress_advance(bar, 1);
    }
    free(logits);
    if (code != DESCENT_OK) return failed(line, &status);
    if (!interrupted()) reckon_prompt(b, line, line->context, line->depths[0].depth, 1);
    return ended();
}

/* ---- Texts -------------------------------------------------------------------------------------------------------- */

/* Every text works as long: where rows of all depths go side by side, shallow ones make more tokens. */
static void set_quotas(const bench_run *b, const bench_line *line, text_set *set, uint64_t rounds)
{
    uint32_t deepest = 1;
    for (size_t i = 0; i < line->n_depths; i++)
        if (line->depths[i].depth.steps[0] > deepest) deepest = line->depths[i].depth.steps[0];
    for (size_t i = 0; i < line->batch; i++) {
        uint32_t own = set->texts[i].depth.steps[0];
        set->texts[i].quota = b->with.info->deepens && own ? rounds * deepest / own : rounds;
    }
}

static descent_code run_texts(const bench_line *line, text_set *set, run_counts *counts, double *seconds,
                              descent_status *status)
{
    double begun = seconds_now();
    descent_code code = texts_run(set, line->batch, NULL, NULL, counts, status);
    *seconds = seconds_now() - begun;
    return code;
}

static int measure_texts(bench_run *b, bench_line *line, progress *bar)
{
    text_set set;
    descent_status status;
    double seconds;
    int exit_code = texts_make(&b->with, line->context, line->depths, line->n_depths, line->batch, &set);
    descent_code code = DESCENT_OK;
    if (exit_code == EXIT_SUCCESS) {
        set_quotas(b, line, &set, 1);
        code = run_texts(line, &set, &line->counts, &seconds, &status);
        set_quotas(b, line, &set, rounds_for(b, seconds));
    }
    for (int64_t i = 0; exit_code == EXIT_SUCCESS && goes_on(b, i) && code == DESCENT_OK; i++) {
        line->counts = (run_counts){0};
        code = run_texts(line, &set, &line->counts, &seconds, &status);
        load_samples_add(&line->seconds, seconds);
        progress_advance(bar, 1);
    }
    if (exit_code == EXIT_SUCCESS && code == DESCENT_OK && !interrupted()) reckon_texts(b, line, &set);
    texts_release(&set);
    if (exit_code != EXIT_SUCCESS) return exit_code;
    return code == DESCENT_OK ? ended() : failed(line, &status);
}

/* Latencies of the shallow texts of one set, as repetition after repetition of it and of another that is all shallow. */
static int measure_latency(bench_run *b, bench_line *line, progress *bar)
{
    text_set mixed, shallow = {.count = 0};
    descent_status status;
    descent_depth watched = line->depths[0].depth;
    descent_code code = DESCENT_OK;
    line->beside[0].name = "all at it";
    int exit_code = texts_make(&b->with, line->context, line->depths, 2, line->batch, &mixed);
    if (exit_code == EXIT_SUCCESS) exit_code = texts_make(&b->with, line->context, line->depths, 1, line->batch, &shallow);
    for (int64_t i = 0; exit_code == EXIT_SUCCESS && goes_on(b, i) && code == DESCENT_OK; i++) {
        run_counts beside = {0};
        line->counts = (run_counts){0};
        set_quotas(b, line, &mixed, 1);
        set_quotas(b, line, &shallow, 1);
        code = texts_run(&mixed, line->batch, &watched, &line->seconds, &line->counts, &status);
        if (code == DESCENT_OK) code = texts_run(&shallow, line->batch, &watched, &line->beside[0].seconds, &beside, &status);
        progress_advance(bar, 1);
    }
    texts_release(&mixed);
    texts_release(&shallow);
    if (exit_code != EXIT_SUCCESS) return exit_code;
    return code == DESCENT_OK ? ended() : failed(line, &status);
}

/* ---- Depths of one text ------------------------------------------------------------------------------------------- */

static descent_depth depth_of(uint32_t steps)
{
    return (descent_depth){.steps = {(uint16_t)steps}};
}

/* Takes a new text to every T from 1 on, its logits read at each. */
static descent_code run_sweep(const bench_run *b, bench_line *line, descent_reading *readings, float *logits, double *seconds,
                              descent_status *status)
{
    descent_sequence *sequence = NULL;
    descent_code code = text_begin(&b->with, line->context, depth_of(1), &sequence, status);
    double begun = seconds_now();
    for (size_t i = 0; i < line->context; i++) readings[i] = (descent_reading){.sequence = sequence, .position = i};
    for (uint32_t t = 1; t <= SWEEP_STEPS && code == DESCENT_OK; t++) {
        code = descent_sequence_set_depth(sequence, depth_of(t), status);
        if (code == DESCENT_OK) code = text_descend(&b->with, sequence, &line->counts, status);
        if (code == DESCENT_OK) code = descent_batch_logits(b->with.batch, readings, line->context, logits, status);
        line->counts.readings++;
    }
    line->counts.tokens += line->context;
    *seconds = seconds_now() - begun;
    descent_sequence_destroy(sequence);
    return code;
}

/* Takes a new text to the last T at once, and reads its logits as often; *steps without, *both with the readings. */
static descent_code run_apart(const bench_run *b, const bench_line *line, descent_reading *readings, float *logits,
                              double *steps, double *both, descent_status *status)
{
    descent_sequence *sequence = NULL;
    run_counts counts = {0};
    descent_code code = text_begin(&b->with, line->context, depth_of(SWEEP_STEPS), &sequence, status);
    double begun = seconds_now();
    if (code == DESCENT_OK) code = text_descend(&b->with, sequence, &counts, status);
    *steps = seconds_now() - begun;
    for (size_t i = 0; i < line->context; i++) readings[i] = (descent_reading){.sequence = sequence, .position = i};
    for (uint32_t t = 1; t <= SWEEP_STEPS && code == DESCENT_OK; t++)
        code = descent_batch_logits(b->with.batch, readings, line->context, logits, status);
    *both = seconds_now() - begun;
    descent_sequence_destroy(sequence);
    return code;
}

static int measure_sweep(bench_run *b, bench_line *line, progress *bar)
{
    descent_status status;
    descent_code code = DESCENT_OK;
    descent_reading *readings = calloc(line->context, sizeof *readings);
    float *logits = malloc(line->context * b->with.info->vocab * sizeof *logits);
    line->beside[0].name = "steps and heads";
    line->beside[1].name = "steps alone";
    for (int64_t i = 0; readings && logits && goes_on(b, i) && code == DESCENT_OK; i++) {
        double sweep = 0, steps = 0, both = 0;
        line->counts = (run_counts){0};
        code = run_sweep(b, line, readings, logits, &sweep, &status);
        if (code == DESCENT_OK) code = run_apart(b, line, readings, logits, &steps, &both, &status);
        load_samples_add(&line->seconds, sweep);
        load_samples_add(&line->beside[0].seconds, both);
        load_samples_add(&line->beside[1].seconds, steps);
        progress_advance(bar, 1);
    }
    bool memory = readings && logits;
    free(readings);
    free(logits);
    if (!memory) {
        cli_error("no memory for the logits of %zu tokens", line->context);
        return EXIT_FAILURE;
    }
    if (code != DESCENT_OK) return failed(line, &status);
    if (!interrupted()) reckon_prompt(b, line, line->context, depth_of(SWEEP_STEPS), (uint64_t)SWEEP_STEPS * line->context);
    return ended();
}

/* depths[0] is T, depths[1] 2T. */
static descent_code run_deepening(const bench_run *b, bench_line *line, double *deepened, double *whole, descent_status *status)
{
    descent_sequence *sequence = NULL;
    run_counts counts = {0};
    descent_code code = text_begin(&b->with, line->context, line->depths[0].depth, &sequence, status);
    if (code == DESCENT_OK) code = text_descend(&b->with, sequence, &counts, status);
    double begun = seconds_now();
    if (code == DESCENT_OK) code = descent_sequence_set_depth(sequence, line->depths[1].depth, status);
    if (code == DESCENT_OK) code = text_descend(&b->with, sequence, &line->counts, status);
    *deepened = seconds_now() - begun;
    line->counts.tokens += line->context;
    descent_sequence_destroy(sequence);
    sequence = NULL;
    if (code == DESCENT_OK) code = text_begin(&b->with, line->context, line->depths[1].depth, &sequence, status);
    begun = seconds_now();
    if (code == DESCENT_OK) code = text_descend(&b->with, sequence, &counts, status);
    *whole = seconds_now() - begun;
    descent_sequence_destroy(sequence);
    return code;
}

static int measure_deepening(bench_run *b, bench_line *line, progress *bar)
{
    descent_status status;
    descent_code code = DESCENT_OK;
    line->beside[0].name = "from nothing";
    for (int64_t i = 0; goes_on(b, i) && code == DESCENT_OK; i++) {
        double deepened = 0, whole = 0;
        line->counts = (run_counts){0};
        code = run_deepening(b, line, &deepened, &whole, &status);
        load_samples_add(&line->seconds, deepened);
        load_samples_add(&line->beside[0].seconds, whole);
        progress_advance(bar, 1);
    }
    if (code != DESCENT_OK) return failed(line, &status);
    uint32_t more = (uint32_t)line->depths[1].depth.steps[0] - line->depths[0].depth.steps[0];
    if (!interrupted()) reckon_prompt(b, line, line->context, depth_of(more), 0);
    return ended();
}

/* ---- A line ------------------------------------------------------------------------------------------------------- */

int line_measure(bench_run *b, bench_line *line, progress *bar)
{
    static int (*const measures[LINE_KINDS])(bench_run *, bench_line *, progress *) = {
        [LINE_PREFILL] = measure_prefill, [LINE_DECODE] = measure_texts,        [LINE_MIXED] = measure_texts,
        [LINE_SWEEP] = measure_sweep,     [LINE_DEEPENING] = measure_deepening, [LINE_LATENCY] = measure_latency,
        [LINE_DRAFTS] = drafts_measure};
    return measures[line->kind](b, line, bar);
}

void line_release(bench_line *line)
{
    load_samples_release(&line->seconds);
    for (size_t i = 0; i < LINE_BESIDES; i++) load_samples_release(&line->beside[i].seconds);
}

uint64_t memory_resident(void)
{
    unsigned long long pages = 0, resident = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm) return 0;
    int read = fscanf(statm, "%llu %llu", &pages, &resident);
    (void)fclose(statm);
    return read == 2 ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

int memory_measure(bench_run *b, size_t context)
{
    bench_line line = {.kind = LINE_DECODE, .context = context, .batch = 1, .depths = {b->depth}, .n_depths = 1};
    text_set set;
    descent_status status;
    int exit_code = texts_make(&b->with, context, line.depths, 1, 1, &set);
    descent_code code = DESCENT_OK;
    if (exit_code == EXIT_SUCCESS) {
        set.texts[0].quota = 1;
        code = texts_run(&set, 1, NULL, NULL, &line.counts, &status);
        b->memory.resident = memory_resident();
        b->memory.file = b->with.info->file_bytes;
        b->memory.cache = descent_cache_describe(b->with.cache).bytes;
        b->has_memory = b->memory.resident > 0;
    }
    texts_release(&set);
    if (exit_code != EXIT_SUCCESS) return exit_code;
    return code == DESCENT_OK ? ended() : failed(&line, &status);
}
