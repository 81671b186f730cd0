/* Writes a line into the first blocks of a volume, flushes, reads it back.
 *
 *   cc 1-write-and-read.c $(pkg-config --cflags --libs librnbd) -o 1-write-and-read
 *   ./1-write-and-read SESSION HOST:PORT VOLUME
 */
#include <librnbd/librnbd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char line[512] = "kept at the server\n";
static char back[512];

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

static void check(int error, const char *what, const char *text) {
    if (error >= 0) return;
    fprintf(stderr, "%s: %s (%s)\n", what, strerror(-error), text);
    exit(1);
}

int main(int argc, char **argv) {
    rnbd_session *session;
    rnbd_volume *volume;
    struct iovec out = {line, sizeof line};
    struct iovec in = {back, sizeof back};
    int result;

    if (argc != 4) return 2;
    check(rnbd_session_new(&session), "session", "");
    check(rnbd_session_set(session, "name", argv[1]), "name", rnbd_session_error(session));
    check(rnbd_session_add_path(session, argv[2]), "path", rnbd_session_error(session));
    check(rnbd_session_start(session), "start", rnbd_session_error(session));

    check(rnbd_volume_open(session, argv[3], 0, &volume), "open", rnbd_session_error(session));
    check(rnbd_volume_wait(volume, 10000), "open", rnbd_volume_error(volume));

    result = 1;
    check(rnbd_writev(volume, &out, 1, 0, 0, finished, &result), "write",
          rnbd_volume_error(volume));
    check(until_done(session, &result), "write", "");

    result = 1;
    check(rnbd_flush(volume, finished, &result), "flush", rnbd_volume_error(volume));
    check(until_done(session, &result), "flush", "");

    result = 1;
    check(rnbd_readv(volume, &in, 1, 0, 0, finished, &result), "read", rnbd_volume_error(volume));
    check(until_done(session, &result), "read", "");

    fputs(back, stdout);
    check(rnbd_session_free(session), "end", "");
    return 0;
}
