/* Opens a volume, writes a block at each line of its standard input, or waits for the volume if that
 * is "wait", and prints what comes of it.
 *
 *   writes_at_a_word HOST:PORT VOLUME
 */
#include <librnbd/librnbd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { block = 4096 };

static void check(int error, const char *text) {
    if (error >= 0) return;
    fprintf(stderr, "%s (%s)\n", strerror(-error), text);
    exit(1);
}

static void say(const char *what, int number) {
    printf("%s %d\n", what, number);
    fflush(stdout);
}

static void happened(void *context, const struct rnbd_event *event) {
    (void)context;
    if (event->kind == RNBD_EVENT_OPEN) say("open", 0);
    if (event->kind == RNBD_EVENT_NOT_OPEN) say("not open", event->error);
}

static void written(void *context, int error) {
    (void)context;
    say("written", error);
}

static void known(void *context, int error, const struct rnbd_extent *extents, size_t count) {
    (void)context;
    (void)extents;
    (void)count;
    say("known", error);
}

int main(int argc, char **argv) {
    static char data[block];
    const struct iovec one_block = {data, block};
    rnbd_session *session;
    rnbd_volume *volume;
    struct pollfd ready[2] = {{0, POLLIN, 0}, {-1, POLLIN, 0}};
    char line[64];

    if (argc != 3) return 2;
    check(rnbd_session_new(&session), "session");
    check(rnbd_session_set(session, "name", "host-a"), rnbd_session_error(session));
    check(rnbd_session_add_path(session, argv[1]), rnbd_session_error(session));
    check(rnbd_session_on_event(session, happened, NULL), rnbd_session_error(session));
    check(rnbd_session_start(session), rnbd_session_error(session));
    check(rnbd_volume_open(session, argv[2], 0, &volume), rnbd_session_error(session));
    ready[1].fd = rnbd_session_fd(session);
    for (;;) {
        check(rnbd_session_process(session, 0), rnbd_session_error(session));
        if (poll(ready, 2, -1) < 0) return 1;
        if (ready[0].revents == 0) continue;
        if (read(0, line, sizeof line) <= 0) break;
        if (strncmp(line, "wait", 4) == 0) {
            say("waited", rnbd_volume_wait(volume, -1));
            continue;
        }
        check(rnbd_writev(volume, &one_block, 1, 0, 0, written, NULL), rnbd_volume_error(volume));
        check(rnbd_get_extents(volume, 0, block, known, NULL), rnbd_volume_error(volume));
    }
    check(rnbd_session_free(session), "end");
    return 0;
}
