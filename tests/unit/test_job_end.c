/* test_job_end.c: a job whose last text ends while the loop takes what there is of it: the scheduler's thread lists the job
 * again after its turn has begun, so it is over, and listed, when the turn ends. It must stay until its next turn. The linker
 * puts the functions below in place of those the server calls (--wrap), and they make that order certain: the text's end waits
 * until the loop has come to take, and the taking waits for the end. One client, one model, the whole server but its signals.
 */
#include "served.h"
#include "service.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "job.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_SECONDS = 60, ANSWER_SIZE = 1 << 16 };

/* ---- The order of things ----------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool taking, ended; /* under the lock */
static size_t listed_again, closed_listed;

static void say(bool *what)
{
    (void)pthread_mutex_lock(&lock);
    *what = true;
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&lock);
}

static void wait_for(const bool *what)
{
    struct timespec end;
    (void)clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_SECONDS;
    (void)pthread_mutex_lock(&lock);
    while (!*what)
        if (pthread_cond_timedwait(&changed, &lock, &end) != 0) {
            (void)fprintf(stderr, "nothing came in %d s\n", PATIENCE_SECONDS);
            exit(1);
        }
    (void)pthread_mutex_unlock(&lock);
}

void __real_transcript_ended(void *user, const descent_generation_report *report);
bool __real_transcript_take(transcript *t, record *into);
void __real_job_queue_leave(job_queue *q, job *j);
void __wrap_transcript_ended(void *user, const descent_generation_report *report);
bool __wrap_transcript_take(transcript *t, record *into);
void __wrap_job_queue_leave(job_queue *q, job *j);

/* On the scheduler's thread; the first token has listed the job. */
void __wrap_transcript_ended(void *user, const descent_generation_report *report)
{
    wait_for(&taking);
    __real_transcript_ended(user, report);
    say(&ended);
}

/* In the job's turn. */
bool __wrap_transcript_take(transcript *t, record *into)
{
    const job *j = t->options.user;
    say(&taking);
    wait_for(&ended);
    listed_again += job_queue_lists(j->service->ready, j);
    return __real_transcript_take(t, into);
}

/* The last that is done with a job in the queue. */
void __wrap_job_queue_leave(job_queue *q, job *j)
{
    closed_listed += job_queue_lists(q, j);
    __real_job_queue_leave(q, j);
}

/* ---- A server and its client ------------------------------------------------------------------------------------- */

typedef struct visit {
    uint16_t port;
    uv_async_t *over;
    char answer[ANSWER_SIZE];
} visit;

/* Asks for a stream and reads it to its end. */
static void *ask(void *user)
{
    static const char body[] =
        "{\"model\": \"chars\", \"prompt\": \"ab\", \"max_tokens\": 4, \"ignore_eos\": true, \"stream\": true}";
    visit *v = user;
    char request[512];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(v->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int bytes = snprintf(request, sizeof request,
                         "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                         sizeof body - 1, body);
    size_t got = 0;
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 && send(fd, request, (size_t)bytes, 0) == bytes)
        for (ssize_t more; got < ANSWER_SIZE - 1 && (more = recv(fd, v->answer + got, ANSWER_SIZE - 1 - got, 0)) > 0;)
            got += (size_t)more;
    (void)close(fd);
    (void)uv_async_send(v->over);
    return NULL;
}

typedef struct server {
    uv_loop_t loop;
    uv_async_t over;
    service service;
    http_server *http;
} server;

static void on_closed(void *user)
{
    server *s = user;
    jobs_close(&s->service);
    uv_close((uv_handle_t *)&s->over, NULL);
}

static void on_over(uv_async_t *over)
{
    server *s = over->data;
    http_close(s->http, on_closed, s);
}

static void a_job_is_not_freed_while_it_is_listed(void **state)
{
    (void)state;
    static visit v;
    char message[HTTP_MESSAGE_SIZE];
    descent_status status;
    pthread_t client;
    server s = {0};
    model_set models = served_open();
    served_model *chars = served_find(&models, "chars");
    const service_options options = {
        .limits = request_limits_defaults(), .max_body = 1 << 20, .max_queue = 8, .request_seconds = 600, .stall_seconds = 30};
    s.service = (service){.loop = &s.loop, .options = &options, .state = SERVICE_READY};
    s.service.access = access_create(&(access_options){.loopback = true}, message);
    s.service.metrics = metrics_create(service_endpoints);
    (void)uv_loop_init(&s.loop);
    (void)uv_async_init(&s.loop, &s.over, on_over);
    s.over.data = &s;
    assert_int_equal(jobs_open(&s.service), 0);
    descent_scheduler_options scheduler = {.threads = 1, .notify = job_queue_wake, .notify_user = s.service.ready};
    assert_int_equal(descent_scheduler_create(chars->model, &scheduler, &chars->scheduler, &status), DESCENT_OK);
    s.service.models = models;
    http_options http = http_options_defaults();
    http.port = 0;
    http_handler handler = service_handler(&s.service);
    assert_int_equal(http_listen(&s.loop, &http, &handler, &s.http, message), 0);

    v.port = http_port(s.http);
    v.over = &s.over;
    assert_int_equal(pthread_create(&client, NULL, ask, &v), 0);
    (void)uv_run(&s.loop, UV_RUN_DEFAULT);
    (void)pthread_join(client, NULL);
    assert_int_equal(uv_loop_close(&s.loop), 0);
    assert_true(service_idle(&s.service) && !s.service.jobs);
    descent_scheduler_destroy(chars->scheduler);
    access_destroy(s.service.access);
    metrics_destroy(s.service.metrics);
    json_text_release(&s.service.spare);
    served_close(&models);

    assert_non_null(strstr(v.answer, "\"finish_reason\":\"length\""));
    assert_non_null(strstr(v.answer, "data: [DONE]\n\n"));
    assert_int_equal(listed_again, 1);
    assert_int_equal(closed_listed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_job_is_not_freed_while_it_is_listed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
