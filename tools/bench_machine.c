/* bench_machine.c: see bench_machine.h: the loops on all threads, timed. */
#include "bench_machine.h"

#include "terminal.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 6, GRAIN = 512 };

static double time_products(int threads, void (*loop)(uint64_t rounds), uint64_t rounds)
{
    double begun = seconds_now();
#pragma omp parallel num_threads(threads)
    loop(rounds);
    return seconds_now() - begun;
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Rounds are so many that they take one thread its share of the time, by its own clock: on a busy machine any number of them
 * would look long enough. */
static double product_peak(const machine *m, void (*loop)(uint64_t rounds), uint64_t per_round)
{
    double best = 0, took = 0;
    uint64_t rounds = 512;
    while (took < m->seconds / TRIES) {
        double begun = cpu_seconds();
        rounds *= 2;
        loop(rounds);
        took = cpu_seconds() - begun;
    }
    for (int i = 0; i < TRIES; i++) {
        double rate = (double)rounds * (double)per_round * m->threads / time_products(m->threads, loop, rounds);
        if (rate > best) best = rate;
    }
    return best;
}

/* Thread i's part of so many grains. */
static void read_part(const machine *m, size_t grains, int i, uint64_t rounds)
{
    size_t k = (size_t)i, n = (size_t)m->threads, first = grains * k / n, last = grains * (k + 1) / n;
    for (uint64_t r = 0; r < rounds; r++) machine_loops_get()->read(m->buffer + first * GRAIN, (last - first) * GRAIN);
}

static double time_reading(const machine *m, size_t grains, uint64_t rounds)
{
    double begun = seconds_now();
#pragma omp parallel num_threads(m->threads)
    read_part(m, grains, omp_get_thread_num(), rounds);
    return seconds_now() - begun;
}

/* The number that the file of so many of a cache begins with; 0: none. `letter`: what stands behind the number, or at its
 * place. */
static unsigned long cache_number(int index, const char *name, char *letter)
{
    char path[96];
    unsigned long number = 0;
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    FILE *file = fopen(path, "r");
    *letter = '\0';
    if (!file) return 0;
    if (fscanf(file, "%lu", &number) != 1) number = 0;
    (void)fscanf(file, "%c", letter);
    (void)fclose(file);
    return number;
}

/* sysconf's third level may be that of all cores together. */
size_t machine_cache(int level)
{
    static const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
    char letter;
    for (int index = 0; cache_number(index, "level", &letter) > 0; index++) {
        if (cache_number(index, "level", &letter) != (unsigned long)level) continue;
        (void)cache_number(index, "type", &letter);
        if (letter == 'I') continue; /* of instructions */
        unsigned long size = cache_number(index, "size", &letter);
        if (size > 0) return letter == 'K' ? size << 10 : letter == 'M' ? size << 20 : size;
    }
    long bytes = sysconf(names[level - 1]);
    return bytes > 0 ? (size_t)bytes : 0;
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

static size_t grains_of(const machine *m, size_t bytes)
{
    size_t grains = bytes / GRAIN + 1;
    return grains * GRAIN > m->room ? m->room / GRAIN : grains;
}

double machine_read(const machine *m, size_t bytes, uint64_t rounds)
{
    return time_reading(m, grains_of(m, bytes), rounds);
}

double machine_bandwidth(machine *m, size_t bytes)
{
    size_t grains = grains_of(m, bytes);
    bytes = grains * GRAIN;
    for (size_t i = 0; i < m->n_sets; i++)
        if (m->sets[i].bytes == bytes) return m->sets[i].rate;
    double best = 0, took = 0;
    uint64_t rounds = 1;
    for (read_part(m, grains, 0, 1); took < m->seconds / TRIES / 2; rounds *= 2) {
        double begun = cpu_seconds();
        read_part(m, grains, 0, rounds);
        took = cpu_seconds() - begun;
    }
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
