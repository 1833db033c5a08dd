/* test_metrics.c: the text Prometheus reads: every name of the contract from the start, counts where they belong, buckets that
 * add up, labels that no value breaks, and numbers of the process that are true, out of descriptors too. The schedulers asked
 * are this file's: descent_scheduler_describe is defined here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "metrics.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct descent_scheduler {
    descent_scheduler_state state;
};

descent_scheduler_state descent_scheduler_describe(descent_scheduler *scheduler)
{
    return scheduler->state;
}

static const char *const endpoints[] = {"/v1/completions", "/health", NULL};

static char *text_of(const metrics *m)
{
    size_t bytes = 0;
    char *text = metrics_text(m, &bytes);
    assert_non_null(text);
    assert_int_equal(strlen(text), bytes);
    return text;
}

/* The value of the series written exactly so; NaN where there is none. */
static double value_in(const char *text, const char *series)
{
    size_t bytes = strlen(series);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, series, bytes) == 0 && line[bytes] == ' ') return strtod(line + bytes, NULL);
    return (double)NAN;
}

static double value_of(const metrics *m, const char *series)
{
    char *text = text_of(m);
    double value = value_in(text, series);
    free(text);
    return value;
}

static void assert_value(const metrics *m, const char *series, double expected)
{
    double value = value_of(m, series);
    if (!(fabs(value - expected) <= 1e-12)) fail_msg("%s is %g, expected %g", series, value, expected);
}

static int set_up(void **state)
{
    *state = metrics_create(endpoints);
    return *state ? 0 : -1;
}

static int take_down(void **state)
{
    metrics_destroy(*state);
    return 0;
}

static void every_name_is_there_at_zero(void **state)
{
    static const char *const zero[] = {"descent_requests_running",
                                       "descent_requests_waiting",
                                       "descent_requests_total{endpoint=\"/v1/completions\",code=\"200\"}",
                                       "descent_requests_total{endpoint=\"/health\",code=\"503\"}",
                                       "descent_requests_total{endpoint=\"other\",code=\"404\"}",
                                       "descent_requests_total{endpoint=\"/v1/completions\",code=\"0\"}",
                                       "descent_requests_rejected_total{reason=\"queue_full\"}",
                                       "descent_requests_rejected_total{reason=\"unauthorized\"}",
                                       "descent_requests_rejected_total{reason=\"too_large\"}",
                                       "descent_requests_rejected_total{reason=\"draining\"}",
                                       "descent_requests_rejected_total{reason=\"loading\"}",
                                       "descent_requests_rejected_total{reason=\"invalid\"}",
                                       "descent_prompt_tokens_total",
                                       "descent_cached_tokens_total",
                                       "descent_generated_tokens_total",
                                       "descent_drafted_tokens_total",
                                       "descent_accepted_tokens_total",
                                       "descent_token_steps_total",
                                       "descent_preemptions_total",
                                       "descent_cache_bytes",
                                       "descent_cache_limit_bytes",
                                       "descent_queue_seconds_count",
                                       "descent_queue_seconds_sum",
                                       "descent_queue_seconds_bucket{le=\"0.001\"}",
                                       "descent_queue_seconds_bucket{le=\"+Inf\"}",
                                       "descent_time_to_first_token_seconds_count",
                                       "descent_inter_token_seconds_count",
                                       "descent_request_seconds_count",
                                       "descent_request_seconds_bucket{le=\"100\"}",
                                       "descent_request_steps_count",
                                       "descent_request_steps_bucket{le=\"1\"}",
                                       "descent_request_steps_bucket{le=\"1024\"}",
                                       "descent_batch_rows_count",
                                       "descent_batch_rows_bucket{le=\"1024\"}",
                                       "descent_row_step_count",
                                       "descent_row_step_bucket{le=\"1024\"}"};
    for (size_t i = 0; i < sizeof zero / sizeof zero[0]; i++) assert_value(*state, zero[i], 0);
    char build[256];
    (void)snprintf(build, sizeof build, "descent_build_info{version=\"%s\",isa=\"%s\"}", descent_version(), descent_isa());
    assert_value(*state, build, 1);
}

/* Name of the metric a sample belongs to: without labels, and for a histogram without what its series add. */
static void family_of(const char *line, const char *type, char *out, size_t size)
{
    size_t n = strcspn(line, "{ ");
    static const char *const endings[] = {"_bucket", "_sum", "_count"};
    for (size_t i = 0; strcmp(type, "histogram") == 0 && i < 3; i++) {
        size_t bytes = strlen(endings[i]);
        if (n > bytes && strncmp(line + n - bytes, endings[i], bytes) == 0) {
            n -= bytes;
            break;
        }
    }
    (void)snprintf(out, size, "%.*s", (int)n, line);
}

