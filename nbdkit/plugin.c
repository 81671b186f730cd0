/* nbdkit-rnbd-plugin: volumes of an rnbd-server, so that nbdkit's filters and tools reach them.
 *
 * Requests come on nbdkit's threads, many at once; the session's own thread answers them. A thread
 * waits for its request, so nbdkit's --threads is the depth.
 */
#define _GNU_SOURCE /* pthread_cond_clockwait() */
#define NBDKIT_API_VERSION 2

#include <errno.h>
#include <librnbd/librnbd.h>
#include <nbdkit-plugin.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nbdkit/parameters.h"
#include "nbdkit/watch.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

/* start_slice_ms: that nbdkit is to end is looked for this often while a start waits.
 * late_s: a request that is not answered for so long is late. */
enum { start_slice_ms = 200, late_s = 1 };

/* Of parameters.session; one for all clients of nbdkit. */
static rnbd_volume *volume;

/* --- Waiting for one request. */

struct waiting {
    pthread_mutex_t mutex;
    pthread_cond_t done;
    bool finished;
    int error;
    struct nbdkit_extents *extents; /* of extents alone */
    uint64_t offset;
};

#define WAITING {.mutex = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER}

static void finished(void *context, int error) {
    struct waiting *waiting = context;
    pthread_mutex_lock(&waiting->mutex);
    waiting->error = error;
    waiting->finished = true;
    pthread_cond_signal(&waiting->done);
    pthread_mutex_unlock(&waiting->mutex);
}

/* NBD has few errors; nbdkit tells its client of all others that the request was invalid, which would
 * be wrong for those of a session without a server. */
static int nbd_errno(int error) {
    switch (error) {
        case EPERM:
        case EROFS:
        case EINVAL:
        case ENOMEM:
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
        case EOVERFLOW:
        case EOPNOTSUPP:
        case ESHUTDOWN:
            return error;
        default:
            return EIO;
    }
}

static void wait_until_finished(struct waiting *waiting) {
    struct timespec late_at;
    bool late = false;
    clock_gettime(CLOCK_MONOTONIC, &late_at);
    late_at.tv_sec += late_s;
    pthread_mutex_lock(&waiting->mutex);
    while (!waiting->finished) {
        if (late) {
            pthread_cond_wait(&waiting->done, &waiting->mutex);
        } else if (pthread_cond_clockwait(&waiting->done, &waiting->mutex, CLOCK_MONOTONIC,
                                          &late_at) == ETIMEDOUT) {
            late = true;
            watch_late_requests(1);
        }
    }
    pthread_mutex_unlock(&waiting->mutex);
    if (late) watch_late_requests(-1);
}

/* submitted: what the call that was to start it returned. */
static int wait_for(struct waiting *waiting, const char *what, int submitted) {
    if (submitted < 0) {
        nbdkit_error("%s: %s", what, rnbd_volume_error(volume));
        nbdkit_set_error(nbd_errno(-submitted));
        return -1;
    }
    wait_until_finished(waiting);
    if (waiting->error == 0) return 0;
    nbdkit_error("%s: %s", what, strerror(-waiting->error));
    nbdkit_set_error(nbd_errno(-waiting->error));
    return -1;
}

/* --- Life. Threads start after nbdkit has forked. */

static unsigned open_flags(void) { return parameters.read_only ? RNBD_READ_ONLY : 0; }

static void say_not_open(rnbd_volume *not_open, int error) {
    const char *why = rnbd_volume_error(not_open);
    const char *code = strerror(-error);
    if (strstr(why, code) != NULL) {
        nbdkit_error("volume %s: %s", parameters.volume_name, why);
    } else {
        nbdkit_error("volume %s: %s (%s)", parameters.volume_name, why, code);
    }
}

/* What fails after nbdkit has gone to the background is told to nobody, and leaves a program of
 * --run waiting for ever: so the volume is opened once before. Not with RDMA, which a process that
 * had some cannot have again once it has forked. */
static int plugin_get_ready(void) {
    rnbd_session *const trial = parameters.trial;
    rnbd_volume *tried = NULL;
    int error = 0;
    if (!parameters.has_rdma_path) {
        error = rnbd_session_start(trial);
        if (error == 0)
            error = rnbd_volume_open(trial, parameters.volume_name, open_flags(), &tried);
        if (error < 0) {
            nbdkit_error("session %s: %s", parameters.session_name, rnbd_session_error(trial));
        }
        if (error == 0) {
            error = rnbd_volume_wait(tried, (int)parameters.wait_ms);
            if (error < 0) say_not_open(tried, error);
        }
    }
    rnbd_session_free(trial);
    parameters.trial = NULL;
    return error < 0 ? -1 : 0;
}

