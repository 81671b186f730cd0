/* librnbd: volumes of an rnbd-server, for programs in C. librnbd(3) describes every function.
 *
 * A session is a connection to one server over all its paths; a volume is one export of that
 * server. Both outlive their connections: the library reconnects lost paths and reopens volumes,
 * and requests wait meanwhile.
 *
 * RESULTS: functions that return int return 0 on success (rnbd_session_fd() returns a descriptor),
 * else a negative errno; rnbd_session_error() or rnbd_volume_error() then describes the error.
 * Beside the errors that a function's comment lists: -EINVAL (an argument is NULL or is not
 * understood), -ENOTCONN (the session was not started), -EPERM (called from a thread that may not,
 * as THREAD says, or in a child of fork), -ENOMEM.
 *
 * THREAD: a session without a thread of its own may be used only by the thread that started it, and
 * everything happens inside rnbd_session_process(). With the setting `thread` the session's loop
 * runs in a thread of its own. Then every function may be called from any thread, except
 * rnbd_session_fd() and rnbd_session_process(), which are refused; callbacks run in the session's
 * thread.
 *
 * CALLBACKS run inside the functions that wait, which are rnbd_session_process(),
 * rnbd_volume_wait() and rnbd_session_free(), or in the session's thread; never inside the call
 * that caused them. A callback may call every function except those that wait.
 */
#ifndef LIBRNBD_H
#define LIBRNBD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rnbd_session rnbd_session;
typedef struct rnbd_volume rnbd_volume;
/* Memory of the session. Requests transfer data from and to it without a copy. */
typedef struct rnbd_buffer rnbd_buffer;

/* The version of the library, such as "0.1.0". */
const char *rnbd_version(void);

/* --- Events: what happens without a call of the program. A newer library may report more kinds;
 * ignore those. */

enum rnbd_event_kind {
    RNBD_EVENT_LINK_UP = 1,    /* the first path is up (again) */
    RNBD_EVENT_LINK_DOWN = 2,  /* error, text: the last path was lost, requests wait */
    RNBD_EVENT_PATH_UP = 3,    /* path */
    RNBD_EVENT_PATH_DOWN = 4,  /* path, error, text */
    RNBD_EVENT_OPEN = 5,       /* volume, size_bytes: the volume is open (again); text, if its
                                * storage has gone: then its requests fail or wait at the server */
    RNBD_EVENT_NOT_OPEN = 6,   /* volume, text; error, if the server refused the volume: the library
                                * tries again, except after -ESTALE. Then another writer has written
                                * while this session was away, and requests of the volume fail
                                * until it is closed */
    RNBD_EVENT_RESIZED = 7,    /* volume, size_bytes: the volume is open, and its size changed */
    RNBD_EVENT_PATH_NOT_UP = 8 /* path, error, text: an attempt to connect the path failed, for
                                * another reason than the previous one; the library tries again */
};

/* Valid only during the callback. Members that the comment of the kind does not name are 0 or NULL,
 * with one exception: for an open volume, text is set whenever there is something to say. */
struct rnbd_event {
    int kind;  /* enum rnbd_event_kind; a program ignores kinds that it does not know */
    int error; /* a negative errno, or 0 */
    rnbd_volume *volume;
    const char *path;
    const char *text;
    uint64_t size_bytes;
};

typedef void (*rnbd_event_fn)(void *context, const struct rnbd_event *event);
/* error: 0, or a negative errno. */
typedef void (*rnbd_done_fn)(void *context, int error);
/* rests: 0 if more answers may follow at once, 1 if there are no more for now. Returns 0; or 1,
 * only if rests is 0, when it has left a thread waiting for more answers. */
typedef int (*rnbd_turn_fn)(void *context, int rests);

/* --- Sessions. */

/* The session belongs to the program until it calls rnbd_session_free(). */
int rnbd_session_new(rnbd_session **session);
/* set and on_event are called before the start, else -EBUSY. The library copies all strings that a
 * program passes. Keys and values: librnbd(3); -EINVAL: not one of them. */
int rnbd_session_set(rnbd_session *session, const char *key, const char *value);
int rnbd_session_on_event(rnbd_session *session, rnbd_event_fn event, void *context);
/* Call it before the start, else -EBUSY. `turn` is called once after all request callbacks of one
 * turn of the loop, if there were any. A program that passes answers on to other threads wakes
 * those threads in `turn`: a thread that is woken in each callback may take the processor from the
 * loop, which has more answers.
 *
 * `turn` may leave a thread that has only few of its answers waiting for more, and return 1. Then
 * it is called after the next turn in any case, with rests = 1 if that turn brought no answers, and
 * the loop does not sleep before. In a session without a thread rests is always 1. */
int rnbd_session_on_turn(rnbd_session *session, rnbd_turn_fn turn, void *context);
/* path: "[standby:][tcp:|rdma:][SOURCE@]HOST:PORT". Before or after the start. Adding a path that
 * was given up (max-reconnect-attempts) makes the session dial it again. -EEXIST (it is there, and
 * was not given up), -ENOSPC (128 paths are), -EADDRINUSE (another session on this machine has the
 * name at that address), -ENODEV (no such RDMA device), -EOPNOTSUPP (built without RDMA),
 * -ESHUTDOWN (the session is closing). */
