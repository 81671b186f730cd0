/* Writes a line into the first blocks of a volume, flushes, reads it back.
 *
 *   cc 1-write-and-read.c $(pkg-config --cflags --libs librnbd) -o 1-write-and-read
 *   ./1-write-and-read SESSION HOST:PORT VOLUME
 */
#include <librnbd/librnbd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One whole block of any volume: they have 512 or 4096 bytes. */
static char line[4096] = "kept at the server\n";
static char back[4096];

static void finished(void *context, int error) {
    int *result = context;
    *result = error;
}

/* The session runs only inside process(): until the one request that is under way is done. */
static int until_done(rnbd_session *session, int *result) {
    while (*result == 1) {
        int failed = rnbd_session_process(session, -1);
        if (failed < 0) return failed;
    }
    return *result;
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
    rnbd_session *session;
    rnbd_volume *volume;
    struct iovec out = {line, sizeof line};
    struct iovec in = {back, sizeof back};
    int result;

    if (argc != 4) {
        fprintf(stderr, "usage: %s SESSION HOST:PORT VOLUME\n", argv[0]);
        return 2;
    }
    check(rnbd_session_new(&session), "session");
    check_session(rnbd_session_set(session, "name", argv[1]), "name", session);
    check_session(rnbd_session_add_path(session, argv[2]), "path", session);
    check_session(rnbd_session_start(session), "start", session);

    check_session(rnbd_volume_open(session, argv[3], 0, &volume), "open", session);
    check_volume(rnbd_volume_wait(volume, 10000), "open", volume);

    result = 1;
    check_volume(rnbd_writev(volume, &out, 1, 0, 0, finished, &result), "write", volume);
    check(until_done(session, &result), "write");

    result = 1;
    check_volume(rnbd_flush(volume, finished, &result), "flush", volume);
    check(until_done(session, &result), "flush");

    result = 1;
    check_volume(rnbd_readv(volume, &in, 1, 0, 0, finished, &result), "read", volume);
    check(until_done(session, &result), "read");

    fputs(back, stdout);
    check(rnbd_session_free(session), "end");
    return 0;
}
