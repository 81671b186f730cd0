/* Sessions and volumes that end, or cannot begin, while something else uses them.
 *
 *   ends CASE on|off HOST:PORT SERVER_PID      thread; the server exports vol (rw) for host-a
 */
#define _GNU_SOURCE
#include <errno.h>
#include <librnbd/librnbd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trying.h"

enum { limit_s = 300 };
/* Nobody listens there, and no test beside this one has a session of the same name to there. */
#define NOBODY "127.0.0.3:1"

static const char *server;
static pid_t server_pid;

static rnbd_session *fresh(const char *path) {
    rnbd_session *session;
    EXPECT(0, rnbd_session_new(&session));
    EXPECT(0, rnbd_session_set(session, "name", "host-a"));
    EXPECT(0, rnbd_session_set(session, "thread", threaded ? "on" : "off"));
    EXPECT(0, rnbd_session_add_path(session, path));
    return session;
}

static rnbd_volume *opened(rnbd_session *session) {
    rnbd_volume *volume;
    EXPECT(0, rnbd_volume_open(session, "vol", 0, &volume));
    EXPECT(0, rnbd_volume_wait(volume, -1));
    return volume;
}

/* Volumes of a session that has closed are the program's until it frees the session. */
static void handles_outlive_close(void) {
    rnbd_session *session = fresh(server);
    rnbd_volume *volume, *another;
    struct rnbd_volume_info info;
    struct count count = {0}, closed = {0};
    EXPECT(0, rnbd_session_start(session));
    volume = opened(session);
    EXPECT(0, rnbd_volume_get_info(volume, &info, sizeof info));
    EXPECT(RNBD_IS_OPEN, (int)info.flags & RNBD_IS_OPEN);
    EXPECT(0, rnbd_session_close(session, counted, &closed));
    EXPECT(0, rnbd_volume_get_info(volume, &info, sizeof info));
    EXPECT(0, (int)info.flags & RNBD_IS_OPEN);
    EXPECT(-ESHUTDOWN, rnbd_readv(volume, &one_block, 1, 0, 0, counted, &count));
    EXPECT(-ESHUTDOWN, rnbd_session_add_path(session, NOBODY));
    EXPECT(-ESHUTDOWN, rnbd_session_remove_path(session, server));
    until(session, &closed, 1);
    EXPECT(-ESHUTDOWN, rnbd_session_add_path(session, NOBODY));
    EXPECT(-ESHUTDOWN, rnbd_session_remove_path(session, server));
    EXPECT(-ESHUTDOWN, rnbd_readv(volume, &one_block, 1, 0, 0, counted, &count));
    if (strstr(rnbd_volume_error(volume), "closing") == NULL) exit(1);
    EXPECT(-ESHUTDOWN, rnbd_volume_wait(volume, -1));
    EXPECT(-ESHUTDOWN, rnbd_volume_close(volume, NULL, NULL));
    EXPECT(-ESHUTDOWN, rnbd_volume_open(session, "another", 0, &another));
    memset(&info, 0, sizeof info);
    EXPECT(0, rnbd_volume_get_info(volume, &info, sizeof info));
    EXPECT(1, info.size_bytes > 0);
    EXPECT(0, (int)info.flags & RNBD_IS_OPEN);
    EXPECT(0, rnbd_session_free(session));
    EXPECT(0, count.calls);
}

struct both {
    rnbd_session *session; /* NULL: only the volume is closed */
    rnbd_volume *volume;
    atomic_int waiter; /* the thread that waits for the volume */
    struct count closed;
};

static void *waits(void *context) {
    struct both *both = context;
    both->waiter = gettid();
    EXPECT(-ESHUTDOWN, rnbd_volume_wait(both->volume, -1));
    return NULL;
}

/* Whoever wakes a thread makes it runnable at once, so one that sleeps has nothing to look at. */
static void until_asleep(atomic_int *thread) {
    char state = 0;
    while (state != 'S') {
        char path[64];
        FILE *file;
        usleep(1000);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(thread));
        file = fopen(path, "r");
        if (file == NULL) continue; /* not begun; or ended, which the alarm is for */
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 0;
        fclose(file);
    }
}

static void closes_the_other(void *context, int error) {
    struct both *both = context;
    EXPECT(0, error);
    until_asleep(&both->waiter); /* again: this was told, too */
    EXPECT(0, both->session != NULL ? rnbd_session_close(both->session, counted, &both->closed)
                                    : rnbd_volume_close(both->volume, counted, &both->closed));
}