int rnbd_session_add_path(rnbd_session *session, const char *path);
/* Requests of the path go on over another one. Before or after the start. -ENOENT (the session has
 * no such path), -EBUSY (it is the last one, after the start), -ESHUTDOWN (the session is closing).
 */
int rnbd_session_remove_path(rnbd_session *session, const char *path);
/* Begins to connect; events tell what comes of it. -EINVAL (no name or path was set, or settings
 * contradict each other), -EBUSY (it was started), -EADDRINUSE, -ENODEV (as for
 * rnbd_session_add_path()), -EAGAIN (no thread), -ENOMEM, -EMFILE, -ENOSYS, -EPERM (no io_uring).
 */
int rnbd_session_start(rnbd_session *session);
/* The descriptor is readable when rnbd_session_process() has something to do. It belongs to the
 * session. -EINVAL: the session has a thread of its own. */
int rnbd_session_fd(rnbd_session *session);
/* timeout_ms: 0: do not wait; -1: wait as long as it takes. Without a thread of its own, a session
 * sends and receives only inside this function. -EINVAL (the session has one), -EDEADLK (called in
 * a callback), -ESHUTDOWN (the session has closed). */
int rnbd_session_process(rnbd_session *session, int timeout_ms);
/* done (may be NULL) is called when everything has finished. The handles of the volumes stay valid
 * until the session is freed, and RNBD_IS_OPEN is no more among their flags. -EALREADY: it was
 * called before. */
int rnbd_session_close(rnbd_session *session, rnbd_done_fn done, void *context);
/* Closes the session, waits for the end, and frees the session and its volumes. If the call fails,
 * nothing is freed: -EBUSY (buffers were not put back), -EDEADLK (called in a callback), -EPERM
 * (called from another thread, or in a child of fork). For NULL it does nothing and returns 0. No
 * other call of the session may be under way. */
int rnbd_session_free(rnbd_session *session);
/* The text of the newest error. It is valid until the same thread asks for a text again, of a
 * session or a volume. */
const char *rnbd_session_error(rnbd_session *session);

/* --- Volumes. */

enum rnbd_open_flags {
    RNBD_READ_ONLY = 1,
    RNBD_MIGRATION = 2 /* open it beside another writer, during the migration of a machine */
};

/* Begins to open a volume. flags: enum rnbd_open_flags. Until the volume is open for the first
 * time, requests are refused (-ENOTCONN); after that they wait whenever it is not open. If the call
 * fails, *volume is NULL: -EEXIST (the session has it open, or still closes it), -ESHUTDOWN (the
 * session is closing). */
int rnbd_volume_open(rnbd_session *session, const char *name, unsigned flags, rnbd_volume **volume);
/* Waits until the volume is open, or the server has refused it. timeout_ms: as in
 * rnbd_session_process(). A refusal from before the call is not returned while there is time: the
 * library asks the server again by itself, at most two seconds later. When the time is over, or if
 * timeout_ms is 0, the newest refusal is returned: the server's errno, as -ENOENT, -EACCES, -EPERM,
 * -EBUSY, -EMEDIUMTYPE or -ESTALE. -ETIMEDOUT (no answer), -ECONNABORTED, -ECONNREFUSED (nobody is
 * asked any more), -ESHUTDOWN (it is closing), -EDEADLK (called in a callback). */
int rnbd_volume_wait(rnbd_volume *volume, int timeout_ms);
/* done (may be NULL) is called after the callbacks of the volume's requests. The program must not
 * use the handle after this call. Requests that are not at the server yet fail with -ESHUTDOWN; the
 * call itself, if the session is closing, which closes it. */
int rnbd_volume_close(rnbd_volume *volume, rnbd_done_fn done, void *context);
/* As rnbd_session_error(), for the functions that take the volume. */
const char *rnbd_volume_error(rnbd_volume *volume);

enum rnbd_volume_flags {
    RNBD_IS_OPEN = 1,
    RNBD_IS_READ_ONLY = 2,
    RNBD_HAS_WRITE_CACHE = 4, /* unflushed writes may be lost if the server's machine fails */
    RNBD_HAS_FUA = 8,         /* without it, RNBD_FUA sends a flush after the request */
    RNBD_HAS_DISCARD = 16,
    RNBD_HAS_WRITE_ZEROES = 32, /* without it, zeroes are sent as data */
    RNBD_HAS_FAST_ZERO = 64,
    RNBD_HAS_EXTENTS = 128
};

struct rnbd_volume_info {
    uint64_t size_bytes;
    uint32_t flags;                /* enum rnbd_volume_flags */
    uint32_t block_bytes;          /* every offset and length is a multiple of it */
    uint32_t physical_block_bytes; /* multiples of it are better */
    uint32_t max_io_bytes;         /* longer requests are split; also the size of a buffer */
    uint32_t queue_depth;          /* how many requests the session has under way at most */
    uint32_t discard_granularity_bytes;
    uint64_t losses; /* how often the server lost acknowledged writes; a flush fails for each */
};

