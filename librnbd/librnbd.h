/* librnbd: volumes of an rnbd-server, for programs in C. librnbd(3) describes every function.
 *
 * A session is a bond to one server over one or more paths; a volume is one of its exports. Both
 * outlive their connections: what is lost is dialled and opened again, and requests wait meanwhile.
 *
 * RESULTS: functions that return int return 0 (rnbd_session_fd(): a descriptor) on success, else a
 * negative errno; then rnbd_session_error() or rnbd_volume_error() says in words what was wrong.
 *
 * THREAD: a session without a thread of its own is used by one thread: the one that started it.
 * Everything happens inside rnbd_session_process(). With the setting `thread` its loop runs in a
 * thread of its own: then every function but fd and process, which are refused, may be called from
 * any thread, and callbacks come from the session's.
 *
 * CALLBACKS come from inside the functions that wait, rnbd_session_process(), rnbd_volume_wait()
 * and rnbd_session_free(), or from the session's thread; never from inside the call that caused
 * them. In them every function may be called but those that wait.
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
/* Memory of the session that requests move data from and to without a copy. */
typedef struct rnbd_buffer rnbd_buffer;

/* "0.1.0" */
const char *rnbd_version(void);

/* --- Events: what happens by itself. A newer library may tell more kinds: ignore those. */

enum rnbd_event_kind {
    RNBD_EVENT_LINK_UP = 1,   /* a first path is up (again) */
    RNBD_EVENT_LINK_DOWN = 2, /* the last path was lost: requests wait; error, text */
    RNBD_EVENT_PATH_UP = 3,   /* path */
    RNBD_EVENT_PATH_DOWN = 4, /* path, error, text */
    RNBD_EVENT_OPEN = 5,      /* volume, size_bytes: it is open (again); text, if its storage at the
                               * server has gone: its requests fail, or wait, there */
    RNBD_EVENT_NOT_OPEN = 6,  /* volume, error if the server refused it, text: it is tried again,
                               * but for -ESTALE: another writer has written while this session
                               * was away, and requests of the volume fail until it is closed */
    RNBD_EVENT_RESIZED = 7,   /* volume, size_bytes: it is open, with another size than before */
    RNBD_EVENT_PATH_NOT_UP = 8 /* path, error, text: an attempt to connect it has failed, and not
                                * for the reason of the last one; it is tried again */
};

/* Lives for the callback. What the kind does not name is 0 or NULL, but for the text of a volume
 * that is open, which is there whenever there is something to say. */
struct rnbd_event {
    int kind;  /* enum rnbd_event_kind; a program passes over those that it does not know */
    int error; /* a negative errno, or 0 */
    rnbd_volume *volume;
    const char *path;
    const char *text;
    uint64_t size_bytes;
};

typedef void (*rnbd_event_fn)(void *context, const struct rnbd_event *event);
/* error: 0, or a negative errno. */
typedef void (*rnbd_done_fn)(void *context, int error);
/* rests: 0: more answers may follow at once; 1: none for now. Returns 0, or, if rests is 0, 1:
 * somebody was left waiting for more of them. */
typedef int (*rnbd_turn_fn)(void *context, int rests);

/* --- Sessions. */

/* The program's, until it calls rnbd_session_free(). */
int rnbd_session_new(rnbd_session **session);
/* Before the start, as on_event. Strings that a program hands over are copied. */
int rnbd_session_set(rnbd_session *session, const char *key, const char *value);
int rnbd_session_on_event(rnbd_session *session, rnbd_event_fn event, void *context);
/* Before the start. Called once behind all callbacks of requests of one turn of the loop, if there
 * were any: who hands answers on to other threads wakes these in here. One that is woken in each
 * callback may take the processor from the loop, which has more answers.
 *
 * It may leave one that has few of its answers waiting for more, and returns 1: then it is called
 * behind the next turn in any case, with rests = 1 if that brought no answers, and the loop does
 * not sleep before. A session without a thread rests behind every turn. */
int rnbd_session_on_turn(rnbd_session *session, rnbd_turn_fn turn, void *context);
/* "[standby:][tcp:|rdma:][SOURCE@]HOST:PORT"; before the start or after it. One that was given up
 * (reconnect-attempts) is dialled again. */
int rnbd_session_add_path(rnbd_session *session, const char *path);
int rnbd_session_remove_path(rnbd_session *session, const char *path);
int rnbd_session_start(rnbd_session *session);
/* Readable when process has something to do; stays the session's. */
int rnbd_session_fd(rnbd_session *session);
/* timeout_ms: 0: does not wait, -1: as long as it takes. Without a thread nothing is sent or
 * received but in here. */
int rnbd_session_process(rnbd_session *session, int timeout_ms);
/* done (may be NULL): when all is finished. The handles stay until the session is freed. */
int rnbd_session_close(rnbd_session *session, rnbd_done_fn done, void *context);
/* Closes it, waits for the end, and frees it with its volumes. If it fails, all of it lives on:
 * -EBUSY (buffers were not put back), -EDEADLK (in a callback), -EPERM (another thread, or a child
 * of fork). NULL: 0. No other call of the session may be under way. */
int rnbd_session_free(rnbd_session *session);
/* Lives until the same thread asks again, as that of a volume. */
const char *rnbd_session_error(rnbd_session *session);