static void each_family_is_described_once_and_then_listed(void **state)
{
    char *text = text_of(*state), seen[4096] = "|";
    assert_int_equal(text[strlen(text) - 1], '\n');
    char name[128] = "", type[32] = "", described[128] = "";
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            assert_int_equal(sscanf(line, "# HELP %127s %*c", described), 1);
            char once[160];
            (void)snprintf(once, sizeof once, "|%s|", described);
            assert_null(strstr(seen, once));
            strcat(strcat(seen, described), "|");
        } else if (line[0] == '#') {
            assert_int_equal(sscanf(line, "# TYPE %127s %31s", name, type), 2);
            assert_string_equal(name, described);
        } else {
            char family[128];
            family_of(line, type, family, sizeof family);
            assert_string_equal(family, name);
            if (strcmp(type, "counter") == 0) assert_string_equal(name + strlen(name) - strlen("_total"), "_total");
            const char *value = strrchr(line, ' ') + 1;
            char *end = NULL;
            (void)strtod(value, &end);
            assert_true(end > value && *end == '\0');
        }
    }
    free(text);
}

static void requests_count_by_endpoint_and_code(void **state)
{
    metrics_count_request(*state, "/health", 200);
    metrics_count_request(*state, "/health", 200);
    metrics_count_request(*state, "/health", 418);
    metrics_count_request(*state, "/v1/completions", 0);
    metrics_count_request(*state, "/wp-login.php", 404);
    metrics_count_rejection(*state, METRICS_QUEUE_FULL);
    metrics_count_rejection(*state, METRICS_INVALID);
    metrics_count_rejection(*state, METRICS_INVALID);
    assert_value(*state, "descent_requests_total{endpoint=\"/health\",code=\"200\"}", 2);
    assert_value(*state, "descent_requests_total{endpoint=\"/health\",code=\"other\"}", 1);
    assert_value(*state, "descent_requests_total{endpoint=\"/v1/completions\",code=\"0\"}", 1);
    assert_value(*state, "descent_requests_total{endpoint=\"other\",code=\"404\"}", 1);
    assert_value(*state, "descent_requests_total{endpoint=\"/v1/completions\",code=\"200\"}", 0);
    assert_value(*state, "descent_requests_rejected_total{reason=\"queue_full\"}", 1);
    assert_value(*state, "descent_requests_rejected_total{reason=\"invalid\"}", 2);
    assert_value(*state, "descent_requests_rejected_total{reason=\"loading\"}", 0);
    char *text = text_of(*state);
    assert_null(strstr(text, "wp-login")); /* what clients make up becomes no label */
    free(text);
}

static void generations_add_up(void **state)
{
    const descent_generation_report one = {
        .prompt_count = 10, .reused = 4, .generated = 7, .drafted = 6, .accepted = 5, .row_steps = 99, .queue_seconds = 0.25};
    const descent_generation_report two = {
        .prompt_count = 1, .generated = 3, .drafted = 2, .row_steps = 5000000000, .queue_seconds = 0.0005};
    metrics_count_generation(*state, &one);
    metrics_count_generation(*state, &two);
    assert_value(*state, "descent_prompt_tokens_total", 11);
    assert_value(*state, "descent_cached_tokens_total", 4);
    assert_value(*state, "descent_generated_tokens_total", 10);
    assert_value(*state, "descent_drafted_tokens_total", 8);
    assert_value(*state, "descent_accepted_tokens_total", 5);
    assert_value(*state, "descent_token_steps_total", 5000000099);
    assert_value(*state, "descent_queue_seconds_count", 2);
    assert_value(*state, "descent_queue_seconds_sum", 0.2505);
    assert_value(*state, "descent_queue_seconds_bucket{le=\"0.2\"}", 1);
    assert_value(*state, "descent_queue_seconds_bucket{le=\"0.5\"}", 2);
}

static void buckets_hold_their_upper_bound_and_accumulate(void **state)
{
    static const double steps[] = {1, 2, 3, 4, 4, 5, 1024, 1025, 65535};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) metrics_observe(*state, METRICS_REQUEST_STEPS, steps[i]);
    static const char *const bounds[] = {"1", "2", "4", "8", "16", "512", "1024", "+Inf"};
    static const double counts[] = {1, 2, 5, 6, 6, 6, 7, 9};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        char series[96];
        (void)snprintf(series, sizeof series, "descent_request_steps_bucket{le=\"%s\"}", bounds[i]);
        assert_value(*state, series, counts[i]);
    }
    assert_value(*state, "descent_request_steps_count", 9);
    assert_value(*state, "descent_request_steps_sum", 1 + 2 + 3 + 4 + 4 + 5 + 1024 + 1025 + 65535);
    metrics_observe(*state, METRICS_INTER_TOKEN_SECONDS, 0.001);
    metrics_observe(*state, METRICS_INTER_TOKEN_SECONDS, 0.0010001);
    metrics_observe(*state, METRICS_INTER_TOKEN_SECONDS, 101);
    assert_value(*state, "descent_inter_token_seconds_bucket{le=\"0.001\"}", 1);
    assert_value(*state, "descent_inter_token_seconds_bucket{le=\"0.002\"}", 2);
    assert_value(*state, "descent_inter_token_seconds_bucket{le=\"100\"}", 2);
    assert_value(*state, "descent_inter_token_seconds_bucket{le=\"+Inf\"}", 3);
}

