// The loop: one io_uring per thread that carries sockets, files and timeouts together.
//
// A turn: submit what was prepared and wait -> hand every completion to its Operation -> expire
// timers -> run turn-end tasks (which batch: one send for all answers of a turn) -> again.
// Nothing in here costs a system call per request, but for read_now() and write_now().
//
// THREAD: everything but post() and stop() is for the reactor's thread: the one that calls run(),
// which handlers run on. In a ReactorGroup it is whichever of the members' threads runs a handler;
// that is one at a time, so what belongs to "the reactor's" thread, as other headers say, needs no
// lock there either. create() may be called elsewhere: the thread of the first turn owns the
// reactor. An embedder with a loop of its own waits for fd() to become readable and calls
// run_once(); a run_once() of zero wait comes before the first wait and after every preparation
// from outside a turn.
//
// END: the destructor runs on that same thread, or after it has ended. Before it, the owner has
// cancelled its operations and run turns until they completed, and disarmed its timers. Should any
// be left in flight (an embedder that gives up), the destructor cancels them and waits until the
// kernel has let go of their memory, without calling handlers: that memory must last until then.
// Posted and offloaded functions that did not get to run are dropped.
//
// Needs Linux 6.1: provided buffer rings, IORING_SETUP_DEFER_TASKRUN. create() says what is
// missing.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <system_error>

#include "rtrs/base/bytes.h"
#include "rtrs/base/clock.h"
#include "rtrs/base/intrusive_list.h"
#include "rtrs/base/member_call.h"

struct iovec;
struct statx;

namespace rtrs {

struct Membership;

// One piece of ring work, owned by the caller, alive and in place until its (last) completion.
struct Operation {
    // result: the system call's, negative errno on failure.
    struct Result {
        std::int32_t value = 0;
        bool more = false;                      // not the last completion
        bool copied = false;                    // last of sendmsg_zero_copy(): it was copied
        bool socket_nonempty = false;           // recv on TCP: there is more to read
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
    bool large_receive = false;  // it waits for much, see set_busy_poll()
};

// One that ends in a member function of its owner, which takes the result, its value, or nothing.
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

// One that is a member function of its owner.
template <auto method>
struct MemberTask : TurnTask {
    using Owner = typename OwnerOf<decltype(method)>::Type;
    explicit MemberTask(Owner& its_owner) noexcept : TurnTask(&call), owner(its_owner) {}
    static void call(TurnTask& task) { (static_cast<MemberTask&>(task).owner.*method)(); }
    Owner& owner;
};

// A place beside the ring where news shows in memory: a device's completion queue.
class Lookout : public ListLink {
  public:
    // Whether there is news. Called between turns; calls no handlers: what it finds is worked off
    // by a timer that it arms for now.
    virtual bool look() noexcept = 0;
    // The reactor is about to sleep: what comes from now on comes through the ring. True if
    // something has come before, which is then as if look() had found it.
    virtual bool before_sleep() noexcept = 0;

  protected:
    ~Lookout() = default;
};

class Reactor : public Clock {
  public:
    struct Options {
        // One after the other is written, round and round: what is more than turns need is taken
        // from the cache. A turn that prepares more submits in between.
        std::uint32_t submission_entries = 256;
        // Shared receive buffers of recv_provided: count is a power of two.
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

    // Clock. Outside a turn: the current time.
    Instant now() const noexcept override;

    // From outside a turn: runs what is left for a turn's end, so that the next run_once() may
    // wait; without it that does not. Sends leave, and handlers may run in here.
    void run_turn_end();
    // Runs turns until stop(). Handlers run in here.
    void run();
    // One turn; waits at most max_wait (none: until something happens).
    void run_once(std::optional<Duration> max_wait);
    // Thread safe, async-signal unsafe. run() returns after the current turn.
    void stop();
    // Thread safe. The function runs in a coming turn of this reactor, on its own thread.
    void post(std::function<void()> function);
    // Readable when run_once() has something to do, for poll(2) and its like. Stays the reactor's.
    int fd() const noexcept;

    // --- Of a ReactorGroup; otherwise a reactor is the only member of its own.

    std::uint32_t members() const noexcept;
    // number: 0..members() - 1.
    Reactor& member(std::uint32_t number) noexcept;
    // Among them.
    std::uint32_t number() const noexcept;
    // The member on whose thread this is called: work that is asked of it needs no other thread.
    Reactor& here() noexcept;

