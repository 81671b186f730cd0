/* fio's engine `rnbd`: jobs on volumes of an rnbd-server, through librnbd.
 *
 * A job has a session of its own, without a thread: the job's thread sends and receives, and many
 * requests leave with one system call. With `shared` the jobs of one process, which are threads
 * then, use one session, which has a thread of its own if there are several.
 *
 * fio asks for the size before it starts jobs, often in another process than the job's: setup()
 * opens the volume for that and closes it again.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* fio's own headers; what they declare is in the program that loads us. */
#include <fio.h>

#include "fio-engine/bond.h"
#include "fio-engine/checks.h"

/* --- A job. */

/* When fio was told to end, and nothing is answered for so long, the session is closed: it waits for
 * answers for its close-time then. */
enum { silence_max_s = 5 };

struct job;

struct slot {
    struct job *job;
    rnbd_buffer *buffer; /* io_u->buf is its memory; or NULL */
};

struct job {
    struct bond *bond;
    struct bond own; /* bond, unless it is shared */
    bool shared;
    bool ending; /* the session was told to close, a shared one when all its jobs are ending */
    bool over;   /* fio takes no answers any more */
    bool told;   /* to end; then, until another answer comes: */
    uint64_t answered_then;
    struct timespec quiet_since;
    bool complained;            /* a request's error was said in words */
    unsigned batch;             /* requests that commit() sends together */
    struct io_u **unsent_io_us; /* whose time of issue is that of the turn that sends them */
    unsigned unsent;
    uint64_t submitted;
    unsigned depth;
    struct io_u **taken; /* of `done`, by the newest getevents() */
    struct slot *slots;  /* one for each io_u */
    /* Guarded by the lock if the session is shared, as what follows. */
    uint64_t answered_count;
    /* Answered requests, a ring of `depth`. */
    struct io_u **done;
    unsigned done_head;
    unsigned done_count;
    pthread_mutex_t lock;
    struct waiter waiter;
};

static void lock_job(struct job *job) {
    if (job->shared) pthread_mutex_lock(&job->lock);
}

static void unlock_job(struct job *job) {
    if (job->shared) pthread_mutex_unlock(&job->lock);
}

static void request_done(void *context, int error) {
    struct io_u *io_u = context;
    struct job *job = ((struct slot *)io_u->engine_data)->job;
    unsigned place;
    io_u->error = -error;
    lock_job(job);
    place = job->done_head + job->done_count;
    if (place >= job->depth) place -= job->depth;
    job->done[place] = io_u;
    job->done_count++;
    job->answered_count++;
    /* With the lock held: who has seen the last answer may be gone. */
    if (job->shared) wake_later(job->bond, &job->waiter);
    unlock_job(job);
}

/* --- Before the jobs start. */

/* With create_serialize=0 fio asks in the job, which has its session by then. */
static int ask_volume(struct thread_data *td, const struct engine_options *o,
                      struct rnbd_volume_info *info) {
    const struct job *job = td->io_ops_data;
    struct bond own = {0};
    const struct bond *bond = job != NULL ? job->bond : &own;
    int failed = job != NULL ? 0 : make_bond(td, o, &own, RNBD_READ_ONLY, false);
    if (failed != 0) return failed;
    if (rnbd_volume_get_info(bond->volume, info, sizeof *info) < 0) {
        failed = complain(td, -EIO, o->volume, rnbd_volume_error(bond->volume));
    }
    part_with(&own);
    return failed;
}

static int engine_setup(struct thread_data *td) {
    const struct engine_options *o = td->eo;
    struct rnbd_volume_info info;
    int failed = check_job(td, o);
    if (failed == 0) failed = ask_volume(td, o, &info);
    if (failed == 0) failed = check_block_size(td, &info);
    if (failed != 0) return failed;
    if (!td->files_index) {
        add_file(td, "rnbd", 0, 0);
        td->o.nr_files = td->o.nr_files ? td->o.nr_files : 1;
        td->o.open_files++;
    }
    td->files[0]->real_file_size = info.size_bytes;
    return 0;
}

