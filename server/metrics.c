/* metrics.c: see metrics.h. Counters of the server's own live here and change on the loop's thread; what schedulers count
 * (generations running and waiting, rows of each step, pauses, cache memory) is asked of them when the text is made. Every
 * series of a counter is there from the start, so that its first increase is seen.
 *
 * /proc is read through descriptors opened at the start: a server that has run out of them still answers.
 */
#include "metrics.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The statuses an answer may have; 0: the client left before one. Any other counts as "other". */
static const unsigned statuses[] = {0, 200, 204, 304, 400, 401, 403, 404, 405, 408, 413, 415, 429, 500, 503, 504};
enum { STATUSES = sizeof statuses / sizeof statuses[0] };

static const char *const rejection_names[METRICS_REJECTIONS] = {"queue_full", "unauthorized", "too_large",
                                                                "draining",   "loading",      "invalid"};

static const double seconds_bounds[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100};
static const double powers_of_two[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
enum { BOUNDS_MOST = 16 };

static const struct histogram_kind {
    const char *name, *help;
    const double *bounds;
    size_t count; /* of bounds; one more bucket takes the rest */
} kinds[METRICS_HISTOGRAMS] = {
    {"descent_queue_seconds", "Time a generation waited before it began.", seconds_bounds, 16},
    {"descent_time_to_first_token_seconds", "Time from the arrival of a request to its first generated token.", seconds_bounds,
     16},
    {"descent_inter_token_seconds", "Time between two generated tokens of one generation.", seconds_bounds, 16},
    {"descent_request_seconds", "Time from the arrival of a request to the end of its answer.", seconds_bounds, 16},
    {"descent_request_steps", "Recursion depth T asked by a generating request, the larger where there are two.", powers_of_two,
     11},
};
static const struct histogram_kind batch_rows = {"descent_batch_rows", "Rows advanced by one step of a batch.", powers_of_two,
                                                 11};
static const struct histogram_kind row_step = {
    "descent_row_step", "Step t, from 1 to T, that a row was advanced to, of each row of each step of a batch.", powers_of_two,
    11};

typedef struct histogram {
    uint64_t buckets[BOUNDS_MOST + 1]; /* [i]: values above bound i-1, up to bound i */
    double sum;
} histogram;

struct metrics {
    const char *const *endpoints;
    size_t n_endpoints;
    uint64_t *requests; /* [n_endpoints + 1][STATUSES + 1]: the last of each is "other" */
    uint64_t rejections[METRICS_REJECTIONS];
    uint64_t prompt_tokens, cached_tokens, generated_tokens, drafted_tokens, accepted_tokens, token_steps;
    histogram histograms[METRICS_HISTOGRAMS];
    const model_set *models;
    int stat;        /* /proc/self/stat; -1: there is none */
    DIR *open_files; /* /proc/self/fd; NULL: there is none */
    double started;  /* the process, in seconds of the epoch */
};

/* What /proc/self/stat says. */
typedef struct process_stat {
    double cpu_seconds, resident_bytes;
    double start_ticks; /* since the machine's */
} process_stat;

static process_stat read_process_stat(const metrics *m)
{
    process_stat out = {0};
    char text[1024];
    ssize_t n = m->stat < 0 ? -1 : pread(m->stat, text, sizeof text - 1, 0);
    if (n <= 0) return out;
    text[n] = '\0';
    const char *fields = strrchr(text, ')'); /* the program's name may hold anything; field 3 follows it */
    unsigned long user, kernel;
    unsigned long long start;
    long pages;
    if (!fields ||
        sscanf(fields + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d %llu %*u %ld", &user,
               &kernel, &start, &pages) != 4)
        return out;
    double ticks = (double)sysconf(_SC_CLK_TCK);
    out.cpu_seconds = (double)(user + kernel) / ticks;
    out.resident_bytes = (double)pages * (double)sysconf(_SC_PAGESIZE);
    out.start_ticks = (double)start / ticks;
    return out;
}

/* When the machine started, in seconds of the epoch; 0 where /proc does not say. */
static double boot_time(void)
{
    FILE *file = fopen("/proc/stat", "re");
    if (!file) return 0;
    unsigned long long seconds = 0;
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, file) > 0)
        if (sscanf(line, "btime %llu", &seconds) == 1) break;
    free(line);
    (void)fclose(file);
    return (double)seconds;
}

