/* bench_texts.c: see bench_texts.h. The first text of a depth is computed, the others are copies of it through a file, each
 * with pages of its own. Where the model deepens, a history computed at the largest depth serves the smaller ones too.
 */
#include "bench_texts.h"

#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool depth_equals(descent_depth a, descent_depth b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static uint32_t random_token(const session *with, size_t i)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)((x >> 32) % with->info->vocab);
}

descent_code text_begin(const session *with, size_t length, descent_depth depth, descent_sequence **sequence,
                        descent_status *status)
{
    descent_sequence_options options = {.depth = depth, .no_sharing = true};
    descent_sequence *made = NULL;
    descent_code code = descent_sequence_create(with->cache, &options, &made, status);
    for (size_t i = 0; i < length && code == DESCENT_OK; i++) {
        uint32_t token = random_token(with, i);
        code = descent_sequence_append(made, &token, 1, status);
    }
    if (code == DESCENT_OK)
        *sequence = made;
    else
        descent_sequence_destroy(made);
    return code;
}

descent_code text_descend(const session *with, descent_sequence *sequence, run_counts *counts, descent_status *status)
{
    for (;;) {
        size_t added, before = descent_batch_rows(with->batch);
        descent_step_report report;
        descent_code code = descent_sequence_state_code(sequence, status);
        if (code == DESCENT_OK) code = descent_batch_add(with->batch, sequence, SIZE_MAX, &added, status);
        if (code != DESCENT_OK || descent_batch_rows(with->batch) == 0) return code;
        counts->rounds += before == 0;
        code = descent_batch_step(with->batch, &report, status);
        if (code != DESCENT_OK) return code;
        counts->steps++;
        counts->row_steps += report.rows;
    }
}

/* ---- Sets of texts ----------------------------------------------------------------------------------------------- */

/* The deepest of the depths, where one history serves all; else the one asked for. */
static descent_depth history_depth(const session *with, const asked_depth *depths, size_t n, size_t which)
{
    descent_depth deepest = depths[which].depth;
    for (size_t i = 0; with->info->deepens && i < n; i++)
        if (depths[i].depth.steps[0] > deepest.steps[0]) deepest = depths[i].depth;
    return deepest;
}

/* The file that keeps the history of a depth, in a folder of this set's. */
static const char *history_path(const char *folder, descent_depth depth, char path[128])
{
    (void)snprintf(path, 128, "%s/%ux%u", folder, (unsigned)depth.steps[0], (unsigned)depth.steps[1]);
    return path;
}

/* Text i: from the file of its depth, or computed and put there. */
static descent_code make_text(text_set *set, size_t i, descent_depth depth, descent_depth history, const char *folder,
                              descent_status *status)
{
    const session *with = set->with;
    bench_text *text = &set->texts[i];
    char path[128];
    run_counts counts = {0};
    descent_code code;
    if (access(history_path(folder, history, path), F_OK) == 0) {
        code = descent_sequence_restore(with->cache, path, &text->sequence, status);
    } else {
        code = text_begin(with, set->context - 1, history, &text->sequence, status);
        if (code == DESCENT_OK) code = text_descend(with, text->sequence, &counts, status);
        if (code == DESCENT_OK && set->count > 1) code = descent_sequence_save(text->sequence, path, status);
    }
    text->depth = depth;
    if (code == DESCENT_OK && !depth_equals(depth, history)) code = descent_sequence_set_depth(text->sequence, depth, status);
    return code;
}

static int allocate(text_set *set)
{
    set->texts = calloc(set->count, sizeof *set->texts);
    set->readings = calloc(set->count, sizeof *set->readings);
    set->read = calloc(set->count, sizeof *set->read);
    set->logits = malloc(set->count * set->with->info->vocab * sizeof *set->logits);
    if (set->texts && set->readings && set->read && set->logits) return EXIT_SUCCESS;
    cli_error("no memory for %zu texts", set->count);
    return EXIT_FAILURE;
}

