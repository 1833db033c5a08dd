/* rapl.h: joules that the processor took, as the kernel's power capping interface counts them: its packages and, where they are
 * counted apart, their memory. Nothing here prints; where there is nothing to read, there are no joules.
 *
 * The counters wrap, after minutes at least: whoever measures longer calls rapl_joules now and then. One thread at a time. */
#ifndef DESCENT_SERVER_RAPL_H
#define DESCENT_SERVER_RAPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RAPL_MOST_DOMAINS = 32 };

typedef struct rapl {
    struct {
        int file;       /* energy_uj, open */
        uint64_t last;  /* microjoules */
        uint64_t range; /* the counter goes on from 0 after this */
    } domains[RAPL_MOST_DOMAINS];
    size_t count;
    double joules; /* since rapl_open */
} rapl;

/* Looks in `root`, NULL: where the kernel puts it. False where no counter may be read (most systems allow it to root alone);
 * rapl_joules is then NaN. rapl_close in any case. */
bool rapl_open(rapl *meter, const char *root);
/* Since rapl_open; NaN where there are no counters, and from the first on that could not be read. */
double rapl_joules(rapl *meter);
void rapl_close(rapl *meter);

#endif
