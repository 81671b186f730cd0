/* What programs that try librnbd have in common. */
#include <errno.h>
#include <librnbd/librnbd.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { block = 4096 };

static int threaded; /* the setting of every session */
static char data[block];
static struct iovec one_block = {data, block};

#define EXPECT(wanted, call)                                                               \
    do {                                                                                   \
        int got = (call);                                                                  \
        if (got != (wanted)) {                                                             \
            fprintf(stderr, "line %d: %s: got %d (%s), wanted %d\n", __LINE__, #call, got, \
                    strerror(-got), (wanted));                                             \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

/* The callbacks of one or more requests. */
struct count {
    atomic_int calls;
    atomic_int succeeded;
    atomic_int shut_down;
    atomic_int refused;
    atomic_int last;
};

static inline void counted(void *context, int error) {
    struct count *count = context;
    count->last = error;
    if (error == 0) count->succeeded++;
    if (error == -ESHUTDOWN) count->shut_down++;
    if (error == -ECONNREFUSED) count->refused++;
    count->calls++;
}

static inline void until(rnbd_session *session, struct count *count, int calls) {
    while (count->calls < calls) {
        if (threaded) {
            usleep(1000);
        } else {
            EXPECT(0, rnbd_session_process(session, -1));
        }
    }
}