/* info_bytes: sizeof(struct rnbd_volume_info), as compiled into the program. The struct may grow at
 * its end: an older program is told what it knows, and what an older library does not know is 0.
 * -ENOTCONN: the volume was never open. */
int rnbd_volume_get_info(rnbd_volume *volume, struct rnbd_volume_info *info, size_t info_bytes);

/* --- Requests. `done`, which must not be NULL, is called exactly once for each request that was
 * accepted, that is, for which the function returned 0. Offsets and sizes are in bytes, and
 * multiples of block_bytes; flags: enum rnbd_request_flags.
 *
 * Refused: -ENOTCONN (the volume was never open), -EINVAL (not whole blocks within the volume, a
 * flag that the operation does not know), -EROFS, -EOPNOTSUPP (the volume cannot), -EBUSY (the
 * buffer has a request under way), -ESHUTDOWN (the volume is closing). What `done` may be told:
 * librnbd(3). */

enum rnbd_request_flags {
    RNBD_FUA = 1,      /* writes, discards, zeroes: done only when it is on stable storage */
    RNBD_NO_HOLE = 2,  /* write_zeroes: the space stays allocated */
    RNBD_FAST_ZERO = 4 /* write_zeroes: fail with -EOPNOTSUPP if it would be as slow as a write; a
                        * part of the range may be zeroes then */
};

/* The memory must stay valid until done is called; the array of iovecs need not. */
int rnbd_readv(rnbd_volume *volume, const struct iovec *iov, int iov_count, uint64_t offset,
               unsigned flags, rnbd_done_fn done, void *context);
int rnbd_writev(rnbd_volume *volume, const struct iovec *iov, int iov_count, uint64_t offset,
                unsigned flags, rnbd_done_fn done, void *context);
/* What was answered before is on stable storage when it is done. It fails once for each of
 * rnbd_volume_info.losses. */
int rnbd_flush(rnbd_volume *volume, rnbd_done_fn done, void *context);
/* Gives the space back; what the range holds then is undefined. Needs RNBD_HAS_DISCARD. */
int rnbd_discard(rnbd_volume *volume, uint64_t offset, uint64_t bytes, unsigned flags,
                 rnbd_done_fn done, void *context);
int rnbd_write_zeroes(rnbd_volume *volume, uint64_t offset, uint64_t bytes, unsigned flags,
                      rnbd_done_fn done, void *context);

enum rnbd_extent_flags {
    RNBD_EXTENT_HOLE = 1, /* not allocated */
    RNBD_EXTENT_ZERO = 2  /* reads as zeroes */
};

struct rnbd_extent {
    uint64_t bytes;
    uint32_t flags; /* enum rnbd_extent_flags; 0: the extent holds data */
    uint32_t reserved;
};

/* The extents start at the requested offset, follow each other without a gap, and are valid only
 * during the callback. They may end after the range or before its end; in the latter case the
 * program asks again from there. */
typedef void (*rnbd_extents_fn)(void *context, int error, const struct rnbd_extent *extents,
                                size_t count);

/* Asks which parts of the range are allocated; needs RNBD_HAS_EXTENTS. Of a range longer than
 * 2 GiB, only the first 2 GiB are asked for. */
int rnbd_get_extents(rnbd_volume *volume, uint64_t offset, uint64_t bytes, rnbd_extents_fn known,
                     void *context);

/* --- Buffers: for requests without a copy. Each takes one of the session's queue_depth slots. */

/* The buffer belongs to the program until it is put. If the call fails, *buffer is NULL: -EAGAIN
 * (requests have all others), -ENOBUFS (the program has), -ENOTCONN (no path was up yet),
 * -ESHUTDOWN (the session is closing). */
int rnbd_buffer_get(rnbd_session *session, rnbd_buffer **buffer);
/* The address is page aligned, and stays the same until the buffer is put. */
void *rnbd_buffer_data(rnbd_buffer *buffer);
/* This is max_io_bytes. */
size_t rnbd_buffer_size(rnbd_buffer *buffer);
/* If the call fails, the program still owns the buffer: -EBUSY (it has a request under way), -EPERM
 * (as for rnbd_session_free()). For NULL it does nothing and returns 0. */
int rnbd_buffer_put(rnbd_buffer *buffer);
/* The request uses the first `bytes` of the buffer. The buffer belongs to the program again when
 * done is called. */
int rnbd_read_buffer(rnbd_volume *volume, rnbd_buffer *buffer, size_t bytes, uint64_t offset,
                     unsigned flags, rnbd_done_fn done, void *context);
int rnbd_write_buffer(rnbd_volume *volume, rnbd_buffer *buffer, size_t bytes, uint64_t offset,
                      unsigned flags, rnbd_done_fn done, void *context);

#ifdef __cplusplus
}
#endif

#endif