/* Nobody answers at that port. */
static void who_waits_is_told(void) {
    int of_session;
    for (of_session = 0; of_session < 2; of_session++) {
        rnbd_session *session = fresh(NOBODY);
        rnbd_volume *other;
        struct both both = {of_session ? session : NULL, NULL, 0, {0}};
        pthread_t id;
        EXPECT(0, rnbd_session_start(session));
        EXPECT(0, rnbd_volume_open(session, "vol", 0, &both.volume));
        EXPECT(0, rnbd_volume_open(session, "other", 0, &other));
        EXPECT(0, pthread_create(&id, NULL, waits, &both));
        until_asleep(&both.waiter);
        EXPECT(0, rnbd_volume_close(other, closes_the_other, &both));
        pthread_join(id, NULL);
        until(session, &both.closed, 1);
        EXPECT(0, rnbd_session_free(session));
    }
}

struct away {
    rnbd_volume *volume;
    struct count read, closed;
    atomic_int failed;
};

/* While this runs the session stands still: what another thread asks for waits to be taken in. */
static void closes_when_it_failed(void *context, int error) {
    struct away *away = context;
    EXPECT(-ECONNABORTED, error);
    away->failed = 1;
    while (away->failed == 1) usleep(1000);
    EXPECT(0, rnbd_volume_close(away->volume, counted, &away->closed));
}

static void note_loss(void *context, const struct rnbd_event *event) {
    if (event->kind == RNBD_EVENT_LINK_DOWN) atomic_store((atomic_int *)context, 1);
}

static void accepted_is_answered(void) {
    rnbd_session *session = fresh(server);
    struct away away = {0};
    atomic_int down = 0;
    EXPECT(0, rnbd_session_set(session, "hold-time", "500ms"));
    EXPECT(0, rnbd_session_on_event(session, note_loss, &down));
    EXPECT(0, rnbd_session_start(session));
    away.volume = opened(session);
    kill(server_pid, SIGKILL);
    while (!down) usleep(1000);
    EXPECT(0, rnbd_readv(away.volume, &one_block, 1, 0, 0, closes_when_it_failed, &away));
    while (!away.failed) usleep(1000);
    EXPECT(0, rnbd_readv(away.volume, &one_block, 1, 0, 0, counted, &away.read));
    away.failed = 2;
    until(session, &away.closed, 1);
    EXPECT(1, away.read.calls);
    EXPECT(-ESHUTDOWN, away.read.last);
    EXPECT(0, rnbd_session_free(session));
}

/* Stacks that no address space has room for. */
static void no_thread_is_an_error(void) {
    rnbd_session *session = fresh(server);
    pthread_attr_t usual, endless;
    EXPECT(0, pthread_getattr_default_np(&usual));
    EXPECT(0, pthread_attr_init(&endless));
    EXPECT(0, pthread_attr_setstacksize(&endless, (size_t)1 << 47));
    EXPECT(0, pthread_setattr_default_np(&endless));
    EXPECT(-EAGAIN, rnbd_session_start(session));
    if (strstr(rnbd_session_error(session), "a thread: ") == NULL) exit(1);
    EXPECT(0, pthread_setattr_default_np(&usual));
    EXPECT(0, rnbd_session_start(session));
    opened(session);
    EXPECT(0, rnbd_session_free(session));
}

/* Whether Linux counts a ring's memory as locked depends on its version. */
static void no_locked_memory_is_an_error(void) {
    rnbd_session *session = fresh(server);
    const struct rlimit none = {0, 0};
    int error;
    if (geteuid() == 0) EXPECT(0, setresuid(65534, 65534, 65534)); /* who may lock any */
    EXPECT(0, setrlimit(RLIMIT_MEMLOCK, &none));
    error = rnbd_session_start(session);
    if (error == 0) {
        opened(session);
    } else {
        EXPECT(-ENOMEM, error);
        if (strstr(rnbd_session_error(session), "ulimit -l") == NULL) exit(1);
    }
    EXPECT(0, rnbd_session_free(session));
}

