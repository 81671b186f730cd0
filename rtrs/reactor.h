// The loop: one io_uring per thread that carries sockets, files and timeouts together.
//
// A turn: submit what was prepared and wait -> hand every completion to its Operation -> expire
// timers -> run turn-end tasks (which batch: one send for all answers of a turn) -> again.
// Nothing in here costs a system call per request, except read_now() and write_now().
//
// THREAD: everything but post() and stop() is for the reactor's thread: the one that calls run()
// and on which handlers run. In a ReactorGroup "the reactor's thread" is whichever of the members'
// threads runs a handler. Only one does at a time, so what other headers assign to that thread
// needs no lock there either. create() may be called on another thread: the thread of the first
// turn owns the reactor. An embedder with a loop of its own waits for fd() to become readable and
// then calls run_once(); it also calls run_once() with zero wait before its first wait and after
// preparing work outside a turn.
//
// END: the destructor runs on that same thread, or after that thread has ended. Before that, the
// owner has cancelled its operations and run turns until they completed, and disarmed its timers.
// If operations are still in flight (an embedder that gives up), the destructor cancels them and
// waits until the kernel no longer uses their memory, without calling handlers: that memory must
// last until then. Posted and offloaded functions that have not run yet are dropped.
//
// Needs Linux 6.1: provided buffer rings, IORING_SETUP_DEFER_TASKRUN. create() says what is
// missing.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <expected>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <system_error>

#include "rtrs/base/bytes.h"
#include "rtrs/base/clock.h"
#include "rtrs/base/intrusive_list.h"
#include "rtrs/base/member_call.h"

namespace rtrs {

struct Membership;

// One piece of ring work. The caller owns it and keeps it alive and in place until its (last)
// completion.
struct Operation {
    // result: the system call's, negative errno on failure.
    struct Result {
        std::int32_t value = 0;
        bool more = false;             // not the last completion
        bool copied = false;           // last completion of sendmsg_zero_copy(): it was copied
        bool socket_nonempty = false;  // recv on TCP: there is more to read
        std::optional<std::uint16_t> buffer{};  // recv_provided: which buffer was filled
    };
    using Completed = void (*)(Operation& operation, const Result& result);

    explicit Operation(Completed handler) noexcept : completed(handler) {}
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    Completed completed;
    bool in_flight = false;  // set by the reactor
    // Set by the reactor.
    bool of_storage = false;     // a file or block device has to answer it
    bool large_receive = false;  // a recv_all() of much; see set_busy_poll()
};

// An Operation whose completion calls a member function of its owner, which takes the result, the
// result's value, or nothing.
//
//   MemberOperation<&Listener::on_accepted> accept_{*this};
template <auto method>
struct MemberOperation : Operation {
    using Owner = typename OwnerOf<decltype(method)>::Type;
    explicit MemberOperation(Owner& its_owner) noexcept : Operation(&done), owner(its_owner) {}
    static void done(Operation& operation, const Result& result) {
        Owner& its_owner = static_cast<MemberOperation&>(operation).owner;
        if constexpr (requires { (its_owner.*method)(result); })
            (its_owner.*method)(result);
        else if constexpr (requires { (its_owner.*method)(result.value); })
            (its_owner.*method)(result.value);
        else
            (its_owner.*method)();
    }
    Owner& owner;
};

// Something to do at the end of the current turn, at most once per turn however often scheduled.
struct TurnTask : ListLink {
    using Run = void (*)(TurnTask& task);
    explicit TurnTask(Run handler) noexcept : run(handler) {}
    Run run;
};

// A TurnTask that runs a member function of its owner.
template <auto method>
struct MemberTask : TurnTask {
    using Owner = typename OwnerOf<decltype(method)>::Type;
    explicit MemberTask(Owner& its_owner) noexcept : TurnTask(&call), owner(its_owner) {}
    static void call(TurnTask& task) { (static_cast<MemberTask&>(task).owner.*method)(); }
    Owner& owner;
};

// A place other than the ring where news appears in memory: a device's completion queue.
class Lookout : public ListLink {
  public:
    // Whether there is news. Called between turns. It calls no handlers: it arms a timer for now,
    // which processes what was found.
    virtual bool look() noexcept = 0;
    // The reactor is about to sleep: the lookout sees to it that news from now on comes through the
    // ring. True if some has come before; the reactor then acts as if look() had found it.
    virtual bool before_sleep() noexcept = 0;

  protected:
    ~Lookout() = default;
};

class Reactor : public Clock {
  public:
    struct Options {
        // The entries are written in turn, round and round, so a ring larger than turns need only
        // takes space in the cache. A turn that prepares more entries submits in between.
        std::uint32_t submission_entries = 256;
        // Shared receive buffers of recv_provided(); the count is a power of two.
        std::uint32_t receive_buffers = 16;
        std::uint32_t receive_buffer_bytes = 256u << 10;
        // Slots for register_buffer. 0..16384.
        std::uint32_t fixed_buffers = 8192;
        // Slots for register_file. 0..16384.
        std::uint32_t fixed_files = 1024;
    };

