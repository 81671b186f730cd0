/* A load on many volumes over many sessions, through librnbd, for the scaling run of the report.
 *
 *   volume_load --path HOST:PORT [--sessions N] [--busy N] [--volumes N] [--connections N]
 *               [--depth N] [--block BYTES] [--seconds N] [--quiet-seconds N]
 *
 * Session i has the name load-i. The first --busy of them (default: all) read random blocks, depth
 * requests in all, spread over them and over the volumes of each, volume-0 and following; the other
 * sessions are there and idle. Then nobody does anything for --quiet-seconds. Prints a line of JSON
 * when all are open, one when the load is over, one at the end; before each next step it waits for
 * a line of input, so that whoever measures can look at the processes.
 */
#include <errno.h>
#include <librnbd/librnbd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>

struct load;

struct session {
    rnbd_session *rnbd;
    rnbd_volume **volumes;
    struct load *load;
    bool unsent;
};

struct request {
    struct session *session;
    unsigned volume; /* of the session's; the next one afterwards */
    void *memory;
};

struct load {
    const char *path;
    long sessions, busy, volumes, connections, depth, block, seconds, quiet_seconds;
    struct session *of;
    struct request *requests;
    uint64_t blocks;
    uint64_t random;
    uint64_t done;
    long under_way;
    bool over;
    int poll;
};

static void fail(const char *what, int error, const char *text) {
    fprintf(stderr, "volume_load: %s: %s (%s)\n", what, strerror(-error), text);
    exit(1);
}

static void check(int error, const char *what) {
    if (error < 0) fail(what, error, "");
}

/* The text is asked for after the call. */
static void check_session(int error, const char *what, rnbd_session *session) {
    if (error < 0) fail(what, error, rnbd_session_error(session));
}

static void check_volume(int error, const char *what, rnbd_volume *volume) {
    if (error < 0) fail(what, error, rnbd_volume_error(volume));
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void *zeroed(size_t count, size_t bytes) {
    void *memory = calloc(count, bytes);
    if (memory == NULL) fail("memory", -ENOMEM, "");
    return memory;
}

/* --- Sessions and volumes. */

static void set(rnbd_session *session, const char *key, long value) {
    char text[24];
    snprintf(text, sizeof text, "%ld", value);
    check_session(rnbd_session_set(session, key, text), key, session);
}

static void begin_session(struct load *load, long number) {
    struct session *session = &load->of[number];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = session};
    char name[32];
    session->load = load;
    snprintf(name, sizeof name, "load-%ld", number);
    check(rnbd_session_new(&session->rnbd), "session");
    check_session(rnbd_session_set(session->rnbd, "name", name), name, session->rnbd);
    set(session->rnbd, "connections", load->connections);
    check_session(rnbd_session_add_path(session->rnbd, load->path), "path", session->rnbd);
    check_session(rnbd_session_start(session->rnbd), name, session->rnbd);
    session->volumes = zeroed((size_t)load->volumes, sizeof *session->volumes);
    if (epoll_ctl(load->poll, EPOLL_CTL_ADD, rnbd_session_fd(session->rnbd), &event) < 0) {
        fail("epoll", -errno, "");
    }
}

static void open_volumes(struct load *load, struct session *session) {
    char name[32];
    long i;
    for (i = 0; i < load->volumes; i++) {
        snprintf(name, sizeof name, "volume-%ld", i);
        check_session(rnbd_volume_open(session->rnbd, name, RNBD_READ_ONLY, &session->volumes[i]),
                      name, session->rnbd);
    }
    for (i = 0; i < load->volumes; i++) {
        check_volume(rnbd_volume_wait(session->volumes[i], 60000), "open", session->volumes[i]);
    }
}

/* One turn of each session that has something to send or to take. */
static void turn(struct load *load, int timeout_ms) {
    struct epoll_event ready[64];
    int count;
    int i;
    long number;
    for (number = 0; number < load->busy; number++) {
        struct session *session = &load->of[number];
        if (!session->unsent) continue;
        session->unsent = false;
        check(rnbd_session_process(session->rnbd, 0), "process");
    }
    count = epoll_wait(load->poll, ready, 64, timeout_ms);
    for (i = 0; i < count; i++) {
        struct session *session = ready[i].data.ptr;
        check(rnbd_session_process(session->rnbd, 0), "process");
    }
}

/* --- The load. */

static void answered(void *context, int error);