    // Before sleeping, looks for news for up to this long: saves the sleep and the wake-up where an
    // answer is near. Looking that finds nothing takes what finds have saved, and a thousandth of
    // the time (rtrs/reactor/busy_poll.h). Zero, the default: never. Nothing changes on a kernel
    // without deferred completions.
    //
    // Not for a millisecond after a recv_all() of 16 KiB or more has begun or ended: beside that a
    // sleep is little, and the peer may need the processor.
    //
    // awaited: if given, only while it counts something; the reactor's thread reads it, as long as
    // the reactor runs. For who has many loops, each with a thousandth of the time to lose.
    void set_busy_poll(Duration window, const std::uint32_t* awaited = nullptr);
    bool polls_busily() const noexcept;
    // Whether sendmsg() may do what SendBy::call says, and who sends may do else so that a peer
    // begins earlier; as it may at first.
    void set_prompt_sends(bool on) noexcept;
    bool prompt_sends() const noexcept;
    // Whether work of files may begin inside a turn by submit_early(), read_now() and write_now(),
    // as it may at first. Never in a group: the others would wait for the baton that long.
    void set_prompt_storage(bool on) noexcept;
    bool prompt_storage() const noexcept;
    // Makes the second ring that read_polled() and write_polled() take. Once, before the first
    // turn; not with fd(), which nothing of that ring makes readable. ERRORS: EINVAL (the kernel
    // has none), ENOMEM.
    std::error_code prepare_polling();
    // Never in a group: the others would have the baton for moments only.
    bool polls_storage() const noexcept;
    // Asked once before every turn, and again and again while the reactor polls busily. A lookout
    // that has told the device to announce what comes has nothing to look for, and costs nothing.
    void add_lookout(Lookout& lookout) noexcept;
    static void remove_lookout(Lookout& lookout) noexcept;

    // Runs task at the end of this turn, after all completions were handed out and timers expired.
    // From inside a turn-end task: still in this turn, after those scheduled before. From outside
    // of a turn: at the beginning of the next, which submits what it prepares and does not wait.
    void at_turn_end(TurnTask& task) noexcept;
    static void cancel_turn_end(TurnTask& task) noexcept;

    // Ring work. Every call prepares; the turn submits. ASSUMES: operation not in flight; buffers,
    // msghdr, address and path stay in place until it completes; descriptors are in blocking mode
    // (the ring answers EAGAIN for others instead of waiting).
    // One connection. Who wants more asks again from its completion: others' work goes between, and
    // what comes faster than it is served waits in the socket's queue.
    void accept(Operation& operation, int fd);
    void connect(Operation& operation, int fd, const sockaddr* address, socklen_t bytes);
    // Into a shared buffer that the kernel picks when data is there; max_bytes 0: a whole buffer.
    // The handler gives the buffer back with return_buffer(). Result -ENOBUFS: all are taken; try
    // again next turn.
    enum class FirstTry : std::uint8_t { at_once, after_poll };
    void recv_provided(Operation& operation, int fd, std::uint32_t max_bytes, FirstTry first_try);
    // The same again and again, of whole buffers: each time there is something completes with
    // `more`, until one does not, which may bring bytes too: the stream has ended or is broken, the
    // operation was cancelled, or every buffer was taken.
    void recv_multishot(Operation& operation, int fd);
    // Whether that one stays when it has brought all there was: Linux 6.6.
    bool keeps_receives() const noexcept;
    MutableBytes received(std::uint16_t buffer, std::uint32_t bytes) noexcept;
    void return_buffer(std::uint16_t buffer) noexcept;
    // Straight into the target; waits for all of it unless the stream ends (MSG_WAITALL).
    void recv_all(Operation& operation, int fd, MutableBytes target);
    // All of it unless the stream breaks (MSG_WAITALL | MSG_NOSIGNAL); the result may still be
    // short, then the caller sends the rest.
    //
    // call: at once, by a system call of its own, and done when this turn ends. For the first that
    // asks for it inside a turn, if the socket has room; else as by the ring. It saves an entry, a
    // completion and a turn, and the other side begins earlier. Never in a group: the others would
    // wait for the baton as long as it takes.
    enum class SendBy : std::uint8_t { ring, call };
    // flags: MSG_MORE of send(2), or 0.
    void sendmsg(Operation& operation, int fd, const msghdr* message, SendBy by = SendBy::ring,
                 int flags = 0);
    // Without a copy if that can be: the kernel reads the memory until the peer has
    // acknowledged it.
    // The first completion is as sendmsg()'s; if it says more, another one follows when the memory
    // is not read any more. Result -EINVAL: Linux before 6.2.
    void sendmsg_zero_copy(Operation& operation, int fd, const msghdr* message);
    // Whether a sendmsg() now would be the one that may be called, room in the socket aside.
    bool may_call_send() const noexcept;
    // Whether in one of the last turns more than one socket had something for recv_provided():
    // while one peer waits, there is work for others.
    bool serves_several_streams() const noexcept;
    enum class FixedBuffer : std::int32_t { none = -1 };  // else the slot of register_buffer
    enum class FixedFile : std::int32_t { none = -1 };    // else the slot of register_file
    // A file of many requests, by its slot if it has one.
    struct File {
        int fd = -1;
        FixedFile slot = FixedFile::none;
        // Even to begin may have to wait for somebody (FUSE): one of the ring's threads does it.
        bool begins_slowly = false;
    };
    // flags: RWF_* of pwritev2(2).
    void read(Operation& operation, File file, MutableBytes target, std::uint64_t offset,
              FixedBuffer buffer = FixedBuffer::none);
    void write(Operation& operation, File file, Bytes source, std::uint64_t offset, int flags,
               FixedBuffer buffer = FixedBuffer::none);
    // Gives the kernel what is prepared, if that is so many entries or more: a disk begins with it
    // while the turn goes on. Else, or if it may not, the turn's end does.
    void submit_early(std::uint32_t entries_min) noexcept;
    // By a system call, which waits where the file makes it wait: for files in memory. The call's
    // result, negative errno on failure; empty if it may not, as outside a turn.
    std::optional<std::int32_t> read_now(int fd, MutableBytes target,
                                         std::uint64_t offset) noexcept;
    std::optional<std::int32_t> write_now(int fd, Bytes source, std::uint64_t offset,
                                          int flags) noexcept;
    // The same of a file with direct I/O, which ends when the loop has looked for it, not by an
    // interrupt: from the first of them until the last has ended the loop does not sleep, and its
    // thread must call nothing that waits for their end.
    // Result -EOPNOTSUPP: the file system cannot. ASSUMES: polls_storage().
    void read_polled(Operation& operation, int fd, MutableBytes target, std::uint64_t offset);
    void write_polled(Operation& operation, int fd, Bytes source, std::uint64_t offset);
    void fdatasync(Operation& operation, int fd);
    void fallocate(Operation& operation, int fd, int mode, std::uint64_t offset,
                   std::uint64_t bytes);
    // What the page cache has of the range goes to the file or device, and is waited for: not the
    // disk's own cache, nor the file's size. A failure is told once, as by fsync().
    void write_back(Operation& operation, int fd, std::uint64_t offset, std::uint64_t bytes);
    void poll_readable(Operation& operation, int fd);
    void poll_writable(Operation& operation, int fd);
    // Files that begin slowly may keep each of the ring's threads that waits for them, of which
    // there are four per processor, and what else needs one: from now on there may be many.
    void expect_slow_files();
    // The operation still completes, with -ECANCELED or its own result.
    void cancel(Operation& operation);
    // After all that was prepared for it before. Operations in flight keep the file open: cancel
    // first.
    void close_fd(int fd) noexcept;

