/* machine.h: what of the machine this process may use: CPUs and memory. What its control groups allow is read from the system
 * whose files are under `root`, "" being this one: of the process's group, of version 2 and of version 1, and of every group
 * above it, the least. Looks every time; from any thread. */
#ifndef DESCENT_MACHINE_H
#define DESCENT_MACHINE_H

#include <stdint.h>

/* CPUs of this process's affinity, at most as many as the quotas come to. At least 1. */
unsigned cpus_available(void);

/* What the quotas come to in CPUs, rounded up: cpu.max; cpu.cfs_quota_us. 0: there is no limit. */
unsigned cpus_quota(const char *root);

/* Bytes of memory that the groups may take: memory.max; memory.limit_in_bytes. 0: there is no limit. */
uint64_t memory_limit(const char *root);

#endif