/* --- Volumes. */

enum rnbd_open_flags {
    RNBD_READ_ONLY = 1,
    RNBD_MIGRATION = 2 /* beside another writer, while a machine moves */
};

/* Begins to open it. flags: enum rnbd_open_flags. Once it was open, requests wait while it is not;
 * before that they are refused (-ENOTCONN). If it fails *volume is NULL. */
int rnbd_volume_open(rnbd_session *session, const char *name, unsigned flags, rnbd_volume **volume);
/* Until it is open, or the server has refused it. timeout_ms: as process. A refusal that was heard
 * before the call is not the answer while there is time: the server is asked again by itself, at
 * most two seconds later. When the time is over, or with 0, it is the newest refusal. */
int rnbd_volume_wait(rnbd_volume *volume, int timeout_ms);
/* done (may be NULL): after those of its requests. The handle is not to be used from here on. */
int rnbd_volume_close(rnbd_volume *volume, rnbd_done_fn done, void *context);
const char *rnbd_volume_error(rnbd_volume *volume);

enum rnbd_volume_flags {
    RNBD_IS_OPEN = 1,
    RNBD_IS_READ_ONLY = 2,
    RNBD_HAS_WRITE_CACHE = 4, /* what is not flushed may be lost with the server's machine */
    RNBD_HAS_FUA = 8,         /* else RNBD_FUA is a flush behind the request */
    RNBD_HAS_DISCARD = 16,
    RNBD_HAS_WRITE_ZEROES = 32, /* else zeroes are sent as data */
    RNBD_HAS_FAST_ZERO = 64,
    RNBD_HAS_EXTENTS = 128
};

struct rnbd_volume_info {
    uint64_t size_bytes;
    uint32_t flags;                /* enum rnbd_volume_flags */
    uint32_t block_bytes;          /* every offset and length is a multiple of it */
    uint32_t physical_block_bytes; /* better multiples */
    uint32_t max_io_bytes;         /* a longer request is cut; the size of a buffer */
    uint32_t queue_depth;          /* how many requests the session has under way at most */
    uint32_t discard_granularity_bytes;
    uint64_t losses; /* how often the server lost what it had acknowledged; a flush told of each */
};

/* info_bytes: sizeof(struct rnbd_volume_info) as the program knows it. */
int rnbd_volume_get_info(rnbd_volume *volume, struct rnbd_volume_info *info, size_t info_bytes);

/* --- Requests. `done` is called exactly once for each that was accepted with 0. Offsets and sizes
 * are bytes, multiples of block_bytes; flags are of enum rnbd_request_flags. */

enum rnbd_request_flags {
    RNBD_FUA = 1,      /* done when it is on stable storage; writes, discards, zeroes */
    RNBD_NO_HOLE = 2,  /* write_zeroes: the space stays allocated */
    RNBD_FAST_ZERO = 4 /* write_zeroes: -EOPNOTSUPP rather than as slow as a write */
};

/* The memory stays in place until done; the array of iovecs need not. */
int rnbd_readv(rnbd_volume *volume, const struct iovec *iov, int iov_count, uint64_t offset,
               unsigned flags, rnbd_done_fn done, void *context);
int rnbd_writev(rnbd_volume *volume, const struct iovec *iov, int iov_count, uint64_t offset,
                unsigned flags, rnbd_done_fn done, void *context);
int rnbd_flush(rnbd_volume *volume, rnbd_done_fn done, void *context);
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
    uint32_t flags; /* enum rnbd_extent_flags; 0: data */
    uint32_t reserved;
};

/* The extents follow each other from the offset on and live for the callback. They may end before
 * the range does, then the program asks again from there, or after it. */
typedef void (*rnbd_extents_fn)(void *context, int error, const struct rnbd_extent *extents,
                                size_t count);

/* Which parts of the range are allocated; with RNBD_HAS_EXTENTS. Of a longer range the first 2 GiB
 * are asked. */
int rnbd_get_extents(rnbd_volume *volume, uint64_t offset, uint64_t bytes, rnbd_extents_fn known,
                     void *context);

/* --- Buffers: requests without a copy. Each holds one of the session's queue_depth. */

/* The program's, until it is put. If it fails *buffer is NULL. */
int rnbd_buffer_get(rnbd_session *session, rnbd_buffer **buffer);
/* Page aligned, the same until put. */
void *rnbd_buffer_data(rnbd_buffer *buffer);
/* max_io_bytes. */
size_t rnbd_buffer_size(rnbd_buffer *buffer);
/* If it fails, the program has it still: -EBUSY (it has a request under way), -EPERM, as free.
 * NULL: 0. */
int rnbd_buffer_put(rnbd_buffer *buffer);
/* The first `bytes` of the buffer. It is the program's again when done is called. */
int rnbd_read_buffer(rnbd_volume *volume, rnbd_buffer *buffer, size_t bytes, uint64_t offset,
                     unsigned flags, rnbd_done_fn done, void *context);
int rnbd_write_buffer(rnbd_volume *volume, rnbd_buffer *buffer, size_t bytes, uint64_t offset,
                      unsigned flags, rnbd_done_fn done, void *context);

#ifdef __cplusplus
}
#endif

#endif