int texts_make(const session *with, size_t context, const asked_depth *depths, size_t n_depths, size_t count, text_set *set)
{
    *set = (text_set){.with = with, .context = context, .count = count};
    if (allocate(set) != EXIT_SUCCESS) return EXIT_FAILURE;
    const char *root = getenv("TMPDIR");
    char folder[96], path[128];
    descent_status status = {.code = DESCENT_OK};
    int length = snprintf(folder, sizeof folder, "%s/descent-bench-XXXXXX", root && *root ? root : "/tmp");
    if (length >= (int)sizeof folder || !mkdtemp(folder)) {
        cli_error("cannot make a folder %s for the texts", folder);
        return EXIT_FAILURE;
    }
    descent_code code = DESCENT_OK;
    for (size_t i = 0; i < count && code == DESCENT_OK && !interrupted(); i++) {
        size_t which = i % n_depths;
        code = make_text(set, i, depths[which].depth, history_depth(with, depths, n_depths, which), folder, &status);
    }
    for (size_t i = 0; i < n_depths; i++) (void)unlink(history_path(folder, history_depth(with, depths, n_depths, i), path));
    (void)rmdir(folder);
    if (code == DESCENT_OK) return interrupted() ? EXIT_INTERRUPTED : EXIT_SUCCESS;
    cli_error("texts of %zu tokens: %s", context, status.message);
    return EXIT_FAILURE;
}

void texts_release(text_set *set)
{
    for (size_t i = 0; set->texts && i < set->count; i++) descent_sequence_destroy(set->texts[i].sequence);
    free(set->texts);
    free(set->readings);
    free(set->read);
    free(set->logits);
    *set = (text_set){.count = 0};
}

/* ---- A run ------------------------------------------------------------------------------------------------------- */

/* A token more for every text that is idle and has not done its quota. Rows of a layered model wait for each other, so there
 * all begin together. */
static descent_code begin_tokens(text_set *set, size_t count, run_counts *counts, descent_status *status)
{
    const session *with = set->with;
    bool empty = descent_batch_rows(with->batch) == 0;
    if (!empty && !with->info->deepens) return DESCENT_OK;
    for (size_t i = 0; i < count; i++) {
        bench_text *text = &set->texts[i];
        size_t added;
        if (text->busy || text->done == text->quota) continue;
        uint32_t token = random_token(with, set->context + text->done);
        text->begun = seconds_now();
        descent_code code = descent_sequence_append(text->sequence, &token, 1, status);
        if (code == DESCENT_OK) code = descent_batch_add(with->batch, text->sequence, 1, &added, status);
        if (code != DESCENT_OK) return code;
        text->busy = true;
    }
    counts->rounds += empty && descent_batch_rows(with->batch) > 0;
    return DESCENT_OK;
}

/* Reads the logits of the tokens that have come to their depth, and takes them off. */
static descent_code end_tokens(text_set *set, size_t count, const descent_depth *timed, load_samples *times, run_counts *counts,
                               descent_status *status)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const bench_text *text = &set->texts[i];
        if (!text->busy || descent_sequence_finished(text->sequence) < set->context) continue;
        set->readings[n] = (descent_reading){.sequence = text->sequence, .position = set->context - 1};
        set->read[n++] = i;
    }
    if (n == 0) return DESCENT_OK;
    descent_code code = descent_batch_logits(set->with->batch, set->readings, n, set->logits, status);
    double now = seconds_now();
    for (size_t k = 0; k < n && code == DESCENT_OK; k++) {
        bench_text *text = &set->texts[set->read[k]];
        if (timed && depth_equals(text->depth, *timed)) load_samples_add(times, now - text->begun);
        code = descent_sequence_truncate(text->sequence, set->context - 1, status);
        text->busy = false;
        text->done++;
    }
    counts->readings++;
    counts->tokens += n;
    return code;
}

descent_code texts_run(text_set *set, size_t count, const descent_depth *timed, load_samples *times, run_counts *counts,
                       descent_status *status)
{
    for (size_t i = 0; i < count; i++) set->texts[i].done = 0;
    for (;;) {
        descent_step_report report;
        descent_code code = begin_tokens(set, count, counts, status);
        if (code != DESCENT_OK || descent_batch_rows(set->with->batch) == 0) return code;
        code = descent_batch_step(set->with->batch, &report, status);
        if (code != DESCENT_OK) return code;
        counts->steps++;
        counts->row_steps += report.rows;
        if (report.finished + report.diverged == 0) continue;
        for (size_t i = 0; i < count && report.diverged && code == DESCENT_OK; i++)
            code = descent_sequence_state_code(set->texts[i].sequence, status);
        if (code == DESCENT_OK) code = end_tokens(set, count, timed, times, counts, status);
        if (code != DESCENT_OK) return code;
    }
}