    // ERRORS: ENOSYS (no io_uring), EPERM (off: kernel.io_uring_disabled or seccomp), EINVAL
    // (kernel before 6.1, options out of range), ENOMEM (memlock limit).
    static std::expected<std::unique_ptr<Reactor>, std::error_code> create(const Options& options);
    static std::expected<std::unique_ptr<Reactor>, std::error_code> create();
    ~Reactor() override;

    // Clock: inside a turn, the time read when it woke up; outside a turn, the current time.
    Instant now() const noexcept override;

    // From outside a turn: runs the pending turn-end tasks, so that the next run_once() may wait,
    // which it does not do while any are pending. Sends leave, and handlers may run in here.
    void run_turn_end();
    // Runs turns until stop(). Handlers run in here.
    void run();
    // One turn; waits at most max_wait (none: until something happens).
    void run_once(std::optional<Duration> max_wait);
    // Thread safe, not async-signal-safe. run() returns after the current turn.
    void stop();
    // Thread safe. The function runs in a coming turn of this reactor, on its own thread.
    void post(std::function<void()> function);
    // Becomes readable when run_once() has something to do; for poll(2) and the like. The reactor
    // keeps owning it.
    int fd() const noexcept;

    // --- For a ReactorGroup. A reactor that is in none is the only member of its own.

    std::uint32_t members() const noexcept;
    // number: 0..members() - 1.
    Reactor& member(std::uint32_t number) noexcept;
    // This reactor's number among the members.
    std::uint32_t number() const noexcept;
    // The member on whose thread this is called: work given to it involves no other thread.
    Reactor& here() noexcept;
    // The number of the only member whose thread is held on some processors, not all, with this one
    // among them, since the group was started; none: no member is, or several are.
    std::optional<std::uint32_t> member_held_on(unsigned processor) const noexcept;
    // Runs done in a coming turn of this reactor, when all members have unregistered what they were
    // asked to by now.
    void when_unregistered(std::function<void()> done);

    // Before sleeping, polls for news for up to this long, which saves the sleep and the wake-up
    // when an answer is near. Polling that finds nothing may cost what finds have saved, plus a
    // thousandth of the time (rtrs/reactor/busy_poll.h). Zero, the default: never. No effect on a
    // kernel without deferred completions.
    //
    // Does not poll within a millisecond after a recv_all() of 16 KiB or more has begun or ended:
    // compared with that a sleep costs little, and the peer may need the processor.
    //
    // requests: polls only while so many are in flight. At least one: for programs with many loops,
    // each of which may waste a thousandth of the time. At most a few: for who stands between those
    // who send requests and those who answer them. With many in flight polling finds them one by
    // one, and keeps a processor from them; a sleep ends with several.
    struct InFlight {
        std::uint32_t min = 0;
        std::uint32_t max = std::numeric_limits<std::uint32_t>::max();
    };
    void set_busy_poll(Duration window, InFlight requests);
    void set_busy_poll(Duration window) { set_busy_poll(window, InFlight{}); }
    bool polls_busily() const noexcept;
    // Whether the reactor's thread is of the scheduling policy SCHED_BATCH while it is busy, so
    // that it does not take the processor from who wakes it, as long as that costs little waiting
    // (rtrs/reactor/batch_scheduling.h). Off at first. To be called before the first turn. No
    // effect in a group, on a thread with another policy than SCHED_OTHER, and where the kernel
    // tells nothing of a thread's waiting.
    void set_batch_scheduling(bool on) noexcept;
    // Say that the reactor's thread has begun to work on a request, and has answered one: it is in
    // flight between. By how many there are it is judged whether to poll, and what it waits for a
    // processor. ASSUMES: each that ends was begun.
    void begin_request() noexcept;
    void end_request() noexcept;
    // Whether sendmsg() may do what SendBy::call says, and whether its callers may take other
    // measures so that a peer begins earlier. On at first.
    void set_prompt_sends(bool on) noexcept;
    bool prompt_sends() const noexcept;
    // Whether file operations may begin inside a turn, by submit_early(), read_now() and
    // write_now(). On at first. Never in a group: the others would wait for the baton that long.
    void set_prompt_storage(bool on) noexcept;
    bool prompt_storage() const noexcept;
    // Creates the second ring, which read_polled() and write_polled() use. To be called once,
    // before the first turn. Excludes fd(), since nothing of that ring makes fd() readable. ERRORS:
    // EINVAL (not supported by the kernel), ENOMEM.
    std::error_code prepare_polling();
    // Whether read_polled() and write_polled() may be used. Never in a group: the others would have
    // the baton for moments only.
    bool polls_storage() const noexcept;
    // The lookout is asked once before every turn, and repeatedly while the reactor busy-polls. One
    // that has told its device to announce news has nothing to look for, and costs nothing.
    void add_lookout(Lookout& lookout) noexcept;
    static void remove_lookout(Lookout& lookout) noexcept;

