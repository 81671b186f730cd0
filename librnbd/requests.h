// The requests of a session: they are cut into pieces of one permit each, and put together again.
//
// A piece is sent as soon as it has a permit, and no permit is kept while a request waits for more,
// so requests cannot wait for each other. Requests that find no permit queue at their volume, in
// order, and volumes take turns.
//
// The requests that a volume has sent keep their permits for as long as its storage hangs, or the
// volume is not open. So that it does not stop the other volumes of its session, a volume may hold
// its fair share of the permits, and at least one. Permits in buffers belong to the program and do
// not count.
//
// OWNER: Session. THREAD: the loop's; RequestPool: any, with the loop's lock held.
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

// The permits that a volume holds, and its requests that wait for permits. It is linked while a
// request waits.
struct PermitShare : rtrs::ListLink {
    std::uint32_t held = 0;
    rtrs::IntrusiveList<Request> waiting;
};

struct Buffer {
    Session* session;
    rtrs::Permit permit;  // used by the loop only; not here while in flight
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
    Buffer* buffer = nullptr;  // null: iov is used
    VolumeOperation operation = VolumeOperation::read;
    Stage stage = Stage::data;
    unsigned flags = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t started = 0;  // how many of the bytes are in pieces that were sent
    std::uint32_t in_flight = 0;
    RequestInPieces whole;
    std::error_code error;
    rnbd_done_fn done = nullptr;
    void* context = nullptr;
    std::vector<iovec> iov;  // keeps its capacity from use to use
};

// Keeps requests that are not in use. It grows and never shrinks.
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
    // finished: called for each request that is done; it may start more requests.
    using Finished = void (*)(void* context, Request& request);
    // busy_poll: how long the reactor may poll for answers before it sleeps.
    Requests(rtrs::Reactor& reactor, rtrs::ClientSession& permits, rtrs::Duration busy_poll,
             Finished finished, void* context);
    ~Requests();  // ASSUMES: nothing is under way
    Requests(const Requests&) = delete;
    Requests& operator=(const Requests&) = delete;

    // Called when the link is up for the first time. queue_depth: the session's.
    // ASSUMES: there is address space for it.
    void set_depth(std::uint32_t queue_depth);
    // ASSUMES: the volume of the request was open once, and is not closed.
    void start(Request& request);
    // Reports the request as failed in this turn or the next, never from inside this call. Requests
    // that are submitted from that report, and refused as well, are reported in a later turn, so
    // that other work is done in between.
    void fail_later(Request& request, std::error_code error);
    // Fails the requests of a volume that wait for a permit.
    void fail_waiting(Volume& volume, std::error_code error);
    // These count the volumes that exist, with or without requests.
    void joined() noexcept { ++volumes_; }
    void left(const PermitShare& share);
    // How many permits the program has as buffers.
    void set_buffers(std::uint32_t count);
    // Whether the program may have one more buffer. One permit is kept for each volume that holds
    // none, but at most half of all permits, so that buffers and hanging requests do not stop other
    // volumes.
    bool has_room_for_buffer() const noexcept;
    bool is_idle() const noexcept { return held_ == 0; }

  private:
    // A permit in use; found by the permit's id.
    struct Piece {
        Requests* owner;
        Request* request;
        std::uint64_t at;  // offset in the request
        std::uint32_t bytes;
        VolumeOperation operation;  // as it was sent
        std::uint32_t zeroes_due;   // how many bytes of zeroes it has to write after these
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
    static void fill(const Request& request, const Piece& piece, rtrs::MutableBytes payload);
    void send_piece(Request& request, rtrs::Permit permit);
    std::uint32_t piece_bytes(const Request& request) const noexcept;
    void send(Request& request, Piece& piece, rtrs::Permit permit, VolumeIo& io);
    void write_zeroes(Piece& piece, rtrs::Permit permit, std::uint64_t at, std::uint32_t bytes);
    void piece_done(Piece& piece, rtrs::Permit permit, std::error_code error);
    static std::error_code take_answer(Request& request, const Piece& piece,
                                       const rtrs::Permit& permit);
    void give_back(Request& request, rtrs::Permit permit);
    void report_failures();

    rtrs::Reactor& reactor_;
    rtrs::ClientSession& permits_;
    const Finished finished_;
    void* const context_;
    rtrs::LazyArray<Piece> pieces_;  // an idle session touches none
    std::uint32_t volumes_ = 0;
    std::uint32_t buffers_ = 0;
    std::uint32_t held_ = 0;     // permits that all volumes hold, without buffers
    std::uint32_t holders_ = 0;  // how many volumes hold permits
    rtrs::IntrusiveList<PermitShare> waiting_;
    rtrs::IntrusiveList<Request> failed_;
    rtrs::Timer reporter_;
    Waiter waiter_{*this};
    rtrs::Permit granted_;
};

}  // namespace rnbd::library