static void ask(struct load *load, struct request *request) {
    struct session *session = request->session;
    rnbd_volume *volume = session->volumes[request->volume];
    struct iovec iov = {request->memory, (size_t)load->block};
    uint64_t block;
    /* xorshift64 */
    load->random ^= load->random << 13;
    load->random ^= load->random >> 7;
    load->random ^= load->random << 17;
    block = load->random % load->blocks;
    check_volume(rnbd_readv(volume, &iov, 1, block * (uint64_t)load->block, 0, answered, request),
                 "read", volume);
    request->volume = (request->volume + (unsigned)load->depth) % (unsigned)load->volumes;
    session->unsent = true;
    load->under_way++;
}

static void answered(void *context, int error) {
    struct request *request = context;
    struct load *load = request->session->load;
    check(error, "read");
    load->done++;
    load->under_way--;
    if (!load->over) ask(load, request);
}

static void run(struct load *load) {
    const double began = now_s();
    long i;
    load->requests = zeroed((size_t)load->depth, sizeof *load->requests);
    for (i = 0; i < load->depth; i++) {
        struct request *request = &load->requests[i];
        request->session = &load->of[i % load->busy];
        request->volume = (unsigned)(i % load->volumes);
        request->memory = zeroed(1, (size_t)load->block);
        ask(load, request);
    }
    while (now_s() - began < (double)load->seconds) turn(load, 100);
    load->over = true;
    while (load->under_way > 0) turn(load, 100);
}

/* --- Between the steps. */

static void step(struct load *load, const char *name, double began, double cpu) {
    printf("{\"step\": \"%s\", \"requests\": %llu, \"seconds\": %.6f, \"cpu_s\": %.6f}\n", name,
           (unsigned long long)load->done, now_s() - began, cpu_s() - cpu);
    fflush(stdout);
    if (getchar() == EOF) exit(1);
}

static long number(const char *name, const char *text, long min) {
    char *end;
    const long value = strtol(text, &end, 10);
    if (*text != '\0' && *end == '\0' && value >= min && value <= 1000000000) return value;
    fprintf(stderr, "volume_load: %s: found \"%s\", expected a number from %ld\n", name, text, min);
    exit(2);
}

static void read_options(struct load *load, int count, char **words) {
    const struct {
        const char *name;
        long *value;
        long min;
    } known[] = {{"--sessions", &load->sessions, 1}, {"--busy", &load->busy, 1},
                 {"--volumes", &load->volumes, 1},   {"--connections", &load->connections, 1},
                 {"--depth", &load->depth, 1},       {"--block", &load->block, 512},
                 {"--seconds", &load->seconds, 0},   {"--quiet-seconds", &load->quiet_seconds, 0}};
    int i;
    size_t k;
    for (i = 1; i + 1 < count; i += 2) {
        bool found = strcmp(words[i], "--path") == 0;
        if (found) load->path = words[i + 1];
        for (k = 0; k < sizeof known / sizeof *known; k++) {
            if (strcmp(words[i], known[k].name) != 0) continue;
            *known[k].value = number(words[i], words[i + 1], known[k].min);
            found = true;
        }
        if (!found) break;
    }
    if (load->busy == 0) load->busy = load->sessions;
    if (i == count && load->path != NULL && load->busy <= load->sessions) return;
    fprintf(stderr, "usage: volume_load --path HOST:PORT [--sessions N] [--busy N] ...\n");
    exit(2);
}

int main(int count, char **words) {
    struct load load = {.sessions = 1,
                        .volumes = 1,
                        .connections = 1,
                        .depth = 32,
                        .block = 4096,
                        .seconds = 1,
                        .random = 88172645463325252u};
    struct rnbd_volume_info info;
    double began;
    double cpu;
    long i;
    read_options(&load, count, words);
    load.of = zeroed((size_t)load.sessions, sizeof *load.of);
    load.poll = epoll_create1(0);
    began = now_s();
    cpu = cpu_s();
    for (i = 0; i < load.sessions; i++) {
        begin_session(&load, i);
        open_volumes(&load, &load.of[i]);
    }
    check(rnbd_volume_get_info(load.of[0].volumes[0], &info, sizeof info), "info");
    load.blocks = info.size_bytes / (uint64_t)load.block;
    if (load.blocks == 0) fail("volume-0", -EINVAL, "it is smaller than a block");
    step(&load, "open", began, cpu);
    began = now_s();
    cpu = cpu_s();
    run(&load);
    step(&load, "load", began, cpu);
    began = now_s();
    cpu = cpu_s();
    while (now_s() - began < (double)load.quiet_seconds) turn(&load, 100);
    step(&load, "quiet", began, cpu);
    for (i = 0; i < load.sessions; i++) rnbd_session_free(load.of[i].rnbd);
    return 0;
}
