/* What a program can do wrong with librnbd is answered with an error and a text, and what is under
 * way when it ends is called back once.
 *
 *   misuse on|off HOST:PORT      thread; the server exports vol (rw), other (rw), ro for host-a, host-b
 */
#include <errno.h>
#include <librnbd/librnbd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trying.h"

enum { many = 2000, paths_max = 128 };

static void says(const char *text, const char *word, int line) {
    if (strstr(text, word) != NULL) return;
    fprintf(stderr, "line %d: \"%s\" does not say \"%s\"\n", line, text, word);
    exit(1);
}
#define SAYS(text, word) says(text, word, __LINE__)

static rnbd_session *fresh(const char *name, const char *path) {
    rnbd_session *session;
    EXPECT(0, rnbd_session_new(&session));
    EXPECT(0, rnbd_session_set(session, "name", name));
    EXPECT(0, rnbd_session_set(session, "thread", threaded ? "on" : "off"));
    if (path != NULL) EXPECT(0, rnbd_session_add_path(session, path));
    return session;
}

static void null_handles(void) {
    rnbd_session *session = NULL;
    rnbd_volume *volume = NULL;
    struct count count = {0};
    EXPECT(-EINVAL, rnbd_session_new(NULL));
    EXPECT(-EINVAL, rnbd_session_set(session, "name", "x"));
    EXPECT(-EINVAL, rnbd_session_add_path(session, "127.0.0.1:1"));
    EXPECT(-EINVAL, rnbd_session_start(session));
    EXPECT(-EINVAL, rnbd_session_fd(session));
    EXPECT(-EINVAL, rnbd_session_process(session, 0));
    EXPECT(0, rnbd_session_free(session));
    EXPECT(-EINVAL, rnbd_volume_open(session, "vol", 0, &volume));
    EXPECT(-EINVAL, rnbd_volume_wait(volume, 0));
    EXPECT(-EINVAL, rnbd_readv(volume, &one_block, 1, 0, 0, counted, &count));
    EXPECT(-EINVAL, rnbd_flush(volume, counted, &count));
    EXPECT(0, rnbd_buffer_put(NULL));
}

static void wrong_settings(void) {
    rnbd_session *session;
    rnbd_volume *volume;
    char path[32];
    int port;
    EXPECT(0, rnbd_session_new(&session));
    EXPECT(-EINVAL, rnbd_session_set(session, "nmae", "x"));
    SAYS(rnbd_session_error(session),
         "found the key \"nmae\" (nearest: \"name\"), expected one of name");
    EXPECT(-EINVAL, rnbd_session_set(session, "hold-time", "5"));
    SAYS(rnbd_session_error(session), "hold-time: found \"5\", expected a duration");
    /* As in the configuration of rnbd-client. */
    EXPECT(-EINVAL, rnbd_session_set(session, "heartbeat-timeout", "2h"));
    EXPECT(0, rnbd_session_set(session, "heartbeat-timeout", "1h"));
    EXPECT(0, rnbd_session_set(session, "policy", "min-latency"));
    EXPECT(-EINVAL, rnbd_session_set(session, "fail-fast-time", "forever"));
    SAYS(rnbd_session_error(session), "fail-fast-time: found \"forever\", expected a duration");
    EXPECT(0, rnbd_session_set(session, "fail-fast-time", "never"));
    EXPECT(-EINVAL, rnbd_session_set(session, "max-reconnect-attempts", "-2"));
    SAYS(rnbd_session_error(session), "from 0 to 1000000, or forever (-1)");
    EXPECT(0, rnbd_session_set(session, "max-reconnect-attempts", "forever"));
    EXPECT(-EINVAL, rnbd_session_set(session, "name", "a/b"));
    EXPECT(-EINVAL, rnbd_session_set(session, "name", NULL));
    EXPECT(-EINVAL, rnbd_session_add_path(session, "localhost:1234"));
    SAYS(rnbd_session_error(session), "expected [standby:]");
    EXPECT(-EINVAL, rnbd_session_add_path(session, "::1@127.0.0.1:1"));
    EXPECT(-EINVAL, rnbd_session_start(session));
    SAYS(rnbd_session_error(session), "name");
    EXPECT(0, rnbd_session_set(session, "name", "host-a"));
    EXPECT(-EINVAL, rnbd_session_start(session));
    SAYS(rnbd_session_error(session), "path");
    EXPECT(0, rnbd_session_add_path(session, "127.0.0.1:1"));
    /* What was said stays, also when it no longer fits what is said afterwards. */
    EXPECT(0, rnbd_session_set(session, "heartbeat-interval", "2s"));
    EXPECT(0, rnbd_session_set(session, "heartbeat-timeout", "3s"));
    EXPECT(-EINVAL, rnbd_session_start(session));
    SAYS(rnbd_session_error(session), "less than twice heartbeat-interval");
    EXPECT(-EEXIST, rnbd_session_add_path(session, "tcp:127.0.0.1:1"));
    EXPECT(-ENOENT, rnbd_session_remove_path(session, "127.0.0.1:2"));
    for (port = 2; port <= paths_max; port++) {
        snprintf(path, sizeof path, "127.0.0.1:%d", port);
        EXPECT(0, rnbd_session_add_path(session, path));
    }
    EXPECT(-ENOSPC, rnbd_session_add_path(session, "127.0.0.1:1000"));
    SAYS(rnbd_session_error(session), "path 127.0.0.1:1000: a session has at most 128 paths");
    EXPECT(-ENOTCONN, rnbd_session_process(session, 0));
    EXPECT(-ENOTCONN, rnbd_session_fd(session));
    EXPECT(-ENOTCONN, rnbd_volume_open(session, "vol", 0, &volume));
    EXPECT(-ENOTCONN, rnbd_session_close(session, NULL, NULL));
    EXPECT(0, rnbd_session_free(session));
}

