/* bench_machine.h: what the machine itself can do, measured by loops that do nothing else: the limits that a benchmark's
 * figures stand beside. The best of several short runs counts, since it is a limit that is looked for.
 */
#ifndef DESCENT_TOOLS_BENCH_MACHINE_H
#define DESCENT_TOOLS_BENCH_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- The loops (bench_loops.c), one thread's part each ----------------------------------------------------------- */

typedef struct machine_loops {
    const char *name; /* of the instruction set */
    /* Multiply-adds of signed by unsigned bytes, summed up in 32 bits, and of floats, in registers: `rounds` times
     * the number given here. */
    uint64_t int8_per_round, f32_per_round;
    void (*int8)(uint64_t rounds);
    void (*f32)(uint64_t rounds);
    /* Reads `bytes` bytes, a multiple of 512. */
    void (*read)(const unsigned char *from, size_t bytes);
} machine_loops;

/* The best that the CPU has, whatever DESCENT_ISA says. */
const machine_loops *machine_loops_get(void);

/* The CPU's features that matter here, by name with spaces between. */
const char *machine_features(char *text, size_t size);

/* Bytes of a thread's data cache of level 1 to 3, which others may share; 0 where the system does not say. */
size_t machine_cache(int level);

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

enum { MACHINE_SETS = 64 };

typedef struct machine {
    int threads;
    double seconds; /* about how long one measurement takes */
    unsigned char *buffer;
    size_t room;
    double int8, f32; /* multiply-adds/s on all threads together */
    struct {
        size_t bytes;
        double rate;
    } sets[MACHINE_SETS]; /* those measured so far */
    size_t n_sets;
} machine;

/* Measures the product peaks. `largest`: bytes of the largest working set that will be asked for. False without memory. */
bool machine_open(machine *m, int threads, double seconds, size_t largest);
void machine_close(machine *m);

/* Bytes/s read, each thread its part of `bytes` bytes again and again: the best of several tries, remembered. */
double machine_bandwidth(machine *m, size_t bytes);

/* Seconds that reading `bytes` bytes so takes, `rounds` times, this time; at most `largest`. */
double machine_read(const machine *m, size_t bytes, uint64_t rounds);

#endif
