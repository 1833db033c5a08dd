/* metrics.h: counters, gauges and histograms, and their text in Prometheus' format. Names are a contract (docs/serving.md); all
 * are there at 0 from the start. Loop thread only: what schedulers know is asked of them when the text is made. */
#ifndef DESCENT_SERVER_METRICS_H
#define DESCENT_SERVER_METRICS_H

#include "models.h"

typedef struct metrics metrics;

/* What is observed, and when. descent_queue_seconds, descent_batch_rows and descent_row_step are kept without
 * being asked. */
typedef enum metrics_histogram {
    METRICS_QUEUE_SECONDS,               /* by metrics_count_generation */
    METRICS_TIME_TO_FIRST_TOKEN_SECONDS, /* a generating request: from its arrival to the first token chosen for it */
    METRICS_INTER_TOKEN_SECONDS,         /* between two tokens chosen for one generation */
    METRICS_REQUEST_SECONDS,             /* every request, from its arrival to the end of its answer */
    METRICS_REQUEST_STEPS,               /* a generating request that was accepted: its T, the larger of two; 0 without any */
    METRICS_HISTOGRAMS
} metrics_histogram;

typedef enum metrics_rejection {
    METRICS_QUEUE_FULL,
    METRICS_UNAUTHORIZED,
    METRICS_TOO_LARGE,
    METRICS_DRAINING,
    METRICS_LOADING,
    METRICS_INVALID,
    METRICS_REJECTIONS
} metrics_rejection;

/* `endpoints` (NULL-terminated, literals) are the only values of the label; any other path counts as "other". */
metrics *metrics_create(const char *const *endpoints);
void metrics_destroy(metrics *m);
/* The models whose schedulers are asked; before this call there are none. */
void metrics_set_models(metrics *m, const model_set *models);

/* Once a request, at its end. status 0: the client left before an answer. */
void metrics_count_request(metrics *m, const char *endpoint, unsigned status);
void metrics_count_rejection(metrics *m, metrics_rejection reason);
/* A generation has ended, on whichever model: tokens, token-steps and descent_queue_seconds. Once each. */
void metrics_count_generation(metrics *m, const descent_generation_report *report);
void metrics_observe(metrics *m, metrics_histogram which, double value);

/* The whole text, allocated; released with free. *bytes without the NUL. NULL without memory. */
char *metrics_text(const metrics *m, size_t *bytes);

#endif
