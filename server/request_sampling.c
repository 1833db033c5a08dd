/* request_sampling.c: how tokens are chosen: the fields of descent_sampling under OpenAI's names, with the ranges that requests
 * may use. Within them descent_sampling_check finds nothing to refuse. */
#include "request_parts.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

float request_positive(double value)
{
    return value < (double)FLT_MIN ? FLT_MIN : (float)value;
}

/* A token's id as a JSON key spells it: digits without a leading zero. */
static bool read_id(const char *key, uint32_t vocab, uint32_t *id)
{
    uint64_t value = 0;
    if (key[0] == '\0' || (key[0] == '0' && key[1] != '\0')) return false;
    for (const char *c = key; *c; c++) {
        if (*c < '0' || *c > '9') return false;
        value = value * 10 + (uint64_t)(*c - '0');
        if (value >= vocab) return false;
    }
    *id = (uint32_t)value;
    return true;
}

static void read_bias(const request_reader *r)
{
    fields f = fields_object(&r->top, "logit_bias", "logit_bias");
    size_t count = json_object_size(f.object), i = 0;
    uint32_t vocab = r->out->model->info->vocab;
    const char *key;
    json_t *value;
    if (count == 0 || !fields_ok(&f)) return;
    if (count > r->limits->logit_bias) {
        (void)fields_fail(&r->top, "logit_bias", NULL, "has %zu entries: expected at most %u", count,
                          (unsigned)r->limits->logit_bias);
        return;
    }
    descent_logit_bias *bias = malloc(count * sizeof *bias);
    if (!bias) {
        request_no_memory(r);
        return;
    }
    r->out->sampling.bias = bias;
    json_object_foreach(f.object, key, value)
    {
        if (!read_id(key, vocab, &bias[i].token)) {
            (void)fields_fail(&r->top, "logit_bias", NULL, "has a key that is no token: expected the ids 0 to %u as strings",
                              vocab - 1);
            return;
        }
        if (json_is_null(value)) continue;
        bias[i++].bias = (float)fields_real(&f, key, -100, 100, false, 0);
        if (!fields_ok(&f)) return;
    }
    r->out->sampling.n_bias = i;
}

void request_read_sampling(const request_reader *r, int64_t seed)
{
    const fields *f = &r->top;
    descent_sampling *s = &r->out->sampling;
    s->temperature = (float)fields_real(f, "temperature", 0, 100, false, 1);
    s->top_p = request_positive(fields_real(f, "top_p", 0, 1, true, 1));
    s->top_k = (int32_t)fields_integer(f, "top_k", -1, INT32_MAX, 0);
    s->min_p = (float)fields_real(f, "min_p", 0, 1, false, 0);
    s->typical_p = request_positive(fields_real(f, "typical_p", 0, 1, true, 1));
    s->repetition_penalty = request_positive(fields_real(f, "repetition_penalty", 0, 100, true, 1));
    s->presence_penalty = (float)fields_real(f, "presence_penalty", -2, 2, false, 0);
    s->frequency_penalty = (float)fields_real(f, "frequency_penalty", -2, 2, false, 0);
    s->ignore_eos = fields_bool(f, "ignore_eos", false);
    s->min_tokens = (uint32_t)fields_integer(f, "min_tokens", 0, INT32_MAX, 0);
    s->seed = fields_integer(f, "seed", INT64_MIN, INT64_MAX, seed);
    read_bias(r);
}
