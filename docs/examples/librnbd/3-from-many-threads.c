/* Four threads write and read back their quarters of a volume's first MiB. The session runs in a
 * thread of its own, so that any thread may submit; each waits for its own requests.
 *
 *   cc 3-from-many-threads.c $(pkg-config --cflags --libs librnbd) -pthread -o 3-from-many-threads
 *   ./3-from-many-threads SESSION HOST:PORT VOLUME
 */
#include <librnbd/librnbd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { threads = 4, block = 4096, blocks = 64 };

/* One request that somebody waits for. */
struct waiting {
    pthread_mutex_t mutex;
    pthread_cond_t done;
    int error; /* 1: under way */
};

struct worker {
    rnbd_volume *volume;
    unsigned number;
    uint64_t first;
    int ok;
};

/* Called in the session's thread. */
static void finished(void *context, int error) {
    struct waiting *waiting = context;
    pthread_mutex_lock(&waiting->mutex);
    waiting->error = error;
    pthread_cond_signal(&waiting->done);
    pthread_mutex_unlock(&waiting->mutex);
}

static int wait_for(struct waiting *waiting, int submitted) {
    int error;
    if (submitted < 0) return submitted;
    pthread_mutex_lock(&waiting->mutex);
    while (waiting->error == 1) pthread_cond_wait(&waiting->done, &waiting->mutex);
    error = waiting->error;
    waiting->error = 1;
    pthread_mutex_unlock(&waiting->mutex);
    return error;
}

static void *work(void *context) {
    struct worker *worker = context;
    struct waiting waiting = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 1};
    char data[block], back[block];
    struct iovec out = {data, block}, in[2] = {{back, 1000}, {back + 1000, block - 1000}};
    unsigned i;

    worker->ok = 1;
    for (i = 0; i < blocks && worker->ok; i++) {
        uint64_t offset = worker->first + (uint64_t)i * block;
        memset(data, (int)(worker->number * blocks + i), sizeof data);
        worker->ok = wait_for(&waiting, rnbd_writev(worker->volume, &out, 1, offset, RNBD_FUA,
                                                    finished, &waiting)) == 0 &&
                     wait_for(&waiting, rnbd_readv(worker->volume, in, 2, offset, 0, finished,
                                                   &waiting)) == 0 &&
                     memcmp(data, back, sizeof data) == 0;
    }
    return NULL;
}

static void check(int error, const char *what) {
    if (error >= 0) return;
    fprintf(stderr, "%s: %s\n", what, strerror(-error));
    exit(1);
}

/* Why it failed is asked for here: beside the call, as another argument, it might be asked before. */
static void check_session(int error, const char *what, rnbd_session *session) {
    if (error < 0) fprintf(stderr, "%s\n", rnbd_session_error(session));
    check(error, what);
}

static void check_volume(int error, const char *what, rnbd_volume *volume) {
    if (error < 0) fprintf(stderr, "%s\n", rnbd_volume_error(volume));
    check(error, what);
}

int main(int argc, char **argv) {
    struct worker workers[threads];
    pthread_t ids[threads];
    rnbd_session *session;
    rnbd_volume *volume;
    unsigned i;
    int ok = 1;

    if (argc != 4) {
        fprintf(stderr, "usage: %s SESSION HOST:PORT VOLUME\n", argv[0]);
        return 2;
    }
    check(rnbd_session_new(&session), "session");
    check_session(rnbd_session_set(session, "name", argv[1]), "name", session);
    check_session(rnbd_session_set(session, "thread", "on"), "thread", session);
    check_session(rnbd_session_add_path(session, argv[2]), "path", session);
    check_session(rnbd_session_start(session), "start", session);
    check_session(rnbd_volume_open(session, argv[3], 0, &volume), "open", session);
    check_volume(rnbd_volume_wait(volume, 10000), "open", volume);

    for (i = 0; i < threads; i++) {
        workers[i] = (struct worker){volume, i, (uint64_t)i * blocks * block, 0};
        if (pthread_create(&ids[i], NULL, work, &workers[i]) != 0) return 1;
    }
    for (i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        ok = ok && workers[i].ok;
    }
    printf("%s\n", ok ? "every thread read what it wrote" : "it failed");
    check(rnbd_session_free(session), "end");
    return ok ? 0 : 1;
}
