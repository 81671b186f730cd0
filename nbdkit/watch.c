#define NBDKIT_API_VERSION 2
#include "nbdkit/watch.h"

#include <nbdkit-plugin.h>
#include <pthread.h>
#include <stddef.h>

/* That nbdkit is to end is looked for this often while something is stuck. */
enum { slice_ms = 200 };

static struct {
    rnbd_session *session;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool started, away, unloading;
    unsigned late;
} watch = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void set(bool *what, bool value) {
    pthread_mutex_lock(&watch.mutex);
    *what = value;
    pthread_cond_signal(&watch.changed);
    pthread_mutex_unlock(&watch.mutex);
}

void watch_volume_away(bool away) { set(&watch.away, away); }

void watch_late_requests(int change) {
    pthread_mutex_lock(&watch.mutex);
    watch.late += (unsigned)change;
    pthread_cond_signal(&watch.changed);
    pthread_mutex_unlock(&watch.mutex);
}

/* False: the end has come without. */
static bool wait_until_stuck(void) {
    bool stuck;
    pthread_mutex_lock(&watch.mutex);
    while (!watch.away && watch.late == 0 && !watch.unloading) {
        pthread_cond_wait(&watch.changed, &watch.mutex);
    }
    stuck = !watch.unloading;
    pthread_mutex_unlock(&watch.mutex);
    return stuck;
}

/* A thread without a client: its sleep ends early only if nbdkit is to end. */
static void *watch_for_the_end(void *context) {
    (void)context;
    while (wait_until_stuck()) {
        if (nbdkit_nanosleep(0, slice_ms * 1000000) == 0) continue;
        rnbd_session_close(watch.session, NULL, NULL);
        break;
    }
    return NULL;
}

int watch_start(rnbd_session *session) {
    int error;
    watch.session = session;
    error = pthread_create(&watch.thread, NULL, watch_for_the_end, NULL);
    watch.started = error == 0;
    return error;
}

void watch_stop(void) {
    if (!watch.started) return;
    set(&watch.unloading, true);
    pthread_join(watch.thread, NULL);
}
