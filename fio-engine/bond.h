/* A session with one volume: a job's own, or one that jobs of the same session name share. */
#pragma once

#include <librnbd/librnbd.h>
#include <pthread.h>
#include <stdbool.h>

#include "fio-engine/options.h"

/* That fio was told to end is looked for this often while the volume is away or silent. */
enum { away_slice_ms = 200 };

/* Who waits for answers of a shared session. */
struct waiter {
    pthread_cond_t answered;
    struct waiter *next;
    bool listed;      /* in `answered` of its bond, which guards this and the next one */
    unsigned depth;   /* that many answers are all that it may wait for */
    unsigned answers; /* since it was listed; of the session's thread, as the next one */
    unsigned turns;
};

struct bond {
    rnbd_session *session;
    rnbd_volume *volume;
    int away;  /* the volume is not open; atomic, since a shared session has its own thread */
    int users; /* of a shared one; its name and the next one too */
    int leaving;
    unsigned depth; /* of all users together; atomic */
    pthread_mutex_t lock;
    struct waiter *answered; /* not woken yet */
    char *key;
    struct bond *next;
    bool writes;
};

/* Says what is wrong; the job fails with the negative errno. Returns 1. */
int complain(struct thread_data *td, int error, const char *what, const char *text);

bool job_writes(const struct thread_data *td);
/* As the job needs the volume, or as its options say. */
unsigned open_flags(const struct thread_data *td, const struct engine_options *o);

/* 0, or 1 after it has complained; then there is nothing to part with. */
int make_bond(struct thread_data *td, const struct engine_options *o, struct bond *bond,
              unsigned flags, bool threaded);
void part_with(struct bond *bond);

/* One for all jobs that ask for the same session and volume, made by the first and ended by the
 * last. NULL after it has complained. THREAD: any. */
struct bond *take_shared(struct thread_data *td, const struct engine_options *o);
void put_shared(struct bond *bond, unsigned depth); /* the job's */
/* Another answer for it. Wakes it when all answers of a turn are known, and it has all of its own,
 * or no more follow, or it has waited for some turns. THREAD: the session's. */
void wake_later(struct bond *bond, struct waiter *waiter);
/* It is woken no more. */
void forget_waiter(struct bond *bond, struct waiter *waiter);
/* A user was told to end while the volume is away or silent. When all were, requests that wait
 * fail. Taken back before put_shared(). */
void leave_shared(struct bond *bond);
void leave_shared_no_more(struct bond *bond);