/* 0, or a negative errno; -EINTR: nbdkit is to end. */
static int wait_until_open(void) {
    unsigned left_ms = parameters.wait_ms;
    for (;;) {
        const unsigned slice_ms = left_ms < start_slice_ms ? left_ms : start_slice_ms;
        const int error = rnbd_volume_wait(volume, (int)slice_ms);
        left_ms -= slice_ms;
        if (error != -ETIMEDOUT || left_ms == 0) return error;
        if (nbdkit_nanosleep(0, 1) < 0) return -EINTR;
    }
}

static void happened(void *context, const struct rnbd_event *event) {
    (void)context;
    if (event->kind == RNBD_EVENT_OPEN) watch_volume_away(false);
    if (event->kind == RNBD_EVENT_NOT_OPEN) watch_volume_away(true);
}

static int plugin_after_fork(void) {
    rnbd_session *const session = parameters.session;
    int error;
    if (rnbd_session_set(session, "thread", "on") < 0 ||
        rnbd_session_on_event(session, happened, NULL) < 0 || rnbd_session_start(session) < 0 ||
        rnbd_volume_open(session, parameters.volume_name, open_flags(), &volume) < 0) {
        nbdkit_error("session %s: %s", parameters.session_name, rnbd_session_error(session));
        return -1;
    }
    error = wait_until_open();
    if (error < 0) {
        say_not_open(volume, error);
        return -1;
    }
    error = watch_start(session);
    if (error == 0) return 0;
    nbdkit_error("a thread: %s", strerror(error));
    return -1;
}

static void plugin_unload(void) {
    watch_stop();
    if (parameters.session != NULL) rnbd_session_free(parameters.session);
    if (parameters.trial != NULL) rnbd_session_free(parameters.trial);
}

static void plugin_dump(void) { printf("rnbd_librnbd_version=%s\n", rnbd_version()); }

/* A loss is told by one flush of the volume, and has to be told to each client once; to one that
 * comes later if none has heard of it. */
struct client {
    uint64_t losses_heard;
};
static pthread_mutex_t losses_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t losses_heard; /* by anybody */

static void *plugin_open(int readonly) {
    struct client *client = malloc(sizeof *client);
    (void)readonly;
    if (client == NULL) {
        nbdkit_error("out of memory");
        return NULL;
    }
    pthread_mutex_lock(&losses_mutex);
    client->losses_heard = losses_heard;
    pthread_mutex_unlock(&losses_mutex);
    return client;
}

static void plugin_close(void *handle) { free(handle); }

/* --- What the volume can. */

static int info(struct rnbd_volume_info *to) {
    if (rnbd_volume_get_info(volume, to, sizeof *to) == 0) return 0;
    nbdkit_error("%s", rnbd_volume_error(volume));
    return -1;
}

static int has(unsigned flag) {
    struct rnbd_volume_info now;
    return info(&now) < 0 ? -1 : (now.flags & flag) != 0;
}

static int64_t plugin_get_size(void *handle) {
    struct rnbd_volume_info now;
    (void)handle;
    return info(&now) < 0 ? -1 : (int64_t)now.size_bytes;
}

static int plugin_block_size(void *handle, uint32_t *minimum, uint32_t *preferred,
                             uint32_t *maximum) {
    struct rnbd_volume_info now;
    (void)handle;
    if (info(&now) < 0) return -1;
    *minimum = now.block_bytes;
    *preferred = now.physical_block_bytes > 4096 ? now.physical_block_bytes : 4096;
    *maximum = UINT32_MAX; /* the library cuts */
    return 0;
}

static int plugin_can_write(void *handle) {
    int is_read_only = has(RNBD_IS_READ_ONLY);
    (void)handle;
    return is_read_only < 0 ? -1 : !is_read_only;
}

static int plugin_can_flush(void *handle) {
    (void)handle;
    return 1;
}

/* A flush covers the whole volume, whoever wrote. */
static int plugin_can_multi_conn(void *handle) {
    (void)handle;
    return 1;
}

static int plugin_can_fua(void *handle) {
    (void)handle;
    return NBDKIT_FUA_NATIVE;
}

static int plugin_can_trim(void *handle) {
    (void)handle;
    return has(RNBD_HAS_DISCARD);
}

static int plugin_can_zero(void *handle) { return plugin_can_write(handle); }

static int plugin_can_fast_zero(void *handle) {
    (void)handle;
    return has(RNBD_HAS_FAST_ZERO);
}

static int plugin_can_extents(void *handle) {
    (void)handle;
    return has(RNBD_HAS_EXTENTS);
}

/* --- Requests. */

static unsigned fua(uint32_t flags) { return (flags & NBDKIT_FLAG_FUA) != 0 ? RNBD_FUA : 0; }

