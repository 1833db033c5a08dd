/* bench_load.c: see bench_load.h: which text comes when, and samples of times. */
#include "bench_load.h"

#include <math.h>
#include <stdlib.h>

/* SplitMix64: a well-mixed number for every number. */
static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void load_text(const load *l, size_t stream, size_t generation, uint32_t *prompt, const asked_depth **depth, int64_t *seed)
{
    const load_shape *shape = l->shape;
    uint64_t key = mixed(mixed(mixed(l->number) + stream) + generation);
    uint32_t vocab = descent_model_describe(shape->model)->vocab;
    for (size_t i = 0; i < shape->prompt_tokens; i++) prompt[i] = (uint32_t)(mixed(key + i) % vocab);
    *depth = &shape->depths[(stream + generation) % shape->n_depths];
    *seed = (int64_t)(key >> 1);
}

void load_samples_add(load_samples *samples, double value)
{
    if (samples->count == samples->room) {
        size_t room = samples->room ? 2 * samples->room : 1024;
        double *values = realloc(samples->values, room * sizeof *values);
        if (!values) {
            samples->failed = true;
            return;
        }
        samples->values = values;
        samples->room = room;
    }
    samples->values[samples->count++] = value;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double load_samples_at(load_samples *samples, double share)
{
    if (!samples->count || samples->failed) return (double)NAN;
    qsort(samples->values, samples->count, sizeof *samples->values, ascending);
    double rank = ceil(share * (double)samples->count);
    return samples->values[rank < 1 ? 0 : (size_t)rank - 1];
}

void load_samples_release(load_samples *samples)
{
    free(samples->values);
    *samples = (load_samples){0};
}

void load_result_release(load_result *result)
{
    load_samples_release(&result->first);
    load_samples_release(&result->between);
}