/* As a program that has something else to do. */
static void a_look_is_enough(void) {
    rnbd_session *session = fresh(server);
    rnbd_volume *volume;
    int error;
    EXPECT(0, rnbd_session_start(session));
    EXPECT(0, rnbd_volume_open(session, "vol", 0, &volume));
    while ((error = rnbd_volume_wait(volume, 0)) == -ETIMEDOUT) usleep(1000);
    EXPECT(0, error);
    EXPECT(0, rnbd_session_free(session));
}

/* The export comes a second later: whoever asks again and again, and does nothing else, hears of it,
 * and has the answers to a few attempts, not thousands of one. */
static void a_refusal_is_not_the_last_word(void) {
    rnbd_session *session = fresh(server);
    rnbd_volume *volume;
    int error, answers = 0;
    EXPECT(0, rnbd_session_start(session));
    EXPECT(0, rnbd_volume_open(session, "later", 0, &volume));
    EXPECT(-ENOENT, rnbd_volume_wait(volume, -1));
    puts("refused");
    fflush(stdout);
    while ((error = rnbd_volume_wait(volume, -1)) == -ENOENT) answers++;
    EXPECT(0, error);
    EXPECT(1, answers < 100);
    EXPECT(0, rnbd_session_free(session));
}

/* Who has time hears what comes of an attempt after that: not what was said before. */
static void a_refusal_is_not_said_twice(void) {
    rnbd_session *session = fresh(server);
    rnbd_volume *volume;
    int i;
    EXPECT(0, rnbd_session_start(session));
    EXPECT(0, rnbd_volume_open(session, "later", 0, &volume));
    for (i = 0; i < 4; i++) {
        EXPECT(-ENOENT, rnbd_volume_wait(volume, -1));
        EXPECT(-ENOENT, rnbd_volume_wait(volume, 0)); /* what is known */
        EXPECT(-ENOENT, rnbd_volume_wait(volume, 1)); /* or is known by then */
    }
    puts("refused");
    fflush(stdout);
    EXPECT('\n', getchar()); /* it is there */
    EXPECT(0, rnbd_volume_wait(volume, -1));
    EXPECT(0, rnbd_session_free(session));
}

/* What a server has said is not what one says that is away. */
static void a_refusal_ends_with_the_link(void) {
    rnbd_session *session = fresh(server);
    rnbd_volume *volume;
    atomic_int down = 0;
    EXPECT(0, rnbd_session_on_event(session, note_loss, &down));
    EXPECT(0, rnbd_session_start(session));
    EXPECT(0, rnbd_volume_open(session, "no-such", 0, &volume));
    EXPECT(-ENOENT, rnbd_volume_wait(volume, -1));
    kill(server_pid, SIGKILL);
    while (!down) {
        if (threaded) {
            usleep(1000);
        } else {
            EXPECT(0, rnbd_session_process(session, -1));
        }
    }
    EXPECT(-ETIMEDOUT, rnbd_volume_wait(volume, 100));
    if (strstr(rnbd_volume_error(volume), "has no path") == NULL) exit(1);
    EXPECT(0, rnbd_session_free(session));
}

/* Nobody answers at that port, and nobody will be asked again. */
static void who_waits_in_vain_is_told(void) {
    rnbd_session *session = fresh(NOBODY);
    rnbd_volume *volume, *late;
    EXPECT(0, rnbd_session_set(session, "max-reconnect-attempts", "1"));
    EXPECT(0, rnbd_session_start(session));
    EXPECT(0, rnbd_volume_open(session, "vol", 0, &volume));
    EXPECT(-ECONNABORTED, rnbd_volume_wait(volume, -1));
    if (strstr(rnbd_volume_error(volume), "path " NOBODY ": closed") == NULL) exit(1);
    EXPECT(0, rnbd_volume_open(session, "late", 0, &late));
    EXPECT(-ECONNABORTED, rnbd_volume_wait(late, -1));
    /* It is asked again if it is added again. */
    EXPECT(0, rnbd_session_add_path(session, NOBODY));
    EXPECT(-ECONNABORTED, rnbd_volume_wait(late, -1));
    /* A new path may be better. */
    EXPECT(0, rnbd_session_add_path(session, server));
    EXPECT(0, rnbd_volume_wait(volume, -1));
    EXPECT(-EEXIST, rnbd_session_add_path(session, server));
    EXPECT(0, rnbd_session_free(session));
}

