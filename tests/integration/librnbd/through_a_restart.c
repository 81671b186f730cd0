/* Writes and reads back numbered blocks, many at once, until its standard input ends; prints events.
 * An error is a failure: a session waits for its server.
 *
 *   through_a_restart on|off HOST:PORT VOLUME HOST:PORT
 */
#include <librnbd/librnbd.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { depth = 64, block = 4096 };

/* One block of the volume: written with a number, read back, and again. */
struct slot {
    rnbd_volume *volume;
    uint64_t offset;
    uint64_t number;
    int reading;
    uint64_t memory[block / 8];
};

static atomic_int running = 1, active = depth;
static atomic_ulong rounds;

_Noreturn static void fail(const char *what, int error) {
    printf("failed: %s: %s\n", what, strerror(-error));
    fflush(stdout);
    _exit(1);
}

static void next(struct slot *slot);

static void done(void *context, int error) {
    struct slot *slot = context;
    unsigned i;
    if (error < 0) fail(slot->reading ? "read" : "write", error);
    if (slot->reading) {
        for (i = 0; i < block / 8; i++) {
            if (slot->memory[i] != slot->number) fail("the data", -5);
        }
        rounds++;
    }
    slot->reading = !slot->reading;
    next(slot);
}

static void next(struct slot *slot) {
    struct iovec halves[2] = {{slot->memory, 512}, {slot->memory + 64, block - 512}};
    unsigned i;
    int error;
    if (!slot->reading) {
        if (!running) {
            active--;
            return;
        }
        slot->number++;
        for (i = 0; i < block / 8; i++) slot->memory[i] = slot->number;
        error = rnbd_writev(slot->volume, halves, 2, slot->offset, 0, done, slot);
    } else {
        memset(slot->memory, 0, sizeof slot->memory);
        error = rnbd_readv(slot->volume, halves, 2, slot->offset, 0, done, slot);
    }
    if (error < 0) fail(rnbd_volume_error(slot->volume), error);
}

static void happened(void *context, const struct rnbd_event *event) {
    static const char *const names[] = {"",     "link up",  "link down", "path up",    "path down",
                                        "open", "not open", "resized",   "path not up"};
    (void)context;
    if (event->kind == RNBD_EVENT_PATH_NOT_UP) {
        printf("%s: %s: %s\n", event->path, event->text, strerror(-event->error));
    }
    printf("%s\n", names[event->kind]);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static struct slot slots[depth];
    rnbd_session *session;
    rnbd_volume *volume;
    struct pollfd ready[2] = {{0, POLLIN, 0}, {-1, POLLIN, 0}};
    int threaded, error, i;

    if (argc != 5) return 2;
    threaded = strcmp(argv[1], "on") == 0;
    if (rnbd_session_new(&session) < 0 || rnbd_session_set(session, "name", "host-a") < 0 ||
        rnbd_session_set(session, "thread", argv[1]) < 0 ||
        rnbd_session_add_path(session, argv[2]) < 0 ||
        rnbd_session_add_path(session, argv[4]) < 0 ||
        rnbd_session_on_event(session, happened, NULL) < 0 || rnbd_session_start(session) < 0 ||
        rnbd_volume_open(session, argv[3], 0, &volume) < 0) {
        fail(rnbd_session_error(session), 0);
    }
    error = rnbd_volume_wait(volume, -1);
    if (error < 0) fail(rnbd_volume_error(volume), error);
    for (i = 0; i < depth; i++) {
        slots[i].volume = volume;
        slots[i].offset = (uint64_t)i * block;
        next(&slots[i]);
    }
    if (!threaded) ready[1].fd = rnbd_session_fd(session);
    while (active > 0) {
        if (!threaded && (error = rnbd_session_process(session, 0)) < 0) fail("process", error);
        if (active == 0) break;
        if (poll(ready, 2, threaded ? 10 : -1) < 0) fail("poll", -1);
        if (ready[0].revents != 0) {
            running = 0;
            ready[0].fd = -1;
        }
    }
    error = rnbd_session_free(session);
    if (error < 0) fail("free", error);
    printf("rounds %lu\n", (unsigned long)rounds);
    return 0;
}
