// Requests of a session: cut into pieces of one permit each, and put together again.
//
// A piece is sent as soon as it has a permit and keeps none while it waits, so requests cannot wait
// for each other; those that find none queue at their volume, in order, and volumes take turns.
//
// What a volume has sent keeps its permits for as long as its storage hangs, or it is not open. So
// that it does not stop the others of its session, a volume has its fair share of them, and one at
// least. Buffers are the program's, and do not count.
//
// OWNER: Session. THREAD: the loop's; RequestPool anywhere, with the loop's lock.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "librnbd/librnbd.h"
#include "rnbd/remote_volume.h"
#include "rnbd/request_in_pieces.h"
#include "rtrs/base/intrusive_list.h"
#include "rtrs/base/lazy_array.h"
#include "rtrs/reactor.h"

namespace rnbd::library {

class Volume;
class Session;

struct Request;

// What a volume has of the permits of its session, and what waits for more. Linked: something does.
struct PermitShare : rtrs::ListLink {
    std::uint32_t held = 0;
    rtrs::IntrusiveList<Request> waiting;
};

struct Buffer {
    Session* session;
    rtrs::Permit permit;  // the loop's; not here while in flight
    rtrs::MutableBytes memory;
    std::atomic<bool> in_flight = false;  // set with the loop's lock, cleared by the loop
};

// The context of a request for extents.
struct ExtentsQuestion {
    rnbd_extents_fn known;
    void* context;
    std::vector<ExtentDescriptor> found{};
};

struct Request : rtrs::ListLink {
    enum class Stage : std::uint8_t { data, flush_due, flushing };

    Volume* volume = nullptr;
    Buffer* buffer = nullptr;  // else iov
    VolumeOperation operation = VolumeOperation::read;
    Stage stage = Stage::data;
    unsigned flags = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t started = 0;  // of bytes: in pieces that were sent
    std::uint32_t in_flight = 0;
    RequestInPieces whole;
    std::error_code error;
    rnbd_done_fn done = nullptr;
    void* context = nullptr;
    std::vector<iovec> iov;  // keeps its capacity from use to use
};

// Requests that are not used, kept. Grows; never shrinks.
class RequestPool {
  public:
    RequestPool() = default;
    ~RequestPool();
    RequestPool(const RequestPool&) = delete;
    RequestPool& operator=(const RequestPool&) = delete;

    // ERRORS: bad_alloc, as an exception.
    Request& take();
    void put(Request& request) noexcept { free_.push_front(request); }

  private:
    static constexpr std::size_t slab = 64;
    std::vector<std::unique_ptr<Request[]>> slabs_;
    rtrs::IntrusiveList<Request> free_;
};

class Requests {
  public:
    // finished: what is to be done with a request that is through; it may start more.
    using Finished = void (*)(void* context, Request& request);
    // busy_poll: how long the reactor may look for answers before it sleeps.
    Requests(rtrs::Reactor& reactor, rtrs::ClientSession& permits, rtrs::Duration busy_poll,
             Finished finished, void* context);
    ~Requests();  // ASSUMES: nothing is under way
    Requests(const Requests&) = delete;
    Requests& operator=(const Requests&) = delete;

    // queue_depth: of the session, when the link is up for the first time. ASSUMES: there is
    // address space for it.
    void set_depth(std::uint32_t queue_depth);
    // ASSUMES: its volume was open once, and is not closed.
    void start(Request& request);
    // It is reported as failed in this turn or the next, never from inside; what is submitted then
    // and refused as well is so in a later one, in which other things happen, too.
    void fail_later(Request& request, std::error_code error);
    // Those of a volume that wait for a permit.
    void fail_waiting(Volume& volume, std::error_code error);
    // Volumes that are there, with requests or without.
    void joined() noexcept { ++volumes_; }
    void left(const PermitShare& share);
    // Permits that the program has as buffers.
    void set_buffers(std::uint32_t count);
    // Whether it may have one more: a permit stays for each volume that holds none, of many volumes
    // for half as many as there are permits, so that buffers and what hangs do not stop the others.
    bool has_room_for_buffer() const noexcept;
    bool is_idle() const noexcept { return held_ == 0; }

  private:
    // A permit at work; by the permit's id.
    struct Piece {
        Requests* owner;
        Request* request;
        std::uint64_t at;  // in the request
        std::uint32_t bytes;
        VolumeOperation operation;  // as it was sent
        std::uint32_t zeroes_due;   // bytes behind these, to be written by it
    };
    struct Waiter : rtrs::PermitWaiter {
        explicit Waiter(Requests& its_owner) noexcept : PermitWaiter(&served), owner(its_owner) {}
        static void served(rtrs::PermitWaiter& waiter) {
            Requests& requests = static_cast<Waiter&>(waiter).owner;
            requests.dispatch(std::move(requests.granted_));
        }
        Requests& owner;
    };

    static bool more(const Request& request) noexcept;
    static bool wants_permit(const Request& request) noexcept;
    void refuse(Request& request, std::error_code why);
    void take(Request& request, rtrs::Permit permit);
    bool has_room(const PermitShare& share) const noexcept;
    PermitShare* next_with_room() noexcept;
    void dispatch(std::optional<rtrs::Permit> permit);
    void no_longer_waits(Request& request) noexcept;
    void stop_waiting() noexcept;
    void send_piece(Request& request, rtrs::Permit permit);
    std::uint32_t piece_bytes(const Request& request) const noexcept;
    void send(Request& request, Piece& piece, rtrs::Permit permit, VolumeIo& io);
    void write_zeroes(Piece& piece, rtrs::Permit permit, std::uint64_t at, std::uint32_t bytes);
    void describe(Request& request, const Piece& piece, VolumeIo& io) const;
    void piece_done(Piece& piece, rtrs::Permit permit, std::error_code error);
    static std::error_code take_answer(Request& request, const Piece& piece,
                                       const rtrs::Permit& permit);
    void give_back(Request& request, rtrs::Permit permit);
    void report_failures();

    rtrs::Reactor& reactor_;
    rtrs::ClientSession& permits_;
    const Finished finished_;
    void* const context_;
    rtrs::LazyArray<Piece> pieces_;       // an idle session touches none
    std::uint32_t pieces_under_way_ = 0;  // the reactor reads it
    std::uint32_t volumes_ = 0;
    std::uint32_t buffers_ = 0;
    std::uint32_t held_ = 0;     // by all of them, without buffers
    std::uint32_t holders_ = 0;  // volumes that hold some of them
    rtrs::IntrusiveList<PermitShare> waiting_;
    rtrs::IntrusiveList<Request> failed_;
    rtrs::Timer reporter_;
    Waiter waiter_{*this};
    rtrs::Permit granted_;
};

}  // namespace rnbd::library