static void forked(rnbd_session *session, rnbd_volume *volume, rnbd_buffer *buffer) {
    struct count count = {0};
    rnbd_volume *another;
    EXPECT(-EPERM, rnbd_readv(volume, &one_block, 1, 0, 0, counted, &count));
    EXPECT(-EPERM, rnbd_read_buffer(volume, buffer, block, 0, 0, counted, &count));
    EXPECT(-EPERM, rnbd_flush(volume, counted, &count));
    if (strstr(rnbd_volume_error(volume), "another process") == NULL) _exit(1);
    EXPECT(-EPERM, rnbd_session_process(session, 0));
    EXPECT(-EPERM, rnbd_session_fd(session));
    EXPECT(-EPERM, rnbd_volume_open(session, "another", 0, &another));
    EXPECT(-EPERM, rnbd_volume_wait(volume, -1));
    EXPECT(-EPERM, rnbd_volume_close(volume, counted, &count));
    EXPECT(-EPERM, rnbd_buffer_put(buffer));
    EXPECT(-EPERM, rnbd_session_close(session, counted, &count));
    EXPECT(-EPERM, rnbd_session_free(session));
    if (strstr(rnbd_session_error(session), "another process") == NULL) _exit(1);
    _exit(0);
}

/* A child has no part in the sessions of its parent, which notices nothing of what it tries. */
static void a_child_is_refused(void) {
    rnbd_session *session = fresh(server);
    rnbd_volume *volume;
    rnbd_buffer *buffer;
    struct count count = {0};
    pid_t child;
    int status;
    EXPECT(0, rnbd_session_start(session));
    volume = opened(session);
    EXPECT(0, rnbd_buffer_get(session, &buffer));
    child = fork();
    if (child == 0) forked(session, volume, buffer);
    if (waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "the child ended with %#x\n", (unsigned)status);
        exit(1);
    }
    EXPECT(0, rnbd_read_buffer(volume, buffer, block, 0, 0, counted, &count));
    until(session, &count, 1);
    EXPECT(0, count.last);
    EXPECT(0, rnbd_buffer_put(buffer));
    EXPECT(0, rnbd_session_free(session));
}

/* As fork(2); the child ends with its parent at the latest. */
static pid_t forked_child(void) {
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    return 0;
}

