/* Reads a whole volume to standard output, many requests at once, without a copy, in a loop of the
 * program's own: poll(2) waits for the session's descriptor beside any others.
 *
 *   cc 2-many-at-once.c $(pkg-config --cflags --libs librnbd) -o 2-many-at-once
 *   ./2-many-at-once SESSION HOST:PORT VOLUME > image
 */
#include <errno.h>
#include <librnbd/librnbd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { depth = 8 };

/* A buffer of the session's and what is in it. They are used in turn, so that order is kept. */
struct part {
    rnbd_buffer *buffer;
    size_t bytes;
    int error; /* 1: under way */
};

static void finished(void *context, int error) {
    struct part *part = context;
    part->error = error;
}

static void happened(void *context, const struct rnbd_event *event) {
    (void)context;
    switch (event->kind) {
        case RNBD_EVENT_PATH_UP:
            fprintf(stderr, "path %s is up\n", event->path);
            break;
        case RNBD_EVENT_PATH_DOWN:
            fprintf(stderr, "path %s is down: %s\n", event->path, event->text);
            break;
        case RNBD_EVENT_PATH_NOT_UP:
            fprintf(stderr, "path %s does not come up: %s\n", event->path, event->text);
            break;
        case RNBD_EVENT_RESIZED:
            fprintf(stderr, "the volume has %llu bytes now\n",
                    (unsigned long long)event->size_bytes);
            break;
        default: /* others, also such as are not known yet, do not matter here */
            break;
    }
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

/* What was prepared is sent by process(0), which also takes what has come; if that was not yet what
 * is waited for, the descriptor says when there is something to do. */
static void turn(rnbd_session *session, const struct part *awaited) {
    struct pollfd ready = {rnbd_session_fd(session), POLLIN, 0};
    check_session(rnbd_session_process(session, 0), "process", session);
    if (awaited->error != 1) return;
    if (poll(&ready, 1, -1) < 0 && errno != EINTR) exit(1);
    check_session(rnbd_session_process(session, 0), "process", session);
}

static void start(rnbd_volume *volume, struct part *part, uint64_t offset, uint64_t end) {
    part->bytes = rnbd_buffer_size(part->buffer);
    if (part->bytes > end - offset) part->bytes = (size_t)(end - offset);
    part->error = 1;
    check_volume(rnbd_read_buffer(volume, part->buffer, part->bytes, offset, 0, finished, part),
                 "read", volume);
}

/* All of it, or the program ends: half an image must not pass for a whole one. */
static void keep(const char *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t kept = write(STDOUT_FILENO, data, bytes);
        if (kept < 0 && errno == EINTR) continue;
        if (kept < 0) {
            perror("standard output");
            exit(1);
        }
        data += kept;
        bytes -= (size_t)kept;
    }
}

int main(int argc, char **argv) {
    struct part parts[depth];
    struct rnbd_volume_info info;
    rnbd_session *session;
    rnbd_volume *volume;
    uint64_t asked = 0, written = 0;
    unsigned next_asked = 0, next_written = 0, i;

    if (argc != 4) {
        fprintf(stderr, "usage: %s SESSION HOST:PORT VOLUME\n", argv[0]);
        return 2;
    }
    check(rnbd_session_new(&session), "session");
    check_session(rnbd_session_set(session, "name", argv[1]), "name", session);
    check_session(rnbd_session_add_path(session, argv[2]), "path", session);
    check(rnbd_session_on_event(session, happened, NULL), "events");
    check_session(rnbd_session_start(session), "start", session);
    check_session(rnbd_volume_open(session, argv[3], RNBD_READ_ONLY, &volume), "open", session);
    check_volume(rnbd_volume_wait(volume, 10000), "open", volume);
    check_volume(rnbd_volume_get_info(volume, &info, sizeof info), "info", volume);

    for (i = 0; i < depth; i++) {
        check_session(rnbd_buffer_get(session, &parts[i].buffer), "buffer", session);
    }
    while (written < info.size_bytes) {
        while (asked < info.size_bytes && next_asked - next_written < depth) {
            struct part *part = &parts[next_asked++ % depth];
            start(volume, part, asked, info.size_bytes);
            asked += part->bytes;
        }
        while (next_written < next_asked && parts[next_written % depth].error != 1) {
            struct part *part = &parts[next_written++ % depth];
            check(part->error, "read");
            keep(rnbd_buffer_data(part->buffer), part->bytes);
            written += part->bytes;
        }
        if (written < info.size_bytes) turn(session, &parts[next_written % depth]);
    }
    for (i = 0; i < depth; i++) rnbd_buffer_put(parts[i].buffer);
    check(rnbd_session_free(session), "end");
    return 0;
}