static int plugin_pread(void *handle, void *buffer, uint32_t count, uint64_t offset,
                        uint32_t flags) {
    struct waiting waiting = WAITING;
    struct iovec iov = {buffer, count};
    (void)handle;
    (void)flags;
    return wait_for(&waiting, "read", rnbd_readv(volume, &iov, 1, offset, 0, finished, &waiting));
}

static int plugin_pwrite(void *handle, const void *buffer, uint32_t count, uint64_t offset,
                         uint32_t flags) {
    struct waiting waiting = WAITING;
    struct iovec iov = {(void *)buffer, count};
    (void)handle;
    return wait_for(&waiting, "write",
                    rnbd_writev(volume, &iov, 1, offset, fua(flags), finished, &waiting));
}

/* Whether it had not heard of all; now it has. */
static bool hears_of_losses(struct client *client, uint64_t losses) {
    bool news;
    pthread_mutex_lock(&losses_mutex);
    news = losses > client->losses_heard;
    if (news) client->losses_heard = losses;
    if (losses > losses_heard) losses_heard = losses;
    pthread_mutex_unlock(&losses_mutex);
    return news;
}

static int plugin_flush(void *handle, uint32_t flags) {
    struct waiting waiting = WAITING;
    struct rnbd_volume_info now;
    int failed;
    (void)flags;
    failed = wait_for(&waiting, "flush", rnbd_flush(volume, finished, &waiting));
    if (failed != 0 && waiting.error != -EIO) return failed;
    if (info(&now) < 0) return -1;
    if (!hears_of_losses(handle, now.losses) || failed != 0) return failed;
    nbdkit_error("flush: the server has lost what was written before");
    nbdkit_set_error(EIO);
    return -1;
}

static int plugin_trim(void *handle, uint32_t count, uint64_t offset, uint32_t flags) {
    struct waiting waiting = WAITING;
    (void)handle;
    return wait_for(&waiting, "trim",
                    rnbd_discard(volume, offset, count, fua(flags), finished, &waiting));
}

static int plugin_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags) {
    struct waiting waiting = WAITING;
    unsigned chosen = fua(flags);
    (void)handle;
    if ((flags & NBDKIT_FLAG_MAY_TRIM) == 0) chosen |= RNBD_NO_HOLE;
    if ((flags & NBDKIT_FLAG_FAST_ZERO) != 0) chosen |= RNBD_FAST_ZERO;
    return wait_for(&waiting, "zero",
                    rnbd_write_zeroes(volume, offset, count, chosen, finished, &waiting));
}

static void extents_known(void *context, int error, const struct rnbd_extent *extents,
                          size_t count) {
    struct waiting *waiting = context;
    size_t i;
    for (i = 0; i < count && error == 0; i++) {
        uint32_t type = 0;
        if ((extents[i].flags & RNBD_EXTENT_HOLE) != 0) type |= NBDKIT_EXTENT_HOLE;
        if ((extents[i].flags & RNBD_EXTENT_ZERO) != 0) type |= NBDKIT_EXTENT_ZERO;
        if (nbdkit_add_extent(waiting->extents, waiting->offset, extents[i].bytes, type) < 0) {
            error = -errno;
        }
        waiting->offset += extents[i].bytes;
    }
    finished(waiting, error);
}

static int plugin_extents(void *handle, uint32_t count, uint64_t offset, uint32_t flags,
                          struct nbdkit_extents *extents) {
    struct waiting waiting = WAITING;
    (void)handle;
    (void)flags;
    waiting.extents = extents;
    waiting.offset = offset;
    return wait_for(&waiting, "extents",
                    rnbd_get_extents(volume, offset, count, extents_known, &waiting));
}

static struct nbdkit_plugin plugin = {
    .name = "rnbd",
    .longname = "volumes of an rnbd-server",
    .version = RNBD_VERSION,
    .description = "RNBD volumes over RTRS, through librnbd",
    .unload = plugin_unload,
    .dump_plugin = plugin_dump,
    .config = take_parameter,
    .config_complete = complete_parameters,
    .config_help = parameters_help,
    .magic_config_key = "volume",
    .get_ready = plugin_get_ready,
    .after_fork = plugin_after_fork,
    .open = plugin_open,
    .close = plugin_close,
    .get_size = plugin_get_size,
    .block_size = plugin_block_size,
    .can_write = plugin_can_write,
    .can_flush = plugin_can_flush,
    .can_multi_conn = plugin_can_multi_conn,
    .can_fua = plugin_can_fua,
    .can_trim = plugin_can_trim,
    .can_zero = plugin_can_zero,
    .can_fast_zero = plugin_can_fast_zero,
    .can_extents = plugin_can_extents,
    .pread = plugin_pread,
    .pwrite = plugin_pwrite,
    .flush = plugin_flush,
    .trim = plugin_trim,
    .zero = plugin_zero,
    .extents = plugin_extents,
    .errno_is_preserved = 0,
};

NBDKIT_REGISTER_PLUGIN(plugin)
