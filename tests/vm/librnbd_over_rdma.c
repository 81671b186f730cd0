/* In the guest, on librnbd: writes and reads back numbered requests, many at once, over the paths that
 * it is given, until its standard input ends; then frees the session with requests under way.
 *
 *   librnbd_over_rdma on|off BUFFERED PATH...
 *
 * on|off: the setting `thread`; without one poll(2) waits for the session's descriptor. BUFFERED: how
 * many of the requests at a time use the session's buffers. Standard input: "add PATH", "remove PATH".
 * Prints events, answers and how far it is. Whatever goes wrong is a failure.
 */
#include <errno.h>
#include <librnbd/librnbd.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    depth = 16,
    block = 4096,
    most_blocks = 30,
    words = block * most_blocks / 8,
    report_every = 100
};

/* A part of the volume: written with a number, read back, and again. */
struct slot {
    rnbd_volume *volume;
    rnbd_buffer *buffer; /* or NULL */
    uint64_t *data;
    uint64_t offset;
    uint64_t number;
    size_t bytes;
    int reading;
    uint64_t memory[words];
};

static atomic_int buffers_end, all_ends, buffered, under_way = depth;
static atomic_ulong verified;

static void fail(const char *what, int error, const char *text) {
    printf("failed: %s: %s (%s)\n", what, strerror(-error), text);
    fflush(stdout);
    _exit(1);
}

static void next(struct slot *slot);

static uint64_t word(const struct slot *slot, size_t at) {
    return slot->number * 0x9e3779b97f4a7c15u + slot->offset + at;
}

static int ended(int error) {
    if (!all_ends || error != -ESHUTDOWN) return 0;
    under_way--;
    return 1;
}

static void done(void *context, int error) {
    struct slot *slot = context;
    size_t i;
    if (ended(error)) return;
    if (error < 0) fail(slot->reading ? "read" : "write", error, rnbd_volume_error(slot->volume));
    if (slot->reading) {
        for (i = 0; i < slot->bytes / 8; i++) {
            if (slot->data[i] != word(slot, i)) fail("the data", -EIO, "not what was written");
        }
        if (++verified % report_every == 0) {
            printf("verified %lu\n", (unsigned long)verified);
            fflush(stdout);
        }
    }
    slot->reading = !slot->reading;
    next(slot);
}

static int submit(struct slot *slot) {
    struct iovec parts[2] = {{slot->memory, 512}, {slot->memory + 64, slot->bytes - 512}};
    if (slot->buffer != NULL) {
        return slot->reading ? rnbd_read_buffer(slot->volume, slot->buffer, slot->bytes,
                                                slot->offset, 0, done, slot)
                             : rnbd_write_buffer(slot->volume, slot->buffer, slot->bytes,
                                                 slot->offset, 0, done, slot);
    }
    return slot->reading ? rnbd_readv(slot->volume, parts, 2, slot->offset, 0, done, slot)
                         : rnbd_writev(slot->volume, parts, 2, slot->offset, 0, done, slot);
}

static void next(struct slot *slot) {
    size_t i;
    int error;
    if (!slot->reading) {
        if (slot->buffer != NULL && buffers_end) {
            under_way--;
            buffered--;
            return;
        }
        slot->number++;
        slot->bytes = block * (1 + (slot->number * 7 + slot->offset / block) % most_blocks);
        for (i = 0; i < slot->bytes / 8; i++) slot->data[i] = word(slot, i);
    } else {
        memset(slot->data, 0, slot->bytes);
    }
    error = submit(slot);
    if (error < 0 && !ended(error)) fail("submit", error, rnbd_volume_error(slot->volume));
}

static void happened(void *context, const struct rnbd_event *event) {
    static const char *const names[] = {"",     "link up",  "link down", "path up",    "path down",
                                        "open", "not open", "resized",   "path not up"};
    (void)context;
    if (event->kind > RNBD_EVENT_PATH_NOT_UP) return; /* of a newer library */
    printf("%s %s\n", names[event->kind], event->path != NULL ? event->path : "");
    fflush(stdout);
}