static void short_timeout(void) {
    rnbd_session *session = fresh("host-a", "127.0.0.1:1");
    EXPECT(0, rnbd_session_set(session, "probe-timeout", "21ms"));
    EXPECT(0, rnbd_session_set(session, "heartbeat-timeout", "20ms"));
    EXPECT(-EINVAL, rnbd_session_start(session));
    SAYS(rnbd_session_error(session), "probe-timeout: it is more than heartbeat-timeout");
    EXPECT(0, rnbd_session_set(session, "probe-timeout", "20ms"));
    /* The interval goes by it. */
    EXPECT(0, rnbd_session_start(session));
    EXPECT(0, rnbd_session_free(session));
}

/* An address of documentation (RFC 5737), which no RDMA device has. */
#define NOT_OURS "rdma:192.0.2.1@192.0.2.2:1235"

static void rdma_paths(void) {
    rnbd_session *session = fresh("host-a", NULL);
    rnbd_volume *volume;
    EXPECT(-EINVAL, rnbd_session_add_path(session, "rdma:host:1235"));
    SAYS(rnbd_session_error(session), "[standby:][tcp:|rdma:][SOURCE@]HOST:PORT");
    EXPECT(-EINVAL, rnbd_session_add_path(session, "rdma:tcp:127.0.0.1:1"));
    EXPECT(-EINVAL, rnbd_session_add_path(session, "rdma:standby:127.0.0.1:1"));
    EXPECT(-EINVAL, rnbd_session_add_path(session, "rdma:127.0.0.1"));
    EXPECT(-EINVAL, rnbd_session_add_path(session, "rdma:fd00::1@192.0.2.2:1235"));
#ifdef HAVE_VERBS
    EXPECT(0, rnbd_session_add_path(session, "standby:" NOT_OURS));
    EXPECT(-EEXIST, rnbd_session_add_path(session, NOT_OURS));
    SAYS(rnbd_session_error(session), "path " NOT_OURS " is there already");
    EXPECT(0, rnbd_session_add_path(session, "rdma:[fd00:0::1]@[fd00::2]:1"));
    EXPECT(-EEXIST, rnbd_session_add_path(session, "rdma:fd00::1@[fd00::2]:1"));
    EXPECT(0, rnbd_session_remove_path(session, "rdma:fd00::1@[fd00::2]:1"));
    EXPECT(-ENOENT, rnbd_session_remove_path(session, "rdma:192.0.2.2:1235"));
    /* Another fabric is another path. */
    EXPECT(0, rnbd_session_add_path(session, "192.0.2.1@192.0.2.2:1235"));
    EXPECT(0, rnbd_session_remove_path(session, "192.0.2.1@192.0.2.2:1235"));
    EXPECT(-ENODEV, rnbd_session_start(session));
    SAYS(rnbd_session_error(session),
         "path " NOT_OURS ": no RDMA device has the address 192.0.2.1");
    EXPECT(0, rnbd_session_remove_path(session, NOT_OURS));
    EXPECT(0, rnbd_session_add_path(session, "127.0.0.1:1"));
    EXPECT(0, rnbd_session_start(session));
    EXPECT(-ENODEV, rnbd_session_add_path(session, NOT_OURS));
    SAYS(rnbd_session_error(session),
         "path " NOT_OURS ": no RDMA device has the address 192.0.2.1");
    EXPECT(-ENOENT, rnbd_session_remove_path(session, NOT_OURS));
#else
    EXPECT(-EOPNOTSUPP, rnbd_session_add_path(session, NOT_OURS));
    SAYS(rnbd_session_error(session), "path " NOT_OURS ": RDMA is not built in");
    EXPECT(0, rnbd_session_add_path(session, "127.0.0.1:1"));
    EXPECT(0, rnbd_session_start(session));
    EXPECT(-EOPNOTSUPP, rnbd_session_add_path(session, NOT_OURS));
#endif
    EXPECT(0, rnbd_volume_open(session, "vol", 0, &volume));
    EXPECT(-ETIMEDOUT, rnbd_volume_wait(volume, 100));
    EXPECT(0, rnbd_session_free(session));
}

