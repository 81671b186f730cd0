/* More requests than the session may have under way, while a volume or the server is away.
 *
 *   short_of_permits starve HOST:PORT       the server exports gone and there (rw) for host-a; what
 *                                           it does is told by lines of standard input
 *   short_of_permits depth HOST:PORT        exports slow, whose requests wait, and there
 *   short_of_permits fail-fast HOST:PORT    exports there
 *   short_of_permits taken HOST:PORT HOST:PORT   the same server by two addresses; exports gone
 */
#include "trying.h"

enum { many = 200, few = 5 };

static rnbd_session *started_with(const char *fail_fast, const char *name, const char *path) {
    rnbd_session *session;
    EXPECT(0, rnbd_session_new(&session));
    EXPECT(0, rnbd_session_set(session, "name", name));
    EXPECT(0, rnbd_session_set(session, "fail-fast-time", fail_fast));
    EXPECT(0, rnbd_session_add_path(session, path));
    EXPECT(0, rnbd_session_start(session));
    return session;
}

static rnbd_session *started(const char *name, const char *path) {
    return started_with("300ms", name, path);
}

static rnbd_volume *opened(rnbd_session *session, const char *name) {
    rnbd_volume *volume;
    EXPECT(0, rnbd_volume_open(session, name, 0, &volume));
    EXPECT(0, rnbd_volume_wait(volume, -1));
    return volume;
}

/* Tells the test, and goes on until it says a line. */
static void say_and_hear(rnbd_session *session, const char *what) {
    struct pollfd heard = {STDIN_FILENO, POLLIN, 0};
    char line[80];
    puts(what);
    fflush(stdout);
    while (poll(&heard, 1, 0) == 0) EXPECT(0, rnbd_session_process(session, 20));
    if (fgets(line, sizeof line, stdin) == NULL) exit(1);
}

static void submit(rnbd_volume *volume, struct count *count, int requests) {
    for (int i = 0; i < requests; i++)
        EXPECT(0, rnbd_writev(volume, &one_block, 1, (uint64_t)i * block, 0, counted, count));
}

static void starve(const char *path) {
    static struct count waits, answered;
    rnbd_session *session = started("host-a", path);
    rnbd_volume *gone = opened(session, "gone"), *there = opened(session, "there");
    say_and_hear(session, "open");
    submit(gone, &waits, many);
    for (int round = 0; round < 3; round++) {
        submit(there, &answered, few * many);
        until(session, &answered, (round + 1) * few * many);
    }
    EXPECT(3 * few * many, answered.succeeded);
    EXPECT(0, waits.calls);
    say_and_hear(session, "answered");
    until(session, &waits, many);
    EXPECT(many, waits.succeeded);
    EXPECT(0, rnbd_session_free(session));
}

/* All buffers that there are, while another volume's requests hang. */
static void all_buffers(rnbd_session *session, rnbd_volume *there) {
    static struct count answered;
    rnbd_buffer *buffers[many];
    int held = 0;
    while (rnbd_buffer_get(session, &buffers[held]) == 0) held++;
    EXPECT(-EAGAIN, rnbd_buffer_get(session, &buffers[held]));
    submit(there, &answered, few);
    until(session, &answered, few);
    EXPECT(few, answered.succeeded);
    while (held > 0) EXPECT(0, rnbd_buffer_put(buffers[--held]));
}

/* What another volume, or the program's buffers, leave free again is used at once. */
static void depth(const char *path) {
    static struct count waits, closed;
    rnbd_session *session = started("host-a", path);
    rnbd_volume *slow = opened(session, "slow"), *there = opened(session, "there");
    rnbd_buffer *buffers[10];
    for (int i = 0; i < 10; i++) EXPECT(0, rnbd_buffer_get(session, &buffers[i]));
    submit(slow, &waits, many);
    say_and_hear(session, "part");
    all_buffers(session, there);
    for (int i = 0; i < 10; i++) EXPECT(0, rnbd_buffer_put(buffers[i]));
    say_and_hear(session, "more");
    EXPECT(0, rnbd_volume_close(there, counted, &closed));
    until(session, &closed, 1);
    EXPECT(0, waits.calls);
    say_and_hear(session, "all");
    until(session, &waits, many);
    EXPECT(many, waits.succeeded);
    EXPECT(0, rnbd_session_free(session));
}

static void fail_fast(const char *path) {
    static struct count waits, late;
    /* Within that all that is to wait has to be submitted, on a machine that is busy, too. */
    rnbd_session *session = started_with("5s", "host-a", path);
    rnbd_volume *there = opened(session, "there");
    say_and_hear(session, "open");
    submit(there, &waits, many);
    /* The first of them is tried until what comes late is refused. */
    while (late.last != -ECONNABORTED) {
        EXPECT(0, rnbd_session_process(session, 20));
        if (late.calls == 0 || late.last == 0) submit(there, &late, 1);
    }
    EXPECT(0, waits.calls);
    say_and_hear(session, "refused");
    until(session, &waits, many);
    EXPECT(many, waits.succeeded);
    EXPECT(0, rnbd_session_free(session));
}

static void taken(const char *path, const char *other) {
    static struct count refused;
    rnbd_session *session = started("host-a", path);
    rnbd_volume *gone = opened(session, "gone");
    rnbd_session *newer;
    say_and_hear(session, "open");
    submit(gone, &refused, many);
    newer = started("host-a", other);
    while (refused.calls < many) {
        EXPECT(0, rnbd_session_process(session, 20));
        EXPECT(0, rnbd_session_process(newer, 20));
    }
    EXPECT(0, refused.succeeded);
    EXPECT(-ECONNREFUSED, refused.last);
    EXPECT(many, refused.refused);
    EXPECT(0, rnbd_session_free(session));
    EXPECT(0, rnbd_session_free(newer));
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    alarm(300);
    if (strcmp(argv[1], "starve") == 0) starve(argv[2]);
    if (strcmp(argv[1], "depth") == 0) depth(argv[2]);
    if (strcmp(argv[1], "fail-fast") == 0) fail_fast(argv[2]);
    if (strcmp(argv[1], "taken") == 0 && argc == 4) taken(argv[2], argv[3]);
    puts("done");
    return 0;
}
