/* job_queue.c: see job_queue.h. Owns the list of jobs with something to take, the list of those held, oldest first, and the
 * handles that wake the loop for them. Locks are taken in one order: a transcript's, then the queue's.
 */
#include "job_queue.h"

#include "job.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

struct job_queue {
    uv_loop_t *loop;
    uint64_t hold_ms;
    void (*turn)(job *j);
    uv_async_t wake;
    uv_timer_t let_go;
    int handles, held; /* held: how many jobs, the loop's */
    pthread_mutex_t lock;
    job *first, *last; /* listed; under the lock, as every place's `listed` and `at_once` are, and as `held` is written */
    job *held_first, *held_last; /* by `due`; the loop's */
};

/* ---- Turns ------------------------------------------------------------------------------------------------------- */

static void start_timer(job_queue *q);

static void release(job_queue *q, job *j)
{
    job_place *p = &j->place;
    *(p->held_before ? &p->held_before->place.held_behind : &q->held_first) = p->held_behind;
    *(p->held_behind ? &p->held_behind->place.held_before : &q->held_last) = p->held_before;
    p->held_before = p->held_behind = NULL;
    p->held = false;
    q->held--;
}

/* Takes a job off the list: from here on what comes lists it again. False where it was listed by what can wait, before it was
 * held: it has its turn when it is let go. */
static bool take_up(job_queue *q, job *j)
{
    job_place *p = &j->place;
    bool has_turn = p->at_once || !p->held;
    p->listed = p->at_once = false;
    if (has_turn && p->held) release(q, j);
    return has_turn;
}

/* Each job's turn may list others, or itself again, and end it: nothing of a job is looked at behind its turn. */
static void on_wake(uv_async_t *async)
{
    job_queue *q = async->data;
    (void)pthread_mutex_lock(&q->lock);
    job *list = q->first;
    q->first = q->last = NULL;
    (void)pthread_mutex_unlock(&q->lock);
    while (list) {
        job *j = list;
        (void)pthread_mutex_lock(&q->lock);
        list = j->place.next;
        bool has_turn = take_up(q, j);
        (void)pthread_mutex_unlock(&q->lock);
        if (has_turn) q->turn(j);
    }
}

/* Held jobs whose time has come take what there is, which may be nothing. One that was listed meanwhile has its turn anyway. */
static void on_let_go(uv_timer_t *timer)
{
    job_queue *q = timer->data;
    while (q->held_first && q->held_first->place.due <= uv_now(q->loop)) {
        job *j = q->held_first;
        (void)pthread_mutex_lock(&q->lock);
        release(q, j);
        bool listed = j->place.listed;
        (void)pthread_mutex_unlock(&q->lock);
        if (!listed) q->turn(j);
    }
    start_timer(q);
}

static void start_timer(job_queue *q)
{
    if (!q->held_first) return;
    uint64_t now = uv_now(q->loop), due = q->held_first->place.due;
    (void)uv_timer_start(&q->let_go, on_let_go, due > now ? due - now : 0, 0);
}

bool job_queue_list(job_queue *q, job *j, bool at_once)
{
    if (!at_once && atomic_load(&j->place.held)) return false; /* of most tokens: no need of the lock */
    (void)pthread_mutex_lock(&q->lock);
    bool waits = j->place.listed || (j->place.held && !at_once);
    j->place.at_once |= at_once;
    if (!waits) {
        j->place.listed = true;
        j->place.next = NULL;
        *(q->first ? &q->last->place.next : &q->first) = j;
        q->last = j;
    }
    (void)pthread_mutex_unlock(&q->lock);
    return !waits;
}

void job_queue_wake(void *queue)
{
    job_queue *q = queue;
    (void)uv_async_send(&q->wake);
}

bool job_queue_lists(job_queue *q, const job *j)
{
    (void)pthread_mutex_lock(&q->lock);
    bool listed = j->place.listed;
    (void)pthread_mutex_unlock(&q->lock);
    return listed;
}

/* The end of a hold that begins now: that of those held already where it is far enough away, so that many streams take few
 * turns of the loop. On a machine whose every core computes, what a send takes stands in the way of all threads: so streams
 * that are more send together as often as a few do. */
static uint64_t end_of_hold(const job_queue *q)
{
    uint64_t now = uv_now(q->loop), most = JOB_QUEUE_FEW * JOB_QUEUE_LONGEST;
    uint64_t held = q->held < JOB_QUEUE_FEW ? JOB_QUEUE_FEW : (uint64_t)q->held;
    uint64_t hold = q->hold_ms * (held < most ? held : most) / JOB_QUEUE_FEW;
    uint64_t last = q->held_last ? q->held_last->place.due : 0;
    return last >= now + (hold + 1) / 2 && last <= now + hold ? last : now + hold;
}

/* Behind those that are let go no later. */
static void insert(job_queue *q, job *j)
{
    job *before = q->held_last, *behind = NULL;
    while (before && before->place.due > j->place.due) {
        behind = before;
        before = before->place.held_before;
    }
    j->place.held_before = before;
    j->place.held_behind = behind;
    *(before ? &before->place.held_behind : &q->held_first) = j;
    *(behind ? &behind->place.held_before : &q->held_last) = j;
    if (!before) start_timer(q);
}

static bool hold(job_queue *q, job *j, bool begins)
{
    job_place *p = &j->place;
    if (q->hold_ms == 0) return false;
    (void)pthread_mutex_lock(&q->lock);
    if (p->held) release(q, j);
    p->held = true;
    q->held++;
    (void)pthread_mutex_unlock(&q->lock);
    p->due = begins ? uv_now(q->loop) + q->hold_ms : end_of_hold(q);
    insert(q, j);
    return true;
}

void job_queue_hold(job_queue *q, job *j)
{
    (void)hold(q, j, false);
}

bool job_queue_hold_begin(job_queue *q, job *j)
{
    return hold(q, j, true);
}

void job_queue_leave(job_queue *q, job *j)
{
    (void)pthread_mutex_lock(&q->lock);
    if (j->place.held) release(q, j);
    (void)pthread_mutex_unlock(&q->lock);
}

/* ---- Up and down ------------------------------------------------------------------------------------------------- */

int job_queue_open(uv_loop_t *loop, double hold_seconds, void (*turn)(job *j), job_queue **out)
{
    job_queue *q = calloc(1, sizeof *q);
    *out = NULL;
    if (!q) return UV_ENOMEM;
    q->loop = loop;
    q->hold_ms = (uint64_t)ceil(hold_seconds * 1e3);
    q->turn = turn;
    q->wake.data = q->let_go.data = q;
    int code = uv_async_init(loop, &q->wake, on_wake);
    if (code != 0) {
        free(q);
        return code;
    }
    (void)uv_timer_init(loop, &q->let_go);
    q->handles = 2;
    (void)pthread_mutex_init(&q->lock, NULL);
    *out = q;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    job_queue *q = handle->data;
    if (--q->handles > 0) return;
    (void)pthread_mutex_destroy(&q->lock);
    free(q);
}

void job_queue_close(job_queue *q)
{
    uv_close((uv_handle_t *)&q->wake, on_closed);
    uv_close((uv_handle_t *)&q->let_go, on_closed);
}