#ifdef HAVE_VERBS
static void heard(void *context, const struct rnbd_event *event) {
    struct count *told = context;
    if (event->kind != RNBD_EVENT_PATH_NOT_UP || strcmp(event->path, NOT_OURS) != 0) return;
    told->calls++;
    EXPECT(-ENODEV, event->error);
    SAYS(event->text, "no RDMA device has the address 192.0.2.1");
}

/* A session with another path starts. It has the path, though not its device. */
static void rdma_path_without_device(void) {
    rnbd_session *session = fresh("host-a", "127.0.0.1:1"),
                 *other = fresh("host-a", "192.0.2.2:1235");
    struct count told = {0};
    EXPECT(0, rnbd_session_add_path(session, "standby:" NOT_OURS));
    EXPECT(0, rnbd_session_on_event(session, heard, &told));
    EXPECT(0, rnbd_session_start(session));
    until(session, &told, 1);
    EXPECT(-EADDRINUSE, rnbd_session_start(other));
    EXPECT(-EBUSY, rnbd_session_remove_path(session, "127.0.0.1:1"));
    EXPECT(0, rnbd_session_remove_path(session, NOT_OURS));
    EXPECT(-ENOENT, rnbd_session_remove_path(session, NOT_OURS));
    EXPECT(0, rnbd_session_start(other));
    EXPECT(0, rnbd_session_free(other));
    EXPECT(0, rnbd_session_free(session));
    EXPECT(1, told.calls);
}
#endif

static void nobody_there(void) {
    rnbd_session *session = fresh("host-a", "127.0.0.1:1");
    rnbd_volume *volume;
    struct rnbd_volume_info info;
    struct count count = {0};
    EXPECT(0, rnbd_session_start(session));
    EXPECT(-EBUSY, rnbd_session_start(session));
    EXPECT(-EBUSY, rnbd_session_set(session, "name", "x"));
    EXPECT(0, rnbd_volume_open(session, "vol", 0, &volume));
    EXPECT(-ETIMEDOUT, rnbd_volume_wait(volume, 100));
    SAYS(rnbd_volume_error(volume), "path 127.0.0.1:1");
    EXPECT(-ENOTCONN, rnbd_readv(volume, &one_block, 1, 0, 0, counted, &count));
    EXPECT(-ENOTCONN, rnbd_volume_get_info(volume, &info, sizeof info));
    EXPECT(-EBUSY, rnbd_session_remove_path(session, "127.0.0.1:1"));
    EXPECT(0, rnbd_session_free(session));
    EXPECT(0, count.calls);
}

