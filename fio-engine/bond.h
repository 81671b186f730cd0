/* A session with one volume: it belongs to one job, or is shared by jobs with the same session
 * name. */
#pragma once

#include <librnbd/librnbd.h>
#include <pthread.h>
#include <stdbool.h>

#include "fio-engine/options.h"

/* While the volume is away or silent, the engine checks this often whether fio was told to end. */
enum { away_slice_ms = 200 };

/* A job that waits for answers of a shared session. */
struct waiter {
    pthread_cond_t answered;
    struct waiter *next;
    bool listed;      /* it is in bond.answered; guarded by the bond's lock, as is `next` */
    unsigned depth;   /* the largest number of answers that it can wait for */
    unsigned answers; /* since it was listed; used by the session's thread, as is `turns` */
    unsigned turns;
};

struct bond {
    rnbd_session *session;
    rnbd_volume *volume;
    int away;  /* the volume is not open; atomic, since a shared session has its own thread */
    int users; /* only in a shared bond, as are `key` and `next` */
    int leaving;
    unsigned depth; /* of all users together; atomic */
    pthread_mutex_t lock;
    struct waiter *answered; /* waiters that have answers and were not woken yet */
    char *key;
    struct bond *next;
    bool writes;
};

/* Reports what is wrong; the job fails with error, a negative errno. Returns 1. */
int complain(struct thread_data *td, int error, const char *what, const char *text);

bool job_writes(const struct thread_data *td);
/* The flags for opening the volume, as the job needs it, or as its options say. */
unsigned open_flags(const struct thread_data *td, const struct engine_options *o);

/* Returns 0, or 1 after it has called complain(); then part_with() must not be called. */
int make_bond(struct thread_data *td, const struct engine_options *o, struct bond *bond,
              unsigned flags, bool threaded);
void part_with(struct bond *bond);

/* Returns the bond that all jobs with the same session and volume share. The first job makes it and
 * the last one ends it. NULL after it has called complain(). THREAD: any. */
struct bond *take_shared(struct thread_data *td, const struct engine_options *o);
void put_shared(struct bond *bond, unsigned depth); /* the job's */
/* Notes another answer for the waiter. It is woken when all answers of a turn are known, and it has
 * all its answers, or no more follow, or it has waited for some turns. THREAD: the session's. */
void wake_later(struct bond *bond, struct waiter *waiter);
/* The waiter will not be woken any more. */
void forget_waiter(struct bond *bond, struct waiter *waiter);
/* leave_shared(): a user was told to end while the volume is away or silent. When all users were,
 * waiting requests fail. leave_shared_no_more() takes it back, before put_shared(). */
void leave_shared(struct bond *bond);
void leave_shared_no_more(struct bond *bond);