static void schedulers_are_asked_and_added(void **state)
{
    descent_scheduler one = {.state = {.running = 3,
                                       .waiting = 1,
                                       .steps = 5,
                                       .row_steps = 1300,
                                       .pauses = 2,
                                       .steps_by_rows = {2, 0, 1, [10] = 0, [11] = 2},
                                       .rows_by_step = {700, 200, [3] = 400},
                                       .steps_sum = 4100,
                                       .cache = {.bytes = 1000, .byte_limit = 5000}}};
    descent_scheduler two = {.state = {.running = 1,
                                       .steps = 1,
                                       .row_steps = 2,
                                       .steps_by_rows = {0, 1},
                                       .rows_by_step = {1, [11] = 1},
                                       .steps_sum = 2001,
                                       .cache = {.bytes = 24, .byte_limit = 6000}}};
    served_model items[2] = {{.scheduler = &one}, {.scheduler = &two}};
    const model_set models = {items, 2};
    metrics_set_models(*state, &models);
    assert_value(*state, "descent_requests_running", 4);
    assert_value(*state, "descent_requests_waiting", 1);
    assert_value(*state, "descent_preemptions_total", 2);
    assert_value(*state, "descent_cache_bytes", 1024);
    assert_value(*state, "descent_cache_limit_bytes", 11000);
    assert_value(*state, "descent_batch_rows_bucket{le=\"1\"}", 2);
    assert_value(*state, "descent_batch_rows_bucket{le=\"2\"}", 3);
    assert_value(*state, "descent_batch_rows_bucket{le=\"4\"}", 4);
    assert_value(*state, "descent_batch_rows_bucket{le=\"1024\"}", 4);
    assert_value(*state, "descent_batch_rows_count", 6);
    assert_value(*state, "descent_batch_rows_sum", 1302);
    assert_value(*state, "descent_row_step_bucket{le=\"1\"}", 701);
    assert_value(*state, "descent_row_step_bucket{le=\"4\"}", 901);
    assert_value(*state, "descent_row_step_bucket{le=\"8\"}", 1301);
    assert_value(*state, "descent_row_step_bucket{le=\"1024\"}", 1301);
    assert_value(*state, "descent_row_step_bucket{le=\"+Inf\"}", 1302);
    assert_value(*state, "descent_row_step_sum", 6101);
}

static void labels_are_escaped(void **state)
{
    (void)state;
    static const char *const odd[] = {"say \"a\\b\"\nc", NULL};
    metrics *m = metrics_create(odd);
    assert_non_null(m);
    assert_value(m, "descent_requests_total{endpoint=\"say \\\"a\\\\b\\\"\\nc\",code=\"200\"}", 0);
    metrics_destroy(m);
}

static void numbers_of_the_process_are_true(void **state)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_value(*state, "process_max_fds", (double)limit.rlim_cur);
    double files = value_of(*state, "process_open_fds");
    int more = open("/dev/null", O_RDONLY);
    assert_true(more >= 0);
    assert_value(*state, "process_open_fds", files + 1);
    (void)close(more);
    assert_value(*state, "process_open_fds", files);

    double cpu = value_of(*state, "process_cpu_seconds_total");
    struct rusage used;
    do assert_int_equal(getrusage(RUSAGE_SELF, &used), 0);
    while ((double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
               1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) <
           cpu + 0.05);
    double later = value_of(*state, "process_cpu_seconds_total");
    assert_true(later > cpu && later < cpu + 1);

    enum { MORE = 64 << 20 };
    double resident = value_of(*state, "process_resident_memory_bytes");
    unsigned char *memory = malloc(MORE);
    assert_non_null(memory);
    for (size_t i = 0; i < MORE; i += 4096) ((volatile unsigned char *)memory)[i] = 1;
    assert_true(value_of(*state, "process_resident_memory_bytes") > resident + MORE / 2);
    free(memory);

    double started = value_of(*state, "process_start_time_seconds"), now = (double)time(NULL);
    assert_true(started > now - 600 && started <= now + 1);
}

static void a_process_without_descriptors_still_answers(void **state)
{
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    double files = value_of(*state, "process_open_fds");
    int next = dup(0);
    (void)close(next);
    few = before;
    few.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(dup(0), -1);
    assert_int_equal(errno, EMFILE);
    assert_value(*state, "process_open_fds", files);
    assert_value(*state, "process_max_fds", next);
    assert_true(value_of(*state, "process_resident_memory_bytes") > 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_name_is_there_at_zero, set_up, take_down),
        cmocka_unit_test_setup_teardown(each_family_is_described_once_and_then_listed, set_up, take_down),
        cmocka_unit_test_setup_teardown(requests_count_by_endpoint_and_code, set_up, take_down),
        cmocka_unit_test_setup_teardown(generations_add_up, set_up, take_down),
        cmocka_unit_test_setup_teardown(buckets_hold_their_upper_bound_and_accumulate, set_up, take_down),
        cmocka_unit_test_setup_teardown(schedulers_are_asked_and_added, set_up, take_down),
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test_setup_teardown(numbers_of_the_process_are_true, set_up, take_down),
        cmocka_unit_test_setup_teardown(a_process_without_descriptors_still_answers, set_up, take_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
