/* parallel.h: work shared among a team of threads.
 *
 * A step is some ten products of microseconds each, and OpenMP opens and closes a parallel region in about as much, or waits
 * there for a thread whose core the machine has given to somebody else. So a team is one region, open as long as the team
 * lives, whose threads wait for what its master shares. A share costs a fraction of a microsecond, and a thread that comes
 * late is not waited for: the others do its parts.
 *
 * Who waits spins for microseconds, then gives its core to any other thread that wants one, and sleeps when nothing has been
 * shared for a while. A team of one thread has no region and no waiting: everything is a plain call.
 */
#ifndef DESCENT_PARALLEL_H
#define DESCENT_PARALLEL_H

#include <stddef.h>

typedef struct team team;

/* A team of `threads`, at least 1, its master included. The others are started with the first share of more than one part,
 * stay as long as the team and take no signals. The master does what there are no others for: where they cannot be started, or
 * OMP_THREAD_LIMIT allows fewer. NULL: no memory. */
team *team_create(unsigned threads);
void team_destroy(team *t);
unsigned team_threads(const team *t);

/* Does part `part` of something; `thread` is below team_threads, and nobody else has that number at the time. */
typedef void (*team_part)(const void *arg, size_t part, unsigned thread);

/* Runs part(arg, p, ...) for every p in [0, parts), once each, in no order, and returns when all are done. The calling thread
 * is the team's master meanwhile: there is one at a time, and a part shares nothing. One part is a plain call. Each thread
 * begins with a range of its own, the same for the same number of parts, so that it meets the weights it has met before. */
void team_share(team *t, size_t parts, team_part part, const void *arg);

/* An errand is something small that the master would rather not spend its own time on, as everybody waits for it. Set before
 * the first share; at most one. */
void team_set_errand(team *t, void (*run)(void *user), void *user);
/* By the master, outside of a share: run(user) is called soon, on a worker that is awake and has nothing to do, or here and now
 * where all of them sleep or there are none. Asked for again before it has begun it is run once; two runs may overlap.
 * team_destroy leaves none undone. */
void team_send_errand(team *t);

#endif