    // Runs task at the end of this turn, after all completions were handed out and timers expired.
    // If called from a turn-end task: still in this turn, after those scheduled before. If called
    // outside a turn: at the beginning of the next one, which submits what the task prepares and
    // does not wait.
    void at_turn_end(TurnTask& task) noexcept;
    static void cancel_turn_end(TurnTask& task) noexcept;

    // Ring work. Every call prepares an entry; the turn submits it.
    // ASSUMES: the operation is not in flight; buffers, msghdr and address stay in place until
    // it completes; descriptors are in blocking mode (for others the ring answers EAGAIN
    // instead of waiting).
    //
    // Accepts one connection. A caller that wants more calls again from the completion: other work
    // goes between, and connections that come faster than they are served wait in the socket's
    // queue.
    void accept(Operation& operation, int fd);
    void connect(Operation& operation, int fd, const sockaddr* address, socklen_t bytes);
    // Receives into a shared buffer that the kernel picks when data is there; max_bytes 0: a whole
    // buffer. The handler gives the buffer back with return_buffer(). Result -ENOBUFS: no buffer is
    // free; try again next turn.
    enum class FirstTry : std::uint8_t { at_once, after_poll };
    void recv_provided(Operation& operation, int fd, std::uint32_t max_bytes, FirstTry first_try);
    // As recv_provided(), but repeatedly and with whole buffers. Each time data is there, the
    // operation completes with `more`. The completion without `more` is the last, and may carry
    // bytes too: the stream has ended or is broken, the operation was cancelled, or no buffer was
    // free.
    void recv_multishot(Operation& operation, int fd);
    // Whether recv_multishot() stays in flight when it has delivered all there was: since Linux
    // 6.6.
    bool keeps_receives() const noexcept;
    MutableBytes received(std::uint16_t buffer, std::uint32_t bytes) noexcept;
    void return_buffer(std::uint16_t buffer) noexcept;
    // Receives straight into the target; waits until it is full, unless the stream ends
    // (MSG_WAITALL).
    void recv_all(Operation& operation, int fd, MutableBytes target);
    // Sends all of the message unless the stream breaks (MSG_WAITALL | MSG_NOSIGNAL); the result
    // may still be short, in which case the caller sends the rest.
    //
    // call: sends at once by a system call of its own, and completes when this turn ends. Only for
    // the first send of a turn that asks for it, and if the socket has room; otherwise as with
    // ring. It saves an entry, a completion and a turn, and the other side begins earlier. Never in
    // a group: the others would wait for the baton as long as it takes.
    enum class SendBy : std::uint8_t { ring, call };
    // flags: MSG_MORE of send(2), or 0.
    void sendmsg(Operation& operation, int fd, const msghdr* message, SendBy by = SendBy::ring,
                 int flags = 0);
    // Sends without a copy if possible: the kernel reads the memory until the peer has acknowledged
    // it. The first completion is as sendmsg()'s. If it says `more`, another one follows when the
    // memory is no longer read. Result -EINVAL: Linux before 6.2.
    void sendmsg_zero_copy(Operation& operation, int fd, const msghdr* message);
    // Whether a sendmsg() with SendBy::call would now be done by a system call, if the socket has
    // room.
    bool may_call_send() const noexcept;
    // Whether in one of the last turns more than one socket had something for recv_provided(): then
    // there is work for others while one peer waits.
    bool serves_several_streams() const noexcept;
    enum class FixedBuffer : std::int32_t { none = -1 };  // else the slot of register_buffer
    enum class FixedFile : std::int32_t { none = -1 };    // else the slot of register_file
    // A file that many requests use. It is named by its slot if it has one.
    struct File {
        int fd = -1;
        FixedFile slot = FixedFile::none;
        // Even starting an operation may block (FUSE): one of the ring's threads does it.
        bool begins_slowly = false;
    };
    // flags: RWF_* of pwritev2(2).
    void read(Operation& operation, File file, MutableBytes target, std::uint64_t offset,
              FixedBuffer buffer = FixedBuffer::none);
    void write(Operation& operation, File file, Bytes source, std::uint64_t offset, int flags,
               FixedBuffer buffer = FixedBuffer::none);
    // Submits what is prepared, if that is at least entries_min entries: a disk begins with it
    // while the turn goes on. Otherwise, or if prompt_storage() is off, it is submitted at the end
    // of the turn.
    void submit_early(std::uint32_t entries_min) noexcept;
    // Read and write by a system call, which blocks if the file makes it block: for files in
    // memory. Return the call's result, negative errno on failure; empty if that is not allowed
    // now, e.g. outside a turn.
    std::optional<std::int32_t> read_now(int fd, MutableBytes target,
                                         std::uint64_t offset) noexcept;
    std::optional<std::int32_t> write_now(int fd, Bytes source, std::uint64_t offset,
                                          int flags) noexcept;
    // Read and write a file with direct I/O. The end shows when the loop looks for it, not by an
    // interrupt: from the first of these operations until the last has ended the loop does not
    // sleep, and its thread must not call anything that waits for their end.
    // Result -EOPNOTSUPP: the file system does not support it. ASSUMES: polls_storage().
    void read_polled(Operation& operation, int fd, MutableBytes target, std::uint64_t offset);
    void write_polled(Operation& operation, int fd, Bytes source, std::uint64_t offset);
    void fdatasync(Operation& operation, int fd);
    void fallocate(Operation& operation, int fd, int mode, std::uint64_t offset,
                   std::uint64_t bytes);
    // Writes what the page cache holds of the range to the file or device, and waits for that. It
    // flushes neither the disk's own cache nor the file's size. A failure is reported once, as by
    // fsync().
    void write_back(Operation& operation, int fd, std::uint64_t offset, std::uint64_t bytes);
    void poll_readable(Operation& operation, int fd);
    void poll_writable(Operation& operation, int fd);
    // From now on the ring may have many threads. Normally there are four per processor, and files
    // that begin slowly may occupy all of them and keep waiting what else needs one.
    void expect_slow_files();
    // Cancels the operation, which still completes, with -ECANCELED or its own result.
    void cancel(Operation& operation);
    // Closes fd after everything that was prepared for it before. Operations in flight keep the
    // file open: cancel them first.
    void close_fd(int fd) noexcept;

