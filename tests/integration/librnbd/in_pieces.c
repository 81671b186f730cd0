/* Zeroes that are sent in two pieces. The server is killed when it has acknowledged one of them and
 * before the other, and comes back without what was not flushed. A flush that fails meanwhile tells
 * of the loss, but not of the zeroes.
 *
 *   in_pieces HOST:PORT SERVER_PID [forced]     the server exports vol (rw) for host-a, of memory,
 *                                               where the first of the pieces waits
 *                                               forced: with RNBD_FUA
 *
 * It says "sent", and waits for a line: that the server has done the second.
 */
#include <errno.h>
#include <librnbd/librnbd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { block = 4096, limit_s = 300 };

static char data[block];
static struct iovec one_block = {data, block};
static int zeroed = 1, flushed = 1, down; /* 1: not answered */

static void check(int error, const char *what, const char *text) {
    if (error >= 0) return;
    fprintf(stderr, "%s: %s (%s)\n", what, strerror(-error), text);
    exit(1);
}

static void finished(void *context, int error) { *(int *)context = error; }

static void happened(void *context, const struct rnbd_event *event) {
    (void)context;
    if (event->kind == RNBD_EVENT_LINK_DOWN) down = 1;
}

/* What a flush says from now on. */
static int flush_now(rnbd_session *session, rnbd_volume *volume) {
    int said = 1;
    check(rnbd_flush(volume, finished, &said), "flush", rnbd_volume_error(volume));
    while (said == 1) rnbd_session_process(session, -1);
    return said;
}

static void write_now(rnbd_session *session, rnbd_volume *volume) {
    int said = 1;
    check(rnbd_writev(volume, &one_block, 1, 0, 0, finished, &said), "write",
          rnbd_volume_error(volume));
    while (said == 1) rnbd_session_process(session, -1);
    check(said, "write", rnbd_volume_error(volume));
}

int main(int argc, char **argv) {
    unsigned flags = argc == 4 ? RNBD_FUA : 0;
    int again = 1, next, last;
    rnbd_session *session;
    rnbd_volume *volume;
    struct rnbd_volume_info info;
    char line[16];

    if (argc < 3) return 2;
    alarm(limit_s);
    check(rnbd_session_new(&session), "session", "");
    check(rnbd_session_set(session, "name", "host-a"), "name", "");
    check(rnbd_session_add_path(session, argv[1]), "path", rnbd_session_error(session));
    check(rnbd_session_on_event(session, happened, NULL), "events", "");
    check(rnbd_session_start(session), "start", rnbd_session_error(session));
    check(rnbd_volume_open(session, "vol", 0, &volume), "open", rnbd_session_error(session));
    check(rnbd_volume_wait(volume, -1), "open", rnbd_volume_error(volume));
    check(rnbd_volume_get_info(volume, &info, sizeof info), "info", rnbd_volume_error(volume));

    check(rnbd_write_zeroes(volume, 0, info.size_bytes, flags, finished, &zeroed), "zeroes",
          rnbd_volume_error(volume));
    write_now(session, volume); /* Behind both: the server has them. */
    puts("sent");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) return 2;
    write_now(session, volume); /* Behind the answer to the second piece: it is here. */
    if (zeroed != 1) return 3;
    kill((pid_t)atoi(argv[2]), SIGKILL);
    while (!down) rnbd_session_process(session, -1);
    /* The program's own flush hears of the loss. */
    check(rnbd_flush(volume, finished, &flushed), "flush", rnbd_volume_error(volume));
    puts("killed");
    fflush(stdout);
    while (zeroed == 1 || flushed == 1) rnbd_session_process(session, -1);
    /* Done after the loss, and no flush: it is not lost, and tells of nothing. */
    check(rnbd_write_zeroes(volume, 0, block, RNBD_FUA, finished, &again), "zeroes",
          rnbd_volume_error(volume));
    while (again == 1) rnbd_session_process(session, -1);
    next = flush_now(session, volume);
    last = flush_now(session, volume);
    printf("flush %d, zeroes %d, forced %d, flush %d, flush %d\n", flushed, zeroed, again, next,
           last);
    check(rnbd_session_free(session), "end", "");
    return 0;
}
