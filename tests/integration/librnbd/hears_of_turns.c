/* What is done once a turn comes behind all answers of that turn, whoever runs it, to the last one
 * before the volume has closed. Who leaves some of them for later hears when no more follow.
 *
 *   hears_of_turns on|off at-once|late HOST:PORT      thread; when requests follow their answers;
 *                                                     the server exports vol (rw) for host-a
 */
#include <errno.h>
#include <librnbd/librnbd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trying.h"

enum { limit_s = 300, depth = 32, requests = 2000, blocks = 1024 };

struct load {
    rnbd_volume *volume;
    int submitted; /* as the next ones: of who runs the loop, once it has begun */
    int answered;
    int told_of; /* answered ones, by the end of their turn */
    int turns;
    int left; /* answers that nobody was woken by yet */
    int rests;
    bool leaves; /* answers, until no more follow */
    atomic_int over;
    int closed;
};

static void go_on(struct load *load);

static void answered(void *context, int error) {
    struct load *load = context;
    EXPECT(0, error);
    load->answered++;
    load->left++;
    if (!load->leaves && load->submitted < requests) go_on(load);
}

static void go_on(struct load *load) {
    const uint64_t offset = (uint64_t)(load->submitted++ % blocks) * block;
    EXPECT(0, rnbd_readv(load->volume, &one_block, 1, offset, 0, answered, load));
}

/* In a turn without answers nothing is told, but that there were none to who left some. Nothing
 * else makes that load go on: without it the alarm ends the test. */
static int turned(void *context, int rests) {
    struct load *load = context;
    const bool news = load->answered != load->told_of;
    if (!threaded && !rests) exit(3);
    if (!news && !(rests && load->left > 0 && load->leaves)) exit(4);
    load->told_of = load->answered;
    load->turns += news;
    load->rests += rests;
    if (load->leaves && !rests) return 1;
    if (load->leaves) {
        for (; load->left > 0 && load->submitted < requests; load->left--) go_on(load);
    }
    load->left = 0;
    if (load->told_of == requests) load->over = 1;
    return 0;
}

/* Nothing more of its requests comes then. */
static void closed(void *context, int error) {
    struct load *load = context;
    EXPECT(0, error);
    EXPECT(load->answered, load->told_of);
    load->closed = 1;
}

/* From inside the loop, so that all of it is the loop's. */
static void begin(void *context, int error) {
    struct load *load = context;
    int i;
    EXPECT(0, error);
    load->answered++;
    load->left++;
    for (i = 0; i < depth; i++) go_on(load);
}

static rnbd_session *started(const char *server, struct load *load) {
    rnbd_session *session;
    EXPECT(-EINVAL, rnbd_session_on_turn(NULL, turned, load));
    EXPECT(0, rnbd_session_new(&session));
    EXPECT(0, rnbd_session_set(session, "name", "host-a"));
    EXPECT(0, rnbd_session_set(session, "thread", threaded ? "on" : "off"));
    EXPECT(0, rnbd_session_on_turn(session, turned, load));
    EXPECT(0, rnbd_session_add_path(session, server));
    EXPECT(0, rnbd_session_start(session));
    EXPECT(-EBUSY, rnbd_session_on_turn(session, turned, load));
    EXPECT(0, rnbd_volume_open(session, "vol", 0, &load->volume));
    EXPECT(0, rnbd_volume_wait(load->volume, -1));
    return session;
}

/* Without a thread it is told by the time that the call returns in which the answers came. */
static void run(rnbd_session *session, const struct load *load) {
    while (!load->over) {
        if (threaded) {
            usleep(1000);
        } else {
            EXPECT(0, rnbd_session_process(session, -1));
            EXPECT(load->answered, load->told_of);
        }
    }
}

int main(int argc, char **argv) {
    struct load load = {0};
    rnbd_session *session;
    if (argc != 4) return 2;
    threaded = strcmp(argv[1], "on") == 0;
    alarm(limit_s); /* what hangs is a failure */
    load.leaves = strcmp(argv[2], "late") == 0;
    session = started(argv[3], &load);
    load.submitted = 1;
    EXPECT(0, rnbd_readv(load.volume, &one_block, 1, 0, 0, begin, &load));
    run(session, &load);
    /* Who closes is answered, and told of it, before it has closed. */
    EXPECT(0, rnbd_readv(load.volume, &one_block, 1, 0, 0, answered, &load));
    EXPECT(0, rnbd_volume_close(load.volume, closed, &load));
    EXPECT(0, rnbd_session_free(session));
    EXPECT(1, load.closed);
    EXPECT(requests + 1, load.answered);
    EXPECT(requests + 1, load.told_of);
    printf("%d turns, %d rests\n", load.turns, load.rests);
    return 0;
}
