/* test_log.c: a line a request, as JSON that a parser of others reads, or for people; bounded, printable, whole lines whatever
 * threads write, whatever clients send.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "log.h"

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Standard error goes into a file while `work` runs; what it wrote is returned, to be freed. */
static char *logged(void (*work)(void *argument), void *argument)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    (void)fflush(stderr);
    int before = dup(STDERR_FILENO);
    assert_true(before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    work(argument);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    (void)close(before);
    off_t bytes = lseek(fileno(file), 0, SEEK_END);
    char *text = calloc((size_t)bytes + 1, 1);
    assert_non_null(text);
    assert_int_equal(pread(fileno(file), text, (size_t)bytes, 0), bytes);
    (void)fclose(file);
    return text;
}

/* A pipe nobody reads is full after a while: a line more waits for nobody. */
static void a_reader_that_does_not_read_holds_nobody_up(void **state)
{
    (void)state;
    static char text[4096];
    int ends[2], before = dup(STDERR_FILENO);
    assert_true(before >= 0 && pipe(ends) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    while (write(ends[1], text, sizeof text) > 0) {
    }
    assert_true(fcntl(ends[1], F_SETFL, 0) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    (void)alarm(20);
    log_line(LOG_INFO, "lost");
    (void)alarm(0);
    assert_true(read(ends[0], text, sizeof text) == sizeof text);
    log_line(LOG_INFO, "kept");
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    (void)close(ends[1]);
    (void)close(before);
    size_t last = 0;
    for (ssize_t got; (got = read(ends[0], text, sizeof text)) > 0;) last = (size_t)got;
    (void)close(ends[0]);
    assert_true(last > 10 && !memcmp(text + last - 7, "kept\"}\n", 7));
}

static void write_request(void *request)
{
    log_request_line(request);
}

/* The one line that was written, read back. */
static json_t *one_object(void (*work)(void *), void *argument)
{
    log_set_format(LOG_JSON);
    char *text = logged(work, argument);
    char *end = strchr(text, '\n');
    assert_non_null(end);
    assert_int_equal(end[1], '\0');
    json_error_t error;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!object) fail_msg("%s: %s", error.text, text);
    free(text);
    return object;
}

static const char *string_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "(none)";
}

static const log_request whole = {.id = "req-1",
                                  .method = "POST",
                                  .path = "/v1/completions",
                                  .peer = "127.0.0.1",
                                  .status = 200,
                                  .seconds = 1.5,
                                  .queue_seconds = 0.25,
                                  .compute_seconds = 1.125,
                                  .model = "m@12",
                                  .steps = "12",
                                  .prompt_tokens = 10,
                                  .cached_tokens = 8,
                                  .generated_tokens = 16,
                                  .token_steps = 5000000000,
                                  .sequences = 2,
                                  .finish = "length"};

static void a_request_is_one_object(void **state)
{
    (void)state;
    log_request request = whole;
    time_t before = time(NULL);
    json_t *o = one_object(write_request, &request);
    struct tm utc = {0};
    const char *rest = strptime(string_of(o, "time"), "%Y-%m-%dT%H:%M:%S", &utc);
    assert_non_null(rest);
    assert_true(rest[0] == '.' && rest[4] == 'Z' && rest[5] == '\0');
    assert_true(timegm(&utc) >= before && timegm(&utc) <= time(NULL));
    assert_string_equal(string_of(o, "level"), "info");
    assert_string_equal(string_of(o, "id"), "req-1");
    assert_string_equal(string_of(o, "method"), "POST");
    assert_string_equal(string_of(o, "path"), "/v1/completions");
    assert_string_equal(string_of(o, "peer"), "127.0.0.1");
    assert_string_equal(string_of(o, "model"), "m@12");
    assert_string_equal(string_of(o, "steps"), "12");
    assert_string_equal(string_of(o, "finish"), "length");
    static const struct {
        const char *key;
        int64_t value;
    } integers[] = {{"status", 200},      {"sequences", 2},         {"prompt_tokens", 10},
                    {"cached_tokens", 8}, {"generated_tokens", 16}, {"token_steps", 5000000000}};
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++)
        assert_int_equal(json_integer_value(json_object_get(o, integers[i].key)), integers[i].value);
    static const struct {
        const char *key;
        double value;
    } reals[] = {{"seconds", 1.5}, {"queue_seconds", 0.25}, {"compute_seconds", 1.125}};
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        assert_true(json_real_value(json_object_get(o, reals[i].key)) == reals[i].value);
    assert_int_equal(json_object_size(o), 18);
    json_decref(o);
}

static void what_is_not_known_is_left_out(void **state)
{
    (void)state;
    log_request request = {.id = "a",
                           .method = "GET",
                           .path = "/health",
                           .peer = "::1",
                           .status = 503,
                           .seconds = 0.5,
                           .error = "no step was made for 31 s"};
    json_t *o = one_object(write_request, &request);
    assert_int_equal(json_object_size(o), 9); /* time, level, id, method, path, peer, status, seconds, error */
    assert_string_equal(string_of(o, "level"), "warning");
    assert_string_equal(string_of(o, "error"), "no step was made for 31 s");
    json_decref(o);
}

static void a_fault_of_the_servers_is_an_error(void **state)
{
    (void)state;
    log_request request = whole;
    request.status = 500;
    json_t *o = one_object(write_request, &request);
    assert_string_equal(string_of(o, "level"), "error");
    json_decref(o);
}