/* --- In the job. */

/* What waits between two requests must not keep the one before. */
static bool paced(const struct thread_data *td) {
    unsigned way;
    /* A log's delays count from the last time of issue, which is when a request is sent. */
    if (td->o.read_iolog_file != NULL) return true;
    for (way = 0; way < DDIR_RWDIR_CNT; way++) {
        if (td->o.rate[way] != 0 || td->o.rate_iops[way] != 0) return true;
    }
    return td->o.thinktime != 0;
}

static int engine_init(struct thread_data *td) {
    const struct engine_options *o = td->eo;
    struct job *job;
    if (check_job(td, o) != 0) return 1; /* with create_serialize=0 setup() is called later */
    job = calloc(1, sizeof *job);
    if (job == NULL) return complain(td, -ENOMEM, "job", "out of memory");
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->waiter.answered, NULL);
    td->io_ops_data = job;
    job->depth = td->o.iodepth;
    job->waiter.depth = job->depth;
    job->batch = paced(td) ? 1 : o->batch;
    job->shared = o->shared && thread_number > 1; /* alone it is faster without the thread */
    job->slots = calloc(job->depth, sizeof *job->slots);
    job->done = calloc(job->depth, sizeof *job->done);
    job->taken = calloc(job->depth, sizeof *job->taken);
    job->unsent_io_us = calloc(job->depth, sizeof *job->unsent_io_us);
    if (job->slots == NULL || job->done == NULL || job->taken == NULL ||
        job->unsent_io_us == NULL) {
        return complain(td, -ENOMEM, "job", "out of memory");
    }
    if (job->shared) {
        job->bond = take_shared(td, o);
        return job->bond == NULL;
    }
    if (make_bond(td, o, &job->own, open_flags(td, o), false) != 0) return 1;
    job->bond = &job->own;
    return 0;
}

static int engine_io_u_init(struct thread_data *td, struct io_u *io_u) {
    struct job *job = td->io_ops_data;
    struct slot *slot = &job->slots[io_u->index]; /* the index has engine_data's place */
    slot->job = job;
    io_u->engine_data = slot;
    return 0;
}

static void put_buffers(struct job *job) {
    unsigned i;
    for (i = 0; job->slots != NULL && i < job->depth; i++) {
        if (job->slots[i].buffer != NULL) rnbd_buffer_put(job->slots[i].buffer);
        job->slots[i].buffer = NULL;
    }
}

/* All or none: requests without a buffer would wait for the one permit that is left. */
static bool get_buffers(struct job *job, unsigned long long bytes) {
    struct rnbd_volume_info info;
    unsigned i;
    if (rnbd_volume_get_info(job->bond->volume, &info, sizeof info) < 0) return false;
    if (bytes > info.max_io_bytes) return false;
    for (i = 0; i < job->depth; i++) {
        if (rnbd_buffer_get(job->bond->session, &job->slots[i].buffer) < 0) {
            put_buffers(job);
            return false;
        }
    }
    return true;
}

/* fio has laid out its own memory by now, and filled it with what a job writes. */
static int engine_post_init(struct thread_data *td) {
    const struct engine_options *o = td->eo;
    struct job *job = td->io_ops_data;
    const unsigned long long bytes = td_max_bs(td);
    struct io_u *io_u;
    unsigned i;
    if (td->error) return 0; /* fio found no memory, and goes on to its end from here */
    if (!o->registered || !(td_read(td) || td_write(td)) || !get_buffers(job, bytes)) return 0;
    io_u_qiter(&td->io_u_all, io_u, i) {
        void *memory = rnbd_buffer_data(((struct slot *)io_u->engine_data)->buffer);
        memcpy(memory, io_u->buf, bytes);
        io_u->buf = memory;
    }
    return 0;
}

