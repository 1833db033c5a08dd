/* cpus.h: how many threads are worth having. */
#ifndef DESCENT_CPUS_H
#define DESCENT_CPUS_H

/* CPUs this process may use: those of its affinity, at most as many as its control groups' quotas come to, rounded up. At
 * least 1. Looks every time; from any thread. */
unsigned cpus_available(void);

/* What the quotas come to in the system whose files are under `root` ("" is this one): cpu.max of the process's control group
 * of version 2, cpu.cfs_quota_us of its cpu group of version 1, and of every group above them; the least of them in CPUs,
 * rounded up. 0: there is no limit. */
unsigned cpus_quota(const char *root);

#endif