static void wrong_requests(rnbd_session *session, rnbd_volume *volume) {
    struct rnbd_volume_info info;
    struct count count = {0};
    struct iovec odd = {data, 100}, nowhere = {NULL, 512},
                 endless[2] = {{data, SIZE_MAX - 511}, {data, 1024}};
    rnbd_volume *again = volume;
    EXPECT(0, rnbd_volume_get_info(volume, &info, sizeof info));
    EXPECT(-EEXIST, rnbd_volume_open(session, "vol", 0, &again));
    EXPECT(1, again == NULL);
    EXPECT(-EINVAL, rnbd_volume_open(session, "../vol", 0, &again));
    EXPECT(-EINVAL, rnbd_volume_open(session, "third", 7, &again));
    EXPECT(-EINVAL, rnbd_readv(volume, &odd, 1, 0, 0, counted, &count));
    SAYS(rnbd_volume_error(volume), "whole blocks of 512");
    EXPECT(-EINVAL, rnbd_writev(volume, &nowhere, 1, 0, 0, counted, &count));
    SAYS(rnbd_volume_error(volume), "an entry has no address");
    EXPECT(-EINVAL, rnbd_readv(volume, &one_block, 1, 7, 0, counted, &count));
    EXPECT(-EINVAL, rnbd_readv(volume, &one_block, 1, info.size_bytes, 0, counted, &count));
    SAYS(rnbd_volume_error(volume), "beyond the volume's end");
    EXPECT(-EINVAL, rnbd_writev(volume, &one_block, 1, UINT64_MAX - 511, 0, counted, &count));
    EXPECT(-EINVAL, rnbd_readv(volume, endless, 2, 0, 0, counted, &count));
    EXPECT(-EINVAL, rnbd_readv(volume, NULL, 1, 0, 0, counted, &count));
    EXPECT(-EINVAL, rnbd_readv(volume, &one_block, 0, 0, 0, counted, &count));
    EXPECT(-EINVAL, rnbd_readv(volume, &one_block, 1, 0, 0, NULL, &count));
    EXPECT(-EINVAL, rnbd_readv(volume, &one_block, 1, 0, RNBD_FUA, counted, &count));
    EXPECT(-EINVAL, rnbd_writev(volume, &one_block, 1, 0, RNBD_NO_HOLE, counted, &count));
    EXPECT(-EINVAL, rnbd_discard(volume, 0, 0, 0, counted, &count));
    EXPECT(0, count.calls);
}

static void read_only_refuses(rnbd_session *session, rnbd_volume *volume) {
    struct count count = {0};
    EXPECT(-EROFS, rnbd_writev(volume, &one_block, 1, 0, 0, counted, &count));
    EXPECT(-EROFS, rnbd_write_zeroes(volume, 0, block, 0, counted, &count));
    EXPECT(0, rnbd_readv(volume, &one_block, 1, 0, 0, counted, &count));
    until(session, &count, 1);
    EXPECT(0, count.last);
}

static void no_such_path(rnbd_session *session, const char *path) {
    char name[64];
    int i, error = 0;
    EXPECT(-EEXIST, rnbd_session_add_path(session, path));
    SAYS(rnbd_session_error(session), "it is there already");
    EXPECT(-ENOENT, rnbd_session_remove_path(session, "127.0.0.1:1"));
    SAYS(rnbd_session_error(session), "the session has none");
    for (i = 1; error == 0; i++) {
        snprintf(name, sizeof name, "127.0.1.%d@%s", i, path);
        error = rnbd_session_add_path(session, name);
    }
    EXPECT(-ENOSPC, error);
    SAYS(rnbd_session_error(session), "a session has at most 128 paths");
    for (i -= 2; i > 0; i--) {
        snprintf(name, sizeof name, "127.0.1.%d@%s", i, path);
        EXPECT(0, rnbd_session_remove_path(session, name));
    }
}