    // Runs work() on a helper thread and then done() in a coming turn: for calls that have no ring
    // form (lseek with SEEK_HOLE).
    // False: no thread is available now, and neither function runs.
    [[nodiscard]] bool offload(std::function<void()> work, std::function<void()> done);

    // Registering is for the reactor's own thread, also in a group; unregistering is for any thread
    // of the group.
    //
    // Pins memory for read/write with FixedBuffer. ERRORS: ENOBUFS (no slot left), ENOMEM,
    // EOPNOTSUPP.
    std::expected<FixedBuffer, std::error_code> register_buffer(MutableBytes memory);
    void unregister_buffer(FixedBuffer buffer) noexcept;
    // Saves each read and write the lookup of the descriptor. The file stays open until it is
    // unregistered and the last operation on it has ended; another member's unregisters it in a
    // turn of its own, see when_unregistered(). ERRORS: ENOBUFS (no slot left, or Linux
    // before 6.4, which would keep the file open for longer), ENOMEM, EMFILE.
    std::expected<FixedFile, std::error_code> register_file(int fd);
    void unregister_file(FixedFile file) noexcept;

    // Counted since the reactor was created.
    struct Statistics {
        std::uint64_t turns = 0;
        std::uint64_t completions = 0;
        std::uint64_t submissions = 0;
        // Busy polls that found something, and those that did not.
        std::uint64_t looks_found = 0;
        std::uint64_t looks_fruitless = 0;
        // Sends that left by a system call of their own.
        std::uint64_t calls = 0;
        // Sends by sendmsg_zero_copy(), and those of them that the kernel reports to have copied.
        std::uint64_t zero_copies = 0;
        std::uint64_t zero_copies_copied = 0;
        // Calls of submit_early(), read_now() and write_now() that did what they are for.
        std::uint64_t early_submits = 0;
        std::uint64_t early_reads = 0;
        std::uint64_t early_writes = 0;
        // Operations of read_polled() and write_polled().
        std::uint64_t polled = 0;
        // Calls of begin_request().
        std::uint64_t requests = 0;
        // Turns while the thread was of SCHED_BATCH.
        std::uint64_t batch_turns = 0;
    };
    const Statistics& statistics() const noexcept;

  protected:
    void arm(Timer& timer, Instant deadline) override;
    void disarm(Timer& timer) noexcept override;

  private:
    friend class ReactorGroup;
    struct Inside;
    explicit Reactor(std::unique_ptr<Inside> inside) noexcept;
    void join(Membership& membership, std::uint32_t number) noexcept;
    void leave() noexcept;
    void bind_to_this_thread() noexcept;
    void note_where_held() noexcept;
    void let_go_of_files() noexcept;
    std::unique_ptr<Inside> inside_;
};

}  // namespace rtrs
