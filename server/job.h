/* job.h: a generating request between its admission and its answer. Loop thread only, but for the writing of long
 * answers; what schedulers' threads write is in each text's transcript.
 *
 *     endpoint -> request_read -> job: one text per prompt and choice, submitted -> transcripts fill -> drained in its turn
 *              -> streams: chunks as they come (answer.c); others: one answer when the last text has ended
 *
 * A job is over when all its generations have ended: then it answers, or has answered, and is freed. Whoever leaves earlier is
 * not waited for, but its generations are.
 */
#ifndef DESCENT_SERVER_JOB_H
#define DESCENT_SERVER_JOB_H

#include "job_queue.h"
#include "service.h"
#include "transcript.h"

enum { JOB_ID_SIZE = 40 };

typedef struct job_text {
    job *job;
    uint32_t prompt, choice;
    uint32_t index; /* of its choice in the answer; UINT32_MAX: not among the best */
    transcript transcript;
    tracer_options trace;
    states_record *states; /* gathered; NULL: none are asked for */
    bool opened, submitted;
    descent_generation *generation;
    record record;      /* of a stream: what is about to be sent; else, at the end, everything, until it is written */
    json_text written;  /* its choice in a whole answer, or a stream's next chunks */
    uv_work_t writing;  /* of that, where it is long */
    double mean;        /* once ended: logprob of its tokens, where texts are ranked by it */
    uint64_t last_time; /* of the last token chosen that was counted */
    bool ended;
    bool finished;                    /* of a stream: its final chunk is written */
    descent_generation_report report; /* once ended */
} job_text;

struct job {
    service *service;
    exchange *exchange;
    generation_request request;
    char id[JOB_ID_SIZE];
    time_t created;
    uint64_t arrived;      /* http_arrived of its request */
    job_text *texts;       /* [n_texts], by prompt, then choice */
    candidate *candidates; /* [n_texts] likewise; NULL: no choosing */
    size_t n_texts, n_submitted, n_ended;
    size_t n_finished; /* of a stream: texts whose final chunk is written */
    size_t n_writing;  /* texts being written on another thread; of a stream one at most, and nothing is taken meanwhile */
    bool ranked;       /* best_of, candidates: the best are chosen */
    uint32_t choices;  /* texts of a prompt */
    bool first_token;  /* its time was counted */
    bool streaming;    /* the status went out, and chunks */
    bool gone;         /* the client: nobody is to be answered */
    bool answered;     /* before its generations ended */
    bool late;         /* its time is over */
    api_error error;   /* .status 0: none */
    json_text head;    /* a stream's chunk up to its choices */
    json_text out;
    uv_timer_t timer;     /* the request's time */
    job *next, *previous; /* of all jobs */
    job_place place;      /* job_queue.c's */
};

#endif
