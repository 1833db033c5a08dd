/* bench_machine.c: see bench_machine.h: the loops on all threads, timed. */
#include "bench_machine.h"

#include "terminal.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 6, GRAIN = 512 };

static double time_products(int threads, void (*loop)(uint64_t rounds), uint64_t rounds)
{
    double begun = seconds_now();
#pragma omp parallel num_threads(threads)
    loop(rounds);
    return seconds_now() - begun;
}

/* So many rounds that they are long enough twice in a row: whatever else the machine does makes one look long. */
static double product_peak(const machine *m, void (*loop)(uint64_t rounds), uint64_t per_round)
{
    uint64_t rounds = 1024;
    double best = 0;
    while (time_products(m->threads, loop, rounds) < m->seconds / TRIES ||
           time_products(m->threads, loop, rounds) < m->seconds / TRIES)
        rounds *= 2;
    for (int i = 0; i < TRIES; i++) {
        double rate = (double)rounds * (double)per_round * m->threads / time_products(m->threads, loop, rounds);
        if (rate > best) best = rate;
    }
    return best;
}

static double time_reading(const machine *m, size_t grains, uint64_t rounds)
{
    void (*read)(const unsigned char *, size_t) = machine_loops_get()->read;
    double begun = seconds_now();
#pragma omp parallel num_threads(m->threads)
    {
        size_t i = (size_t)omp_get_thread_num(), n = (size_t)omp_get_num_threads();
        size_t first = grains * i / n, last = grains * (i + 1) / n;
        for (uint64_t k = 0; k < rounds; k++) read(m->buffer + first * GRAIN, (last - first) * GRAIN);
    }
    return seconds_now() - begun;
}

bool machine_open(machine *m, int threads, double seconds, size_t largest)
{
    const machine_loops *loops = machine_loops_get();
    *m = (machine){.threads = threads, .seconds = seconds, .room = largest / GRAIN * GRAIN + GRAIN};
    void *buffer;
    if (posix_memalign(&buffer, 4096, m->room) != 0) return false;
    memset(buffer, 1, m->room);
    m->buffer = buffer;
    m->int8 = product_peak(m, loops->int8, loops->int8_per_round);
    m->f32 = product_peak(m, loops->f32, loops->f32_per_round);
    return true;
}

void machine_close(machine *m)
{
    free(m->buffer);
    *m = (machine){.threads = 0};
}

double machine_bandwidth(machine *m, size_t bytes)
{
    size_t grains = bytes / GRAIN + 1;
    if (grains * GRAIN > m->room) grains = m->room / GRAIN;
    bytes = grains * GRAIN;
    for (size_t i = 0; i < m->n_sets; i++)
        if (m->sets[i].bytes == bytes) return m->sets[i].rate;
    uint64_t rounds = 1;
    double best = 0;
    while (time_reading(m, grains, rounds) < m->seconds / TRIES || time_reading(m, grains, rounds) < m->seconds / TRIES)
        rounds *= 2;
    for (int i = 0; i < TRIES; i++) {
        double rate = (double)bytes * (double)rounds / time_reading(m, grains, rounds);
        if (rate > best) best = rate;
    }
    if (m->n_sets < MACHINE_SETS) {
        m->sets[m->n_sets].bytes = bytes;
        m->sets[m->n_sets++].rate = best;
    }
    return best;
}