/* --- Requests. */

static int start_data(const struct thread_data *td, struct io_u *io_u, struct job *job) {
    rnbd_volume *volume = job->bond->volume;
    rnbd_buffer *buffer = ((struct slot *)io_u->engine_data)->buffer;
    const bool writes = io_u->ddir == DDIR_WRITE;
    const unsigned flags = writes && td->o.sync_io ? RNBD_FUA : 0;
    const size_t bytes = io_u->xfer_buflen;
    struct iovec iov = {io_u->xfer_buf, bytes};
    if (buffer != NULL && rnbd_buffer_data(buffer) == io_u->xfer_buf) {
        return writes ? rnbd_write_buffer(volume, buffer, bytes, io_u->offset, flags, request_done,
                                          io_u)
                      : rnbd_read_buffer(volume, buffer, bytes, io_u->offset, flags, request_done,
                                         io_u);
    }
    return writes ? rnbd_writev(volume, &iov, 1, io_u->offset, flags, request_done, io_u)
                  : rnbd_readv(volume, &iov, 1, io_u->offset, flags, request_done, io_u);
}

static int start_request(const struct thread_data *td, struct io_u *io_u, struct job *job) {
    rnbd_volume *volume = job->bond->volume;
    switch (io_u->ddir) {
        case DDIR_READ:
        case DDIR_WRITE:
            return start_data(td, io_u, job);
        case DDIR_TRIM:
            return rnbd_discard(volume, io_u->offset, io_u->xfer_buflen,
                                td->o.sync_io ? RNBD_FUA : 0, request_done, io_u);
        case DDIR_SYNC:
        case DDIR_DATASYNC:
        case DDIR_SYNC_FILE_RANGE: /* a flush is of the whole volume, which is more */
            return rnbd_flush(volume, request_done, io_u);
        default:
            return -EINVAL;
    }
}

/* One reading of the clock for all that leave together. */
static void note_issue(struct thread_data *td, struct io_u *const *io_us, unsigned count) {
    struct timespec now;
    unsigned i;
    if (count == 0 || !fio_fill_issue_time(td)) return;
    fio_gettime(&now, NULL);
    for (i = 0; i < count; i++) {
        io_us[i]->issue_time = now;
        io_u_queued(td, io_us[i]); /* what fio calls slat ends here */
    }
    if (td->o.read_iolog_file) td->last_issue = now;
}

static enum fio_q_status engine_queue(struct thread_data *td, struct io_u *io_u) {
    struct job *job = td->io_ops_data;
    int error;
    fio_ro_check(td, io_u);
    if (job->shared) note_issue(td, &io_u, 1); /* its session's thread may be faster than we are */
    error = job->ending && !job->shared ? -ESHUTDOWN : start_request(td, io_u, job);
    if (error == 0) {
        job->submitted++;
        if (!job->shared) job->unsent_io_us[job->unsent++] = io_u;
        return FIO_Q_QUEUED;
    }
    io_u->error = -error;
    if (!job->complained && !job->ending) {
        log_err("fio: rnbd: %s: %s\n", io_ddir_name(io_u->ddir),
                rnbd_volume_error(job->bond->volume));
    }
    job->complained = true;
    td_verror(td, io_u->error, "rnbd");
    return FIO_Q_COMPLETED;
}

/* One turn of the own session: what was submitted leaves, what came is taken. */
static int turn(struct thread_data *td, struct job *job, int timeout_ms) {
    note_issue(td, job->unsent_io_us, job->unsent);
    job->unsent = 0;
    return rnbd_session_process(job->own.session, timeout_ms);
}

/* fio commits each request by itself, unless iodepth_batch says more. Those of a job that goes on
 * submitting leave together; one that waits sends them in getevents(). */
static int engine_commit(struct thread_data *td) {
    struct job *job = td->io_ops_data;
    if (job->shared || job->unsent < job->batch) return 0;
    return turn(td, job, 0);
}

