/* job_queue.h: which jobs have something to take, and when each gets its turn on the loop. Schedulers' threads list a job as
 * its texts grow; the loop gives every listed one its turn. A stream that has just sent something may be held for a while: what
 * comes meanwhile goes out together, so that texts which grow faster than anybody reads cost one send for several tokens. What
 * begins or ends a text is never held.
 */
#ifndef DESCENT_SERVER_JOB_QUEUE_H
#define DESCENT_SERVER_JOB_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

typedef struct job job;
typedef struct job_queue job_queue;

/* So many jobs are held for the time given each; more of them for as much longer as they are more, up to so many times it. */
enum { JOB_QUEUE_FEW = 5, JOB_QUEUE_LONGEST = 5 };

/* A job's place in the queue; all zero at first. */
typedef struct job_place {
    job *next; /* listed behind it */
    bool listed;
    atomic_bool held;
    bool at_once; /* listed by something that no hold delays */
    uint64_t due; /* the loop's time at which a held one is let go */
    job *held_before, *held_behind;
} job_place;

/* `turn` is called on the loop's thread. A job is held for `hold_seconds`, longer among many, and for half of that at least
 * where others are held already, whose end it joins; 0: never. The interval is rounded up to whole milliseconds. 0, or a code
 * of libuv. */
int job_queue_open(uv_loop_t *loop, double hold_seconds, void (*turn)(job *j), job_queue **queue);
/* Frees the queue once the loop has closed its handles; no job is in it. */
void job_queue_close(job_queue *q);

/* Any thread: the job has something to take. A held one keeps it until it is let go, unless `at_once`. True where the queue is
 * to be woken for it. Called under the lock that the job's turn takes it with: who finds the job held has put it where the
 * turn, which comes behind the hold, finds it. */
bool job_queue_list(job_queue *q, job *j, bool at_once);
/* Any thread, until the queue is closed: whoever was listed has its turn. */
void job_queue_wake(void *queue);

/* The loop's thread. */
bool job_queue_lists(job_queue *q, const job *j); /* it has been listed since its last turn began */
/* What the job has to take waits for the end of a hold from now on. */
void job_queue_hold(job_queue *q, job *j);
/* The same for a job that has said nothing yet, for as long as few are held, however many there are. False: this queue holds
 * nothing. */
bool job_queue_hold_begin(job_queue *q, job *j);
void job_queue_leave(job_queue *q, job *j); /* before a job that is not listed goes: it is not let go any more */

#endif