static void no_such_volume(rnbd_session *session) {
    rnbd_volume *volume;
    struct count closed = {0};
    EXPECT(0, rnbd_volume_open(session, "no-such", 0, &volume));
    EXPECT(-ENOENT, rnbd_volume_wait(volume, -1));
    EXPECT(0, rnbd_volume_close(volume, counted, &closed));
    until(session, &closed, 1);
    EXPECT(0, closed.last);
}

static void buffers(rnbd_session *session, rnbd_volume *volume, rnbd_session *other) {
    rnbd_buffer *buffer, *foreign;
    struct count count = {0};
    EXPECT(0, rnbd_buffer_get(session, &buffer));
    EXPECT(0, rnbd_buffer_get(other, &foreign));
    EXPECT(-EINVAL, rnbd_read_buffer(volume, foreign, block, 0, 0, counted, &count));
    EXPECT(0, rnbd_buffer_put(foreign));
    EXPECT(-EINVAL,
           rnbd_read_buffer(volume, buffer, rnbd_buffer_size(buffer) + 512, 0, 0, counted, &count));
    EXPECT(-EINVAL, rnbd_read_buffer(volume, NULL, block, 0, 0, counted, &count));
    memset(rnbd_buffer_data(buffer), 'b', block);
    EXPECT(0, rnbd_write_buffer(volume, buffer, block, 8 * block, RNBD_FUA, counted, &count));
    if (!threaded) {
        EXPECT(-EBUSY, rnbd_read_buffer(volume, buffer, block, 0, 0, counted, &count));
        EXPECT(-EBUSY, rnbd_buffer_put(buffer));
    }
    until(session, &count, 1);
    EXPECT(0, count.last);
    memset(rnbd_buffer_data(buffer), 0, block);
    EXPECT(0, rnbd_read_buffer(volume, buffer, block, 8 * block, 0, counted, &count));
    until(session, &count, 2);
    EXPECT(0, count.last);
    EXPECT('b', ((char *)rnbd_buffer_data(buffer))[block - 1]);
    EXPECT(-EBUSY, rnbd_session_free(session));
    SAYS(rnbd_session_error(session), "1 buffers");
    EXPECT(0, rnbd_buffer_put(buffer));
}

struct inside {
    rnbd_session *session;
    rnbd_volume *volume;
    struct count count;
    int depth;
};

/* From inside a callback: no waiting, but more of the same. */
static void recursive(void *context, int error) {
    struct inside *inside = context;
    EXPECT(0, error);
    EXPECT(threaded ? -EINVAL : -EDEADLK, rnbd_session_process(inside->session, 0));
    EXPECT(-EDEADLK, rnbd_session_free(inside->session));
    EXPECT(-EDEADLK, rnbd_volume_wait(inside->volume, 0));
    if (inside->depth++ < 100) {
        EXPECT(0, rnbd_readv(inside->volume, &one_block, 1, 0, 0, recursive, inside));
    } else {
        inside->count.calls = 1;
    }
}

static void from_callbacks(rnbd_session *session, rnbd_volume *volume) {
    struct inside inside = {session, volume, {0}, 0};
    EXPECT(0, rnbd_readv(volume, &one_block, 1, 0, 0, recursive, &inside));
    until(session, &inside.count, 1);
}

static void *other_thread(void *context) {
    struct inside *inside = context;
    struct rnbd_volume_info info;
    int wanted = threaded ? 0 : -EPERM;
    EXPECT(wanted, rnbd_readv(inside->volume, &one_block, 1, 0, 0, counted, &inside->count));
    EXPECT(wanted, rnbd_volume_get_info(inside->volume, &info, sizeof info));
    if (!threaded && strstr(rnbd_volume_error(inside->volume), "thread") == NULL) exit(1);
    EXPECT(threaded ? -EBUSY : -EPERM, rnbd_session_set(inside->session, "name", "late"));
    EXPECT(threaded ? -EINVAL : -EPERM, rnbd_session_process(inside->session, 0));
    if (!threaded) EXPECT(-EPERM, rnbd_session_free(inside->session));
    return NULL;
}

