/* answer_states.c: /v1/descent/states: the states of one text as a safetensors file (states.h), whose metadata says of what:
 * "format" descent.states, the request's id, "model" as requested, "system_fingerprint", "steps", "start", "tokens" (ids with
 * commas between), "descent_steps" that were run, and "stop" time where the request's time was over before all was there. */
#include "answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void answer_states(job_text *t)
{
    const job *j = t->job;
    const generation_request *r = &j->request;
    const prompt *p = &r->prompts[t->prompt];
    char depth[16], steps[24], id[16];
    json_text tokens = {.text = NULL};
    for (size_t i = 0; i < p->count; i++) {
        (void)snprintf(id, sizeof id, i > 0 ? ",%u" : "%u", p->tokens[i]);
        json_text_put(&tokens, id);
    }
    json_text_bytes(&tokens, "", 1);
    (void)snprintf(steps, sizeof steps, "%" PRIu64, t->report.row_steps);
    bool late = t->report.end == DESCENT_END_CANCELLED;
    const char *metadata[] = {"format",
                              "descent.states",
                              "id",
                              j->id,
                              "model",
                              r->model_name,
                              "system_fingerprint",
                              r->model->fingerprint,
                              "steps",
                              descent_depth_format(r->model->model, r->depth, depth),
                              "start",
                              r->states->start,
                              "descent_steps",
                              steps,
                              "tokens",
                              tokens.text,
                              late ? "stop" : NULL,
                              "time",
                              NULL};
    t->written.failed |= tokens.failed;
    if (!tokens.failed) states_write(t->states, &t->written, metadata);
    json_text_release(&tokens);
}