    // Runs work() on a helper thread and then done() in a coming turn: for calls that have no ring
    // form (lseek with SEEK_HOLE).
    // False: there is no thread to be had now, and neither runs.
    [[nodiscard]] bool offload(std::function<void()> work, std::function<void()> done);

    // Registering is for the reactor's own thread, also in a group; unregistering for any of the
    // group's.
    //
    // Pins memory for read/write with FixedBuffer. ERRORS: ENOBUFS (no slot left), ENOMEM,
    // EOPNOTSUPP.
    std::expected<FixedBuffer, std::error_code> register_buffer(MutableBytes memory);
    void unregister_buffer(FixedBuffer buffer) noexcept;
    // Spares each read and write the look-up of the descriptor. The file stays open until it is
    // unregistered and the last operation on it has ended. ERRORS: ENOBUFS (no slot left, or Linux
    // before 6.4, which would keep it open for longer), ENOMEM, EMFILE.
    std::expected<FixedFile, std::error_code> register_file(int fd);
    void unregister_file(FixedFile file) noexcept;

    // Since its creation.
    struct Statistics {
        std::uint64_t turns = 0;
        std::uint64_t completions = 0;
        std::uint64_t submissions = 0;
        // By busy polling: looks that found something, and that did not.
        std::uint64_t looks_found = 0;
        std::uint64_t looks_fruitless = 0;
        // Sends that left by a system call of their own.
        std::uint64_t calls = 0;
        // Of sendmsg_zero_copy(), and those of them that the kernel reports it copied.
        std::uint64_t zero_copies = 0;
        std::uint64_t zero_copies_copied = 0;
        // Of submit_early(), read_now() and write_now().
        std::uint64_t early_submits = 0;
        std::uint64_t early_reads = 0;
        std::uint64_t early_writes = 0;
        // Of read_polled() and write_polled().
        std::uint64_t polled = 0;
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
    std::unique_ptr<Inside> inside_;
};

}  // namespace rtrs