static void check(rnbd_session *session, int error, const char *what) {
    if (error < 0) fail(what, error, rnbd_session_error(session));
}

static void answer(rnbd_session *session, int error, const char *line) {
    printf("%s: %s\n", line, error < 0 ? rnbd_session_error(session) : "ok");
    fflush(stdout);
}

/* 0 at its end. */
static int obey(rnbd_session *session) {
    char line[256] = "";
    size_t length = 0;
    while (length + 1 < sizeof line && read(STDIN_FILENO, line + length, 1) == 1) {
        if (line[length] == '\n') {
            line[length] = '\0';
            if (strncmp(line, "add ", 4) == 0) {
                answer(session, rnbd_session_add_path(session, line + 4), line);
            } else if (strncmp(line, "remove ", 7) == 0) {
                answer(session, rnbd_session_remove_path(session, line + 7), line);
            } else {
                fail("standard input", -EINVAL, line);
            }
            return 1;
        }
        length++;
    }
    return 0;
}

/* Whether there is something on standard input; the session goes on meanwhile. */
static int turn(rnbd_session *session, int threaded, int timeout_ms) {
    struct pollfd ready[2] = {{STDIN_FILENO, POLLIN, 0}, {-1, POLLIN, 0}};
    if (!threaded) {
        ready[1].fd = rnbd_session_fd(session);
        check(session, ready[1].fd, "fd");
        check(session, rnbd_session_process(session, 0), "process");
    }
    if (poll(ready, 2, timeout_ms) < 0 && errno != EINTR) fail("poll", -errno, "");
    if (!threaded) check(session, rnbd_session_process(session, 0), "process");
    return ready[0].revents != 0;
}

static void start(rnbd_session *session, rnbd_volume *volume, struct slot *slot, int index) {
    slot->volume = volume;
    slot->offset = (uint64_t)index * sizeof slot->memory;
    slot->data = slot->memory;
    if (index < buffered) {
        check(session, rnbd_buffer_get(session, &slot->buffer), "buffer");
        slot->data = rnbd_buffer_data(slot->buffer);
        if (rnbd_buffer_size(slot->buffer) < sizeof slot->memory) {
            fail("buffer", -EINVAL, "it is too small");
        }
    }
}

int main(int argc, char **argv) {
    static struct slot slots[depth];
    rnbd_session *session;
    rnbd_volume *volume;
    int i, threaded;
    if (argc < 4) return 2;
    threaded = strcmp(argv[1], "on") == 0;
    buffered = atoi(argv[2]);
    if (rnbd_session_new(&session) < 0) return 1;
    check(session, rnbd_session_set(session, "name", "guest"), "name");
    check(session, rnbd_session_set(session, "thread", argv[1]), "thread");
    check(session, rnbd_session_on_event(session, happened, NULL), "on_event");
    for (i = 3; i < argc; i++) check(session, rnbd_session_add_path(session, argv[i]), argv[i]);
    check(session, rnbd_session_start(session), "start");
    check(session, rnbd_volume_open(session, "volume", 0, &volume), "open");
    i = rnbd_volume_wait(volume, -1);
    if (i < 0) fail("wait", i, rnbd_volume_error(volume));
    for (i = 0; i < depth; i++) start(session, volume, &slots[i], i);
    for (i = 0; i < depth; i++) next(&slots[i]);
    while (!turn(session, threaded, -1) || obey(session)) {
    }
    buffers_end = 1;
    while (buffered > 0) turn(session, threaded, threaded ? 10 : -1);
    for (i = 0; i < depth; i++) check(session, rnbd_buffer_put(slots[i].buffer), "put");
    printf("freed with %d requests under way\n", under_way);
    all_ends = 1;
    check(session, rnbd_session_free(session), "free");
    if (under_way != 0) fail("free", -EBUSY, "not every request was called back");
    printf("done\n");
    return 0;
}