metrics *metrics_create(const char *const *endpoints)
{
    metrics *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->endpoints = endpoints;
    while (endpoints[m->n_endpoints]) m->n_endpoints++;
    m->requests = calloc((m->n_endpoints + 1) * (STATUSES + 1), sizeof *m->requests);
    if (!m->requests) {
        free(m);
        return NULL;
    }
    m->stat = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    m->open_files = opendir("/proc/self/fd");
    m->started = boot_time() + read_process_stat(m).start_ticks;
    return m;
}

void metrics_destroy(metrics *m)
{
    if (!m) return;
    if (m->stat >= 0) (void)close(m->stat);
    if (m->open_files) (void)closedir(m->open_files);
    free(m->requests);
    free(m);
}

void metrics_set_models(metrics *m, const model_set *models)
{
    m->models = models;
}

void metrics_count_request(metrics *m, const char *endpoint, unsigned status)
{
    size_t row = 0, column = 0;
    while (row < m->n_endpoints && strcmp(m->endpoints[row], endpoint) != 0) row++;
    while (column < STATUSES && statuses[column] != status) column++;
    m->requests[row * (STATUSES + 1) + column]++;
}

void metrics_count_rejection(metrics *m, metrics_rejection reason)
{
    m->rejections[reason]++;
}

void metrics_count_generation(metrics *m, const descent_generation_report *report)
{
    m->prompt_tokens += report->prompt_count;
    m->cached_tokens += report->reused;
    m->generated_tokens += report->generated;
    m->drafted_tokens += report->drafted;
    m->accepted_tokens += report->accepted;
    m->token_steps += report->row_steps;
    metrics_observe(m, METRICS_QUEUE_SECONDS, report->queue_seconds);
}

void metrics_observe(metrics *m, metrics_histogram which, double value)
{
    const struct histogram_kind *kind = &kinds[which];
    size_t bucket = 0;
    while (bucket < kind->count && !(value <= kind->bounds[bucket])) bucket++;
    m->histograms[which].buckets[bucket]++;
    m->histograms[which].sum += value;
}

/* ---- Text ---------------------------------------------------------------------------------------------------------- */

/* All schedulers together. */
typedef struct scheduler_sums {
    uint64_t running, waiting, pauses, cache_bytes, cache_limit_bytes;
    histogram rows, row_step;
} scheduler_sums;

static scheduler_sums ask_schedulers(const metrics *m)
{
    scheduler_sums sums = {0};
    for (size_t i = 0; m->models && i < m->models->count; i++) {
        descent_scheduler_state state = descent_scheduler_describe(m->models->items[i].scheduler);
        sums.running += state.running;
        sums.waiting += state.waiting;
        sums.pauses += state.pauses;
        sums.cache_bytes += state.cache.bytes;
        sums.cache_limit_bytes += state.cache.byte_limit;
        for (size_t k = 0; k < DESCENT_ROW_BUCKETS; k++) {
            sums.rows.buckets[k] += state.steps_by_rows[k];
            sums.row_step.buckets[k] += state.rows_by_step[k];
        }
        sums.rows.sum += (double)state.row_steps;
        sums.row_step.sum += (double)state.steps_sum;
    }
    return sums;
}

static void put_header(FILE *out, const char *name, const char *type, const char *help)
{
    (void)fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_one(FILE *out, const char *name, const char *type, const char *help, double value)
{
    put_header(out, name, type, help);
    (void)fprintf(out, "%s %.15g\n", name, value);
}

/* key="value", escaped as the format asks. */
static void put_label(FILE *out, const char *key, const char *value)
{
    (void)fprintf(out, "%s=\"", key);
    for (const char *c = value; *c; c++) {
        if (*c == '\n') {
            (void)fputs("\\n", out);
            continue;
        }
        if (*c == '"' || *c == '\\') (void)fputc('\\', out);
        (void)fputc(*c, out);
    }
    (void)fputc('"', out);
}

static void put_requests(FILE *out, const metrics *m)
{
    put_header(out, "descent_requests_total", "counter",
               "Requests answered, by endpoint and status; code 0: the client left first.");
    for (size_t i = 0; i <= m->n_endpoints; i++)
        for (size_t j = 0; j <= STATUSES; j++) {
            char code[16] = "other";
            if (j < STATUSES) (void)snprintf(code, sizeof code, "%u", statuses[j]);
            (void)fputs("descent_requests_total{", out);
            put_label(out, "endpoint", i < m->n_endpoints ? m->endpoints[i] : "other");
            (void)fprintf(out, ",code=\"%s\"} %" PRIu64 "\n", code, m->requests[i * (STATUSES + 1) + j]);
        }
    put_header(out, "descent_requests_rejected_total", "counter", "Requests refused before any work was done for them.");
    for (size_t i = 0; i < METRICS_REJECTIONS; i++)
        (void)fprintf(out, "descent_requests_rejected_total{reason=\"%s\"} %" PRIu64 "\n", rejection_names[i],
                      m->rejections[i]);
}

static void put_histogram(FILE *out, const struct histogram_kind *kind, const histogram *h)
{
    put_header(out, kind->name, "histogram", kind->help);
    uint64_t count = 0;
    for (size_t i = 0; i < kind->count; i++) {
        count += h->buckets[i];
        (void)fprintf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", kind->name, kind->bounds[i], count);
    }
    count += h->buckets[kind->count];
    (void)fprintf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.15g\n%s_count %" PRIu64 "\n", kind->name, count,
                  kind->name, h->sum, kind->name, count);
}

