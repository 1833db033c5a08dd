/* status.c: the endpoints that say how the server is: alive, ready, its figures, and its interface. */
#include "service.h"

#include <stdlib.h>

extern const char openapi_text[]; /* server/openapi.json, made a C file by the build */
extern const size_t openapi_text_size;

void endpoint_health(exchange *x)
{
    const service *s = x->service;
    for (size_t i = 0; i < s->models.count; i++) {
        descent_scheduler_state state = descent_scheduler_describe(s->models.items[i].scheduler);
        if (state.seconds_since_step <= s->options->stall_seconds) continue;
        api_error error = {0};
        (void)api_fail(&error, 503, NULL, "stalled", "%s has work and made no step for %.3g s", s->models.items[i].id,
                       state.seconds_since_step);
        exchange_fail(x, &error);
        return;
    }
    static const char *const names[] = {[SERVICE_LOADING] = "loading",
                                        [SERVICE_READY] = "ok",
                                        [SERVICE_DRAINING] = "draining",
                                        [SERVICE_REFUSING] = "draining"};
    exchange_reply(x, 200, json_pack("{s:s}", "status", names[s->state]));
}

void endpoint_ready(exchange *x)
{
    api_error error = {0};
    switch (x->service->state) {
    case SERVICE_READY:
        exchange_reply(x, 200, json_pack("{s:s}", "status", "ready"));
        return;
    case SERVICE_LOADING:
        service_loading(&error);
        break;
    case SERVICE_DRAINING:
    case SERVICE_REFUSING:
        (void)api_fail(&error, 404, NULL, "draining", "the server is about to end: it takes no new work");
        break;
    }
    exchange_fail(x, &error);
}

void endpoint_metrics(exchange *x)
{
    size_t bytes;
    char *text = metrics_text(x->service->metrics, &bytes);
    if (text)
        http_reply(x->request, 200, "text/plain; version=0.0.4; charset=utf-8", text, bytes);
    else
        exchange_reply(x, 500, NULL);
    free(text);
}

void endpoint_openapi(exchange *x)
{
    http_reply(x->request, 200, "application/json", openapi_text, openapi_text_size);
}