/* It lives on, and holds nothing: the session's name is free when its parent has ended the session. */
static void a_child_holds_no_name(void) {
    rnbd_session *session = fresh(server);
    pid_t child;
    int round;
    EXPECT(0, rnbd_session_start(session));
    opened(session);
    child = forked_child(); /* which may not run before the name is taken again */
    if (child == 0) {
        for (;;) pause();
    }
    for (round = 0; round < 2; round++) {
        EXPECT(0, rnbd_session_free(session));
        session = fresh(server);
        EXPECT(0, rnbd_session_start(session));
        opened(session);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    EXPECT(0, rnbd_session_free(session));
}

/* A session that was made before the fork is each one's own to start: two to the server. */
static void forked_before_the_start(void) {
    rnbd_session *session = fresh(server);
    rnbd_volume *volume;
    struct count count = {0};
    atomic_int down = 0;
    int ends[2];
    char told;
    pid_t child;
    EXPECT(0, rnbd_session_on_event(session, note_loss, &down));
    EXPECT(0, socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    child = forked_child();
    if (child == 0) {
        EXPECT(1, (int)read(ends[1], &told, 1));
        EXPECT(0, rnbd_session_set(session, "name", "host-b"));
        EXPECT(0, rnbd_session_start(session));
        EXPECT(0, rnbd_volume_open(session, "vol", 0, &volume));
        EXPECT(-EACCES, rnbd_volume_wait(volume, -1)); /* so it is connected */
        EXPECT(1, (int)write(ends[1], "", 1));
        for (;;) pause();
    }
    EXPECT(0, rnbd_session_start(session));
    volume = opened(session);
    EXPECT(1, (int)write(ends[0], "", 1));
    EXPECT(1, (int)read(ends[0], &told, 1));
    EXPECT(0, rnbd_readv(volume, &one_block, 1, 0, 0, counted, &count));
    until(session, &count, 1);
    EXPECT(0, count.last);
    EXPECT(0, down);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    EXPECT(0, rnbd_session_free(session));
}

/* A loop that waits for the descriptor from the start on, and calls process() only then. */
static void the_descriptor_tells_of_the_start(void) {
    rnbd_session *session = fresh(server);
    struct pollfd ready = {0, POLLIN, 0};
    struct rnbd_volume_info info;
    rnbd_volume *volume;
    EXPECT(0, rnbd_session_start(session));
    EXPECT(0, rnbd_volume_open(session, "vol", 0, &volume));
    ready.fd = rnbd_session_fd(session);
    while (rnbd_volume_get_info(volume, &info, sizeof info) < 0) {
        EXPECT(1, poll(&ready, 1, -1));
        EXPECT(0, rnbd_session_process(session, 0));
    }
    EXPECT(0, rnbd_session_free(session));
}

struct stubborn {
    rnbd_volume *volume;
    atomic_int refused;
    atomic_int answered;
};

static void tries_again(void *context, int error) {
    struct stubborn *stubborn = context;
    if (error == 0) {
        stubborn->answered = 1;
        return;
    }
    if (stubborn->refused++ == 0) {
        printf("refused\n");
        fflush(stdout);
    }
    EXPECT(0, rnbd_readv(stubborn->volume, &one_block, 1, 0, 0, tries_again, stubborn));
}

/* Who asks again and again, from inside the refusal, keeps nobody from finding the server. */
static void a_refusal_that_is_tried_again(void) {
    rnbd_session *session = fresh(server);
    struct stubborn stubborn = {NULL, 0, 0};
    EXPECT(0, rnbd_session_set(session, "hold-time", "0s"));
    EXPECT(0, rnbd_session_set(session, "fail-fast-time", "0s"));
    EXPECT(0, rnbd_session_start(session));
    stubborn.volume = opened(session);
    kill(server_pid, SIGKILL);
    while (stubborn.refused == 0) {
        struct count count = {0};
        EXPECT(0, rnbd_readv(stubborn.volume, &one_block, 1, 0, 0, counted, &count));
        until(session, &count, 1);
        if (count.last != 0) tries_again(&stubborn, count.last);
    }
    while (!stubborn.answered) {
        if (threaded) {
            usleep(1000);
        } else {
            EXPECT(0, rnbd_session_process(session, -1));
        }
    }
    EXPECT(0, rnbd_session_free(session));
}

/* An answer to a part of what is under way is an answer. */
static void waits_while_parts_are_answered(void) {
    rnbd_session *session = fresh(server);
    rnbd_volume *volume;
    struct rnbd_volume_info info;
    struct count zeroes = {0};
    EXPECT(0, rnbd_session_set(session, "close-time", "14s"));
    EXPECT(0, rnbd_session_start(session));
    EXPECT(0, rnbd_volume_open(session, "parts", 0,
                               &volume)); /* answers one after 8 s, one after 16 */
    EXPECT(0, rnbd_volume_wait(volume, -1));
    EXPECT(0, rnbd_volume_get_info(volume, &info, sizeof info));
    EXPECT(0, rnbd_write_zeroes(volume, 0, info.size_bytes, 0, counted, &zeroes));
    EXPECT(0, rnbd_session_free(session));
    EXPECT(1, zeroes.calls);
    EXPECT(0, zeroes.last);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"handles", handles_outlive_close},
                 {"waits", who_waits_is_told},
                 {"accepted", accepted_is_answered},
                 {"unsaid", a_refusal_ends_with_the_link},
                 {"threads", no_thread_is_an_error},
                 {"locked", no_locked_memory_is_an_error},
                 {"looks", a_look_is_enough},
                 {"forks", a_child_is_refused},
                 {"names", a_child_holds_no_name},
                 {"made", forked_before_the_start},
                 {"descriptor", the_descriptor_tells_of_the_start},
                 {"gives-up", who_waits_in_vain_is_told},
                 {"refused", a_refusal_is_not_the_last_word},
                 {"anew", a_refusal_is_not_said_twice},
                 {"stubborn", a_refusal_that_is_tried_again},
                 {"parts", waits_while_parts_are_answered}};
    size_t i;
    if (argc != 5) return 2;
    threaded = strcmp(argv[2], "on") == 0;
    server = argv[3];
    server_pid = (pid_t)atoi(argv[4]);
    alarm(limit_s); /* what hangs is a failure */
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[1], cases[i].name) != 0) continue;
        cases[i].run();
        printf("done\n");
        return 0;
    }
    return 2;
}