static void from_another_thread(rnbd_session *session, rnbd_volume *volume) {
    struct inside inside = {session, volume, {0}, 0};
    pthread_t id;
    EXPECT(0, pthread_create(&id, NULL, other_thread, &inside));
    pthread_join(id, NULL);
    if (threaded) until(session, &inside.count, 1);
}

/* More requests than the session has room for, of every kind, some of many pieces. */
static int flood(rnbd_volume *volume, struct count *count) {
    static char large[8 << 20];
    struct iovec pieces[2] = {{large, 4096}, {large + 4096, sizeof large - 4096}};
    int i, submitted = 0;
    for (i = 0; i < many; i++) {
        EXPECT(0, rnbd_writev(volume, &one_block, 1, (uint64_t)(i % 64) * block,
                              i % 7 == 0 ? RNBD_FUA : 0, counted, count));
        submitted++;
        if (i % 100 == 0) {
            EXPECT(0, rnbd_readv(volume, pieces, 2, 0, 0, counted, count));
            EXPECT(0, rnbd_write_zeroes(volume, 0, sizeof large, RNBD_FUA, counted, count));
            EXPECT(0, rnbd_flush(volume, counted, count));
            submitted += 3;
        }
    }
    return submitted;
}

static void everything_is_done_once(rnbd_session *session, rnbd_volume *volume) {
    struct count count = {0};
    int submitted = flood(volume, &count);
    until(session, &count, submitted);
    EXPECT(submitted, count.succeeded);
    EXPECT(0, rnbd_flush(volume, counted, &count));
    until(session, &count, submitted + 1);
}

static void close_volume_in_flight(rnbd_session *session, const char *name) {
    rnbd_volume *volume;
    struct count count = {0}, closed = {0};
    int submitted;
    EXPECT(0, rnbd_volume_open(session, name, 0, &volume));
    EXPECT(0, rnbd_volume_wait(volume, -1));
    submitted = flood(volume, &count);
    EXPECT(0, rnbd_volume_close(volume, counted, &closed));
    until(session, &closed, 1);
    EXPECT(submitted, count.calls);
    EXPECT(submitted, count.succeeded + count.shut_down);
    if (!threaded && count.shut_down == 0) {
        fprintf(stderr, "nothing was left to be shut down\n");
        exit(1);
    }
}

#define NOBODY "127.0.0.1:1"

/* A session's name at an address is its own for as long as it has a path to there, and no longer. */
static void names_are_given_back(const char *server) {
    rnbd_session *one = fresh("host-c", server), *two = fresh("host-c", NOBODY), *three;
    int taken = 1;
    EXPECT(0, rnbd_session_start(two));
    EXPECT(0, rnbd_session_add_path(one, NOBODY));
    EXPECT(-EADDRINUSE, rnbd_session_start(one));
    three = fresh("host-c", server);
    EXPECT(0, rnbd_session_start(three));
    EXPECT(-EADDRINUSE, rnbd_session_add_path(three, NOBODY));
    SAYS(rnbd_session_error(three),
         "path " NOBODY ": a running session on this machine has it, of this program or another");
    EXPECT(-EEXIST, rnbd_session_add_path(three, server));
    EXPECT(-EADDRINUSE, rnbd_session_start(one));
    EXPECT(0, rnbd_session_free(one));
    EXPECT(0, rnbd_session_free(two));
    EXPECT(0, rnbd_session_add_path(three, NOBODY));
    EXPECT(0, rnbd_session_remove_path(three, NOBODY));
    while (taken) {
        if (!threaded) EXPECT(0, rnbd_session_process(three, 10));
        if (threaded) usleep(10000);
        two = fresh("host-c", NOBODY);
        taken = rnbd_session_start(two) != 0;
        EXPECT(0, rnbd_session_free(two));
    }
    EXPECT(0, rnbd_session_free(three));
}

/* A thread that is to end goes through all of a session first. */
static void *cancelled(void *server) {
    rnbd_session *session = fresh("host-a", server);
    rnbd_volume *volume;
    struct count count = {0};
    pthread_cancel(pthread_self());
    EXPECT(0, rnbd_session_start(session));
    EXPECT(0, rnbd_volume_open(session, "vol", 0, &volume));
    EXPECT(0, rnbd_volume_wait(volume, -1));
    EXPECT(0, rnbd_readv(volume, &one_block, 1, 0, 0, counted, &count));
    EXPECT(0, rnbd_session_free(session));
    EXPECT(1, count.calls);
    pthread_testcancel();
    return NULL;
}

