/* service.h: what stands between HTTP and the models: the routes, who may use them, and one `exchange` a request. Loop thread
 * only, but for what job.c says of schedulers' threads.
 *
 *     http.c -> service.c: route, access (headers) -> an endpoint (complete) -> exchange_reply / exchange_fail / a stream
 *                                   job.c: generations in flight, their events, their answers
 */
#ifndef DESCENT_SERVER_SERVICE_H
#define DESCENT_SERVER_SERVICE_H

#include "access.h"
#include "http.h"
#include "json_text.h"
#include "log.h"
#include "metrics.h"
#include "request.h"

typedef enum service_state { SERVICE_LOADING, SERVICE_READY, SERVICE_DRAINING, SERVICE_REFUSING } service_state;

typedef struct service_options {
    request_limits limits;
    uint64_t max_body;      /* bytes: --max-body; what http_options has */
    uint32_t max_running;   /* of a scheduler: said in /props */
    uint32_t max_queue;     /* sequences waiting or running, all models together: 1,024 */
    double request_seconds; /* --request-time: the text ends there, finish_reason "length", descent.stop "time": 600 */
    double stream_seconds; /* --stream-interval: tokens of a stream that come faster go out together; 0: each by itself: 0.02 */
    double stall_seconds;  /* --stall: /health is 503 when rows are runnable and no step was made for so long: 30 */
    bool share_cache;      /* prefixes are shared between keys too */
} service_options;

typedef struct job job;
typedef struct scaling scaling;
typedef struct exchange exchange;

typedef struct service {
    uv_loop_t *loop;
    const service_options *options;
    service_state state;
    model_set models; /* empty while loading */
    access_rules *access;
    const http_budget *bodies; /* of every listener */
    metrics *metrics;
    time_t started;
    size_t sequences;        /* waiting or running, of all jobs and experiments */
    exchange *exchanges;     /* those in flight, linked */
    job *jobs;               /* in flight, linked; job.c's */
    json_text spare;         /* empty: memory that a job leaves to the next; job.c's */
    scaling *scalings;       /* in flight, linked; scaling.c's */
    struct job_queue *ready; /* those with something to take */
    void (*drained)(
        struct service *s); /* while refusing: the last exchange has ended; called from its end, so closes nothing */
} service;

/* One request from its headers to its end. It lives until its HTTP request is done and its reading and its job are over,
 * whichever is last: the generations of a client that left are counted in its line of the log like any other's. */
struct exchange {
    service *service;
    http_request *request;     /* NULL once it is done, while the job is still ending */
    const struct route *route; /* NULL: no such path */
    uint64_t key_group;        /* the number of the key it came with, 0 without keys: descent_generation_options.share_group */
    job *job;                  /* NULL: none, or over */
    scaling *scaling;          /* likewise: one of the two at most */
    bool reading;              /* its body is being read: reading.c */
    bool gone;                 /* the client has left */
    log_request log;           /* filled as things become known; its texts live here */
    char log_id[HTTP_ID_SIZE], log_method[16], log_path[256], log_peer[64]; /* service.c's */
    char log_steps[24], log_model[160], log_error[256], log_ignored[80];
    exchange *next, *previous;
};

/* False, and refused, where the server takes no new work any more: what took its time may find another state than it began in.
 */
bool exchange_may_begin(exchange *x);
/* Behind the end of its job or of its reading: frees the exchange where all is over, its request too. */
void exchange_settle(exchange *x);

/* Answers; the JSON is released here. Compact, UTF-8; NULL stands for memory that ran out: 500. */
void exchange_reply(exchange *x, unsigned status, json_t *body);
/* The same with a body that is JSON text already, copied: whole answers and their logprobs are written as text (answer.h). */
void exchange_reply_text(exchange *x, unsigned status, const char *body, size_t bytes);
void exchange_fail(exchange *x, const api_error *error);
/* Where the status has gone out: the error event, behind which the stream ends without [DONE]. */
void exchange_fail_stream(exchange *x, const api_error *error);

/* ---- Endpoints: called with the whole body, each answers or starts a job ------------------------------------------- */

typedef void (*endpoint)(exchange *x);

void endpoint_completions(exchange *x); /* job.c ... */
void endpoint_chat(exchange *x);
void endpoint_trace(exchange *x);
void endpoint_states(exchange *x);
void endpoint_scaling(exchange *x);  /* scaling.c */
void endpoint_tokenize(exchange *x); /* tokens.c */
void endpoint_detokenize(exchange *x);
void endpoint_tokenizer_info(exchange *x);
void endpoint_models(exchange *x); /* catalogue.c: /v1/models and /v1/models/{id}, /props */
void endpoint_props(exchange *x);
void endpoint_health(exchange *x); /* status.c */
void endpoint_ready(exchange *x);
void endpoint_metrics(exchange *x);
void endpoint_openapi(exchange *x);
void endpoint_page(exchange *x); /* page.c */

/* ---- job.c -------------------------------------------------------------------------------------------------------- */

/* The client left: its generations are cancelled. exchange.job stays until they have ended. */
void job_gone(job *j);
/* Ends every job of the service: streams get the error event and end without [DONE], the others a 503. At the end of a drain.
 */
void jobs_end_all(service *s);
/* Sets up and takes down `ready`. */
int jobs_open(service *s);
void jobs_close(service *s);

/* ---- scaling.c ---------------------------------------------------------------------------------------------------- */

/* As job_gone and jobs_end_all. */
void scaling_gone(scaling *s);
void scalings_end_all(service *s);

/* ---- service.c ---------------------------------------------------------------------------------------------------- */

/* The handler for http_listen; `user` is the service. `admin_only`: nothing but /health, /ready and /metrics is there. */
http_handler service_handler(service *s);
http_handler service_admin_handler(service *s);
extern const char *const service_endpoints[]; /* the label's values: metrics_create */
/* The 503 of a server whose models are not there yet. */
bool service_loading(api_error *error);
/* The model a request names ("x" or "x@12"); where it names none (NULL), the only one. False and an error otherwise. */
bool service_model(const service *s, const char *name, served_model **model, api_error *error);
/* Whether so many sequences have room in the queue: whole or not at all. False and a 400 where never, a 429 where not now. */
bool service_admit(const service *s, size_t sequences, api_error *error);
bool service_idle(const service *s); /* no exchange in flight */

#endif