static void an_unknown_field_is_named_once(void **state)
{
    (void)state;
    log_request request = whole;
    request.ignored = "frobnicate";
    json_t *first = one_object(write_request, &request), *second = one_object(write_request, &request);
    assert_string_equal(string_of(first, "ignored"), "frobnicate");
    assert_null(json_object_get(second, "ignored"));
    json_decref(first);
    json_decref(second);
}

/* Names without end: those of the first 256 fields are told, the others not. */
static void made_up_fields_do_not_fill_the_log(void **state)
{
    (void)state;
    int named = 0;
    for (int i = 0; i < 400; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "field%d", i);
        log_request request = whole;
        request.ignored = name;
        json_t *o = one_object(write_request, &request);
        named += json_object_get(o, "ignored") != NULL;
        json_decref(o);
    }
    assert_in_range(named, 200, 256);
}

static void hostile_texts_stay_one_bounded_line(void **state)
{
    (void)state;
    static char filler[5][3000];
    static const char *const patterns[] = {"\"", "\\", "\n", "\x1b[31m\xff\"", "\xe2\x82\xac\x01"};
    for (size_t i = 0; i < 5; i++)
        for (size_t n = 0; n + strlen(patterns[i]) < sizeof filler[i]; n += strlen(patterns[i]))
            memcpy(filler[i] + n, patterns[i], strlen(patterns[i]) + 1);
    for (size_t i = 0; i < 5; i++) {
        log_request request = {.id = filler[i],
                               .method = filler[i],
                               .path = filler[i],
                               .peer = filler[i],
                               .status = 400,
                               .model = filler[i],
                               .steps = filler[i],
                               .finish = filler[i],
                               .ignored = filler[i],
                               .error = filler[i],
                               .seconds = 1e9,
                               .prompt_tokens = INT64_MAX,
                               .cached_tokens = INT64_MAX,
                               .generated_tokens = INT64_MAX,
                               .token_steps = INT64_MAX,
                               .sequences = UINT32_MAX};
        json_decref(one_object(write_request, &request));
        log_set_format(LOG_TEXT);
        char *text = logged(write_request, &request);
        size_t bytes = strlen(text);
        assert_true(bytes <= PIPE_BUF);
        assert_ptr_equal(strchr(text, '\n'), text + bytes - 1);
        for (size_t c = 0; c + 1 < bytes; c++) assert_true((unsigned char)text[c] >= 0x20 && text[c] != 0x7f);
        free(text);
        log_set_format(LOG_JSON);
        text = logged(write_request, &request);
        assert_true(strlen(text) <= PIPE_BUF);
        free(text);
    }
}

static void say(void *text)
{
    log_line(LOG_WARNING, "loading %s", (const char *)text);
}

static void lines_of_the_servers_own(void **state)
{
    (void)state;
    json_t *o = one_object(say, "a \"model\"\nof two lines\x1b");
    assert_int_equal(json_object_size(o), 3);
    assert_string_equal(string_of(o, "level"), "warning");
    assert_string_equal(string_of(o, "message"), "loading a \"model\"\\x0aof two lines\\x1b");
    json_decref(o);
    log_set_format(LOG_TEXT);
    char *text = logged(say, "x");
    assert_non_null(strstr(text, "Z warning loading x\n"));
    free(text);
}

static void text_is_for_people(void **state)
{
    (void)state;
    log_set_format(LOG_TEXT);
    log_request request = whole;
    char *text = logged(write_request, &request);
    const char *line = strstr(text, "POST");
    assert_non_null(line);
    assert_string_equal(line,
                        "POST /v1/completions 200 1.500 s, m@12 T 12: 10 prompt tokens (8 cached), 16 generated, "
                        "5000000000 token-steps, 2 sequences, queued 0.250 s, computed 1.125 s, length | 127.0.0.1 req-1\n");
    free(text);
}

enum { THREADS = 4, LINES = 200 };

static void *write_many(void *argument)
{
    for (int i = 0; i < LINES; i++) log_line(LOG_INFO, "%s", (const char *)argument);
    return NULL;
}

static void write_from_threads(void *argument)
{
    char(*texts)[600] = argument;
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, write_many, texts[i]), 0);
    for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void lines_of_threads_stay_whole(void **state)
{
    (void)state;
    log_set_format(LOG_JSON);
    static char texts[THREADS][600];
    for (int i = 0; i < THREADS; i++) memset(texts[i], 'a' + i, sizeof texts[i] - 1);
    int seen[THREADS] = {0};
    char *all = logged(write_from_threads, texts);
    for (char *line = strtok(all, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *o = json_loads(line, 0, NULL);
        assert_non_null(o);
        int i = string_of(o, "message")[0] - 'a';
        assert_in_range(i, 0, THREADS - 1);
        assert_string_equal(string_of(o, "message"), texts[i]);
        seen[i]++;
        json_decref(o);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(seen[i], LINES);
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_one_object),
        cmocka_unit_test(what_is_not_known_is_left_out),
        cmocka_unit_test(a_fault_of_the_servers_is_an_error),
        cmocka_unit_test(an_unknown_field_is_named_once),
        cmocka_unit_test(hostile_texts_stay_one_bounded_line),
        cmocka_unit_test(lines_of_the_servers_own),
        cmocka_unit_test(text_is_for_people),
        cmocka_unit_test(lines_of_threads_stay_whole),
        cmocka_unit_test(a_reader_that_does_not_read_holds_nobody_up),
        cmocka_unit_test(made_up_fields_do_not_fill_the_log), /* last: there is room for no other name after it */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
