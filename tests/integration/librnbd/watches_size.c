/* Opens a volume and prints its events, until its standard input ends.
 *
 *   watches_size on|off HOST:PORT VOLUME      catalog
 */
#include <librnbd/librnbd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int error, const char *text) {
    if (error >= 0) return;
    fprintf(stderr, "%s (%s)\n", strerror(-error), text);
    exit(1);
}

static void happened(void *context, const struct rnbd_event *event) {
    struct rnbd_volume_info info;
    (void)context;
    if (event->kind != RNBD_EVENT_OPEN && event->kind != RNBD_EVENT_RESIZED) return;
    check(rnbd_volume_get_info(event->volume, &info, sizeof info), "info");
    printf("%s %llu %llu\n", event->kind == RNBD_EVENT_OPEN ? "open" : "resized",
           (unsigned long long)event->size_bytes, (unsigned long long)info.size_bytes);
    fflush(stdout);
}

int main(int argc, char **argv) {
    rnbd_session *session;
    rnbd_volume *volume;
    struct pollfd ready[2] = {{0, POLLIN, 0}, {-1, POLLIN, 0}};

    if (argc != 4) return 2;
    check(rnbd_session_new(&session), "session");
    check(rnbd_session_set(session, "name", "host-a"), rnbd_session_error(session));
    check(rnbd_session_set(session, "catalog", argv[1]), rnbd_session_error(session));
    check(rnbd_session_add_path(session, argv[2]), rnbd_session_error(session));
    check(rnbd_session_on_event(session, happened, NULL), rnbd_session_error(session));
    check(rnbd_session_start(session), rnbd_session_error(session));
    check(rnbd_volume_open(session, argv[3], 0, &volume), rnbd_session_error(session));
    ready[1].fd = rnbd_session_fd(session);
    while (ready[0].revents == 0) {
        check(rnbd_session_process(session, 0), rnbd_session_error(session));
        if (poll(ready, 2, -1) < 0) return 1;
    }
    check(rnbd_session_free(session), "end");
    return 0;
}