static bool is_away(const struct job *job) {
    return __atomic_load_n(&job->bond->away, __ATOMIC_RELAXED);
}

/* No answer for long since the end was asked for, of a server that is there: its storage hangs. */
static bool is_silent(struct job *job) {
    struct timespec now;
    uint64_t answered;
    lock_job(job);
    answered = job->answered_count;
    unlock_job(job);
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!job->told || job->answered_then != answered) {
        job->told = true;
        job->answered_then = answered;
        job->quiet_since = now;
    }
    return now.tv_sec - job->quiet_since.tv_sec > silence_max_s;
}

/* The end was asked for while the volume is away, or answers nothing: requests that wait for it
 * fail. */
static void end_if_told(const struct thread_data *td, struct job *job) {
    if (!td->terminate || job->ending || !(is_away(job) || is_silent(job))) return;
    job->ending = true;
    if (job->shared) {
        leave_shared(job->bond);
    } else {
        rnbd_session_close(job->own.session, NULL, NULL);
    }
}

static int left_ms(const struct timespec *deadline) {
    struct timespec now;
    int64_t ms;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ms = (deadline->tv_sec - now.tv_sec) * 1000LL + (deadline->tv_nsec - now.tv_nsec) / 1000000;
    if (ms < 0) return 0;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

static void set_deadline(struct timespec *deadline, const struct timespec *wait) {
    clock_gettime(CLOCK_MONOTONIC, deadline);
    deadline->tv_sec += wait->tv_sec;
    deadline->tv_nsec += wait->tv_nsec;
    if (deadline->tv_nsec >= 1000000000) {
        deadline->tv_nsec -= 1000000000;
        deadline->tv_sec++;
    }
}

/* Until `min` are done, or the deadline. */
static int wait_own(struct thread_data *td, struct job *job, unsigned min,
                    const struct timespec *deadline) {
    int error = 0;
    if (job->done_count == 0 && min == 0) error = turn(td, job, 0);
    while (error == 0 && job->done_count < min) {
        int timeout = deadline == NULL ? -1 : left_ms(deadline);
        if (deadline != NULL && timeout == 0) return turn(td, job, 0);
        end_if_told(td, job);
        if ((is_away(job) || td->terminate) && (timeout < 0 || timeout > away_slice_ms))
            timeout = away_slice_ms;
        error = turn(td, job, timeout);
    }
    return error;
}

static int wait_shared(const struct thread_data *td, struct job *job, unsigned min,
                       const struct timespec *deadline) {
    pthread_mutex_lock(&job->lock);
    while (job->done_count < min) {
        const struct timespec most = {0, away_slice_ms * 1000000L};
        struct timespec slice;
        if (deadline != NULL && left_ms(deadline) == 0) break;
        set_deadline(&slice, &most);
        if (deadline != NULL && left_ms(deadline) < away_slice_ms) slice = *deadline;
        if (pthread_cond_clockwait(&job->waiter.answered, &job->lock, CLOCK_MONOTONIC, &slice) ==
            0) {
            continue;
        }
        pthread_mutex_unlock(&job->lock); /* who closes may wait for who answers */
        end_if_told(td, job);
        pthread_mutex_lock(&job->lock);
    }
    pthread_mutex_unlock(&job->lock);
    return 0;
}

static unsigned take_done(struct job *job, unsigned max) {
    unsigned count;
    unsigned i;
    lock_job(job);
    count = job->done_count < max ? job->done_count : max;
    for (i = 0; i < count; i++) {
        job->taken[i] = job->done[job->done_head];
        job->done_head = job->done_head + 1 == job->depth ? 0 : job->done_head + 1;
    }
    job->done_count -= count;
    unlock_job(job);
    return count;
}

static int engine_getevents(struct thread_data *td, unsigned int min, unsigned int max,
                            const struct timespec *wait) {
    struct job *job = td->io_ops_data;
    struct timespec deadline;
    const struct timespec *until = NULL;
    unsigned done;
    int error;
    if (wait != NULL) {
        set_deadline(&deadline, wait);
        until = &deadline;
    }
    error = job->shared ? wait_shared(td, job, min, until) : wait_own(td, job, min, until);
    done = take_done(job, max);
    if (error != 0 && done == 0) {
        complain(td, error, "session", rnbd_session_error(job->bond->session));
        return error;
    }
    return (int)done;
}

static struct io_u *engine_event(struct thread_data *td, int number) {
    const struct job *job = td->io_ops_data;
    return job->taken[number];
}

/* --- The end. */

/* The first request that failed, of those whose answers fio does not take; or NULL. */
static const struct io_u *untold_failure(struct job *job) {
    const struct io_u *failed = NULL;
    unsigned i;
    lock_job(job);
    for (i = 0; i < job->done_count && failed == NULL; i++) {
        const struct io_u *done = job->done[(job->done_head + i) % job->depth];
        if (done->error != 0) failed = done;
    }
    unlock_job(job);
    return failed;
}

/* fio asks for no answers any more when a log that it replays is over, and frees the memory of
 * requests that are still under way. Before that it frees those that are not; the one that it had
 * no line for is among them. */
static void engine_io_u_free(struct thread_data *td, struct io_u *io_u) {
    struct job *job = td->io_ops_data;
    const struct io_u *failed;
    unsigned all;
    (void)io_u;
    if (job == NULL || job->over) return;
    job->over = true;
    /* If nothing was answered until the log was over, fio has told the job to end, not its user,
     * who still can. */
    if (td->o.read_iolog_file != NULL && td->done) td->terminate = false;
    lock_job(job);
    all = job->done_count + (unsigned)(job->submitted - job->answered_count);
    unlock_job(job);
    if (job->shared) {
        wait_shared(td, job, all, NULL);
    } else {
        wait_own(td, job, all, NULL);
    }
    failed = untold_failure(job);
    if (failed != NULL && !td->terminate) {
        complain(td, -failed->error, io_ddir_name(failed->ddir), strerror(failed->error));
    }
}

static void engine_cleanup(struct thread_data *td) {
    struct job *job = td->io_ops_data;
    if (job == NULL) return;
    td->io_ops_data = NULL;
    put_buffers(job);
    if (job->shared && job->bond != NULL) {
        forget_waiter(job->bond, &job->waiter);
        if (job->ending) leave_shared_no_more(job->bond);
        put_shared(job->bond, job->depth);
    }
    part_with(&job->own);
    pthread_cond_destroy(&job->waiter.answered);
    pthread_mutex_destroy(&job->lock);
    free(job->slots);
    free(job->done);
    free(job->taken);
    free(job->unsent_io_us);
    free(job);
}

/* Nothing of what fio does with files has a meaning here. */
static int engine_open_file(struct thread_data *td, struct fio_file *file) {
    (void)td;
    (void)file;
    return 0;
}

__attribute__((visibility("default"))) struct ioengine_ops ioengine = {
    .name = "rnbd",
    .version = FIO_IOOPS_VERSION,
    /* fio's offload hands a job's requests to workers, each of which would be a job to us. */
    .flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NO_OFFLOAD | FIO_ASYNCIO_SETS_ISSUE_TIME,
    .setup = engine_setup,
    .init = engine_init,
    .post_init = engine_post_init,
    .queue = engine_queue,
    .commit = engine_commit,
    .getevents = engine_getevents,
    .event = engine_event,
    .cleanup = engine_cleanup,
    .open_file = engine_open_file,
    .invalidate = engine_open_file,
    .io_u_init = engine_io_u_init,
    .io_u_free = engine_io_u_free,
    .option_struct_size = sizeof(struct engine_options),
    .options = engine_option_table,
};