static void a_thread_is_cancelled(const char *server) {
    pthread_t id;
    void *end;
    EXPECT(0, pthread_create(&id, NULL, cancelled, (void *)server));
    pthread_join(id, &end);
    EXPECT(1, end == PTHREAD_CANCELED);
}

/* The system gives an id again at once; whoever has it is another thread all the same. */

static rnbd_session *left_behind;

static void *starts_one(void *context) {
    left_behind = fresh("host-c", "127.0.0.1:1");
    EXPECT(0, rnbd_session_start(left_behind));
    return context;
}

static void *finds_one(void *context) {
    EXPECT(-EPERM, rnbd_session_process(left_behind, 0));
    EXPECT(-EPERM, rnbd_session_free(left_behind));
    return context;
}

static void after_its_thread_has_ended(void) {
    pthread_t id;
    EXPECT(0, pthread_create(&id, NULL, starts_one, NULL));
    pthread_join(id, NULL);
    EXPECT(0, pthread_create(&id, NULL, finds_one, NULL));
    pthread_join(id, NULL);
}

int main(int argc, char **argv) {
    rnbd_session *session, *other, *twin;
    rnbd_volume *volume, *read_only;
    rnbd_buffer *late;
    struct count count = {0}, closed = {0};
    int submitted;

    if (argc != 3) return 2;
    threaded = strcmp(argv[1], "on") == 0;
    alarm(500); /* what hangs is a failure */
    null_handles();
    wrong_settings();
    short_timeout();
    rdma_paths();
#ifdef HAVE_VERBS
    rdma_path_without_device();
#endif
    nobody_there();
    names_are_given_back(argv[2]);
    a_thread_is_cancelled(argv[2]);

    session = fresh("host-a", argv[2]);
    other = fresh("host-b", argv[2]);
    EXPECT(0, rnbd_session_start(session));
    EXPECT(0, rnbd_session_start(other));
    twin = fresh("host-a", argv[2]);
    EXPECT(-EADDRINUSE, rnbd_session_start(twin));
    SAYS(rnbd_session_error(twin), "a running session on this machine has it");
    EXPECT(0, rnbd_session_free(twin));
    EXPECT(0, rnbd_volume_open(session, "vol", 0, &volume));
    EXPECT(0, rnbd_volume_wait(volume, -1));
    EXPECT(0, rnbd_volume_open(other, "ro", RNBD_READ_ONLY, &read_only));
    EXPECT(0, rnbd_volume_wait(read_only, -1));

    wrong_requests(session, volume);
    read_only_refuses(other, read_only);
    no_such_path(other, argv[2]);
    no_such_volume(session);
    buffers(session, volume, other);
    from_callbacks(session, volume);
    from_another_thread(session, volume);
    everything_is_done_once(session, volume);
    close_volume_in_flight(session, "other");

    /* The end, with requests under way: of one session by free alone, of the other in two steps. */
    submitted = flood(volume, &count);
    EXPECT(0, rnbd_session_free(session));
    EXPECT(submitted, count.calls);
    EXPECT(submitted, count.succeeded + count.shut_down);
    EXPECT(0, rnbd_readv(read_only, &one_block, 1, 0, 0, counted, &count));
    EXPECT(0, rnbd_session_close(other, counted, &closed));
    EXPECT(-ESHUTDOWN, rnbd_buffer_get(other, &late));
    until(other, &closed, 1);
    EXPECT(-ESHUTDOWN, rnbd_buffer_get(other, &late));
    EXPECT(submitted + 1, count.calls);
    if (!threaded) EXPECT(-ESHUTDOWN, rnbd_session_process(other, 0));
    EXPECT(0, rnbd_session_free(other));
    if (!threaded) after_its_thread_has_ended();
    printf("%d requests, %d of them shut down\n", submitted, count.shut_down);
    return 0;
}