static double count_open_files(const metrics *m)
{
    if (!m->open_files) return 0;
    size_t count = 0;
    rewinddir(m->open_files);
    for (const struct dirent *entry; (entry = readdir(m->open_files));) count += entry->d_name[0] != '.';
    return (double)count;
}

static void put_process(FILE *out, const metrics *m)
{
    process_stat now = read_process_stat(m);
    struct rlimit files = {0};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    put_one(out, "process_cpu_seconds_total", "counter", "Processor time of the process.", now.cpu_seconds);
    put_one(out, "process_resident_memory_bytes", "gauge", "Memory of the process that is in RAM.", now.resident_bytes);
    put_one(out, "process_open_fds", "gauge", "Open file descriptors.", count_open_files(m));
    put_one(out, "process_max_fds", "gauge", "Most file descriptors that may be open.", (double)files.rlim_cur);
    put_one(out, "process_start_time_seconds", "gauge", "When the process started, in seconds of the epoch.", m->started);
}

static void put_all(FILE *out, const metrics *m)
{
    scheduler_sums sums = ask_schedulers(m);
    put_one(out, "descent_requests_running", "gauge", "Generations that hold cache.", (double)sums.running);
    put_one(out, "descent_requests_waiting", "gauge", "Generations that wait to begin or to go on.", (double)sums.waiting);
    put_requests(out, m);
    put_one(out, "descent_prompt_tokens_total", "counter", "Prompt tokens of generations that have ended.",
            (double)m->prompt_tokens);
    put_one(out, "descent_cached_tokens_total", "counter", "Of the prompt tokens, those found in the cache.",
            (double)m->cached_tokens);
    put_one(out, "descent_generated_tokens_total", "counter", "Tokens generated, by generations that have ended.",
            (double)m->generated_tokens);
    put_one(out, "descent_drafted_tokens_total", "counter",
            "Tokens begun before they were chosen, by generations that have ended.", (double)m->drafted_tokens);
    put_one(out, "descent_accepted_tokens_total", "counter", "Of the drafted tokens, those that were chosen then.",
            (double)m->accepted_tokens);
    put_one(out, "descent_token_steps_total", "counter", "Steps of tokens run for generations that have ended.",
            (double)m->token_steps);
    put_one(out, "descent_preemptions_total", "counter", "Times a generation was paused because the cache was full.",
            (double)sums.pauses);
    put_one(out, "descent_cache_bytes", "gauge", "Memory the caches hold.", (double)sums.cache_bytes);
    put_one(out, "descent_cache_limit_bytes", "gauge", "Most memory the caches may hold.", (double)sums.cache_limit_bytes);
    for (size_t i = 0; i < METRICS_HISTOGRAMS; i++) put_histogram(out, &kinds[i], &m->histograms[i]);
    put_histogram(out, &batch_rows, &sums.rows);
    put_histogram(out, &row_step, &sums.row_step);
    put_header(out, "descent_build_info", "gauge", "1, labelled with the version and the instruction set in use.");
    (void)fputs("descent_build_info{", out);
    put_label(out, "version", descent_version());
    (void)fputc(',', out);
    put_label(out, "isa", descent_isa());
    (void)fputs("} 1\n", out);
    put_process(out, m);
}

char *metrics_text(const metrics *m, size_t *bytes)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    put_all(out, m);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    *bytes = size;
    return text;
}
