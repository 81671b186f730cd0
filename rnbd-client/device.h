// A remote volume shown as one NBD export: an NBD request becomes operations on permits.
//
// A request takes all its permits at once, before its payload is received: no request ever holds
// some while it waits for more, so requests cannot wait for each other. READ and WRITE are cut into
// pieces of one permit each. TRIM, WRITE_ZEROES and CACHE carry no payload and may be as long as
// the device: they go round on a few permits until the whole range is done.
//
// What a client that has gone left in flight is still under way to the server, and may be what the
// same client now asks for again on another connection. So a request that overlaps a change left
// behind starts when that has ended. Live clients wait for each other never.
//
// Owner: the daemon; outlives its listeners. THREAD: the volume's.
//
// One request (owned by a connection, in a fixed array):
//   take permits_for() permits -> attach() -> WRITE: fill the pieces' payload -> start() -> done(),
//   which may come from inside start() -> its payload is sent -> release()
//   The client goes before done(): leave_behind()
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "rnbd-client/device_counters.h"
#include "rnbd-client/nbd/handshake.h"
#include "rnbd-client/nbd/transmission.h"
#include "rnbd-client/permit_shares.h"
#include "rnbd/remote_volume.h"
#include "rnbd/request_in_pieces.h"
#include "rtrs/base/instant.h"
#include "rtrs/base/intrusive_list.h"

namespace rnbd {

class Device;
class DeviceClient;

// One permit at work. In an array indexed by the permit's id.
struct DevicePiece {
    rtrs::Permit permit;
    struct DeviceRequest* request = nullptr;
    DevicePiece* next = nullptr;
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;
    VolumeOperation operation = VolumeOperation::read;  // as it was submitted
    std::uint32_t zeroes_due = 0;                       // bytes behind these, to be written by it
};

// All bytes zero is a valid one. The owner sets nbd, client and done; the rest is the device's.
struct DeviceRequest {
    nbd::Request nbd;
    void (*done)(DeviceRequest& request);

    Device* device;
    DevicePiece* first;  // in the order of the payload
    DevicePiece* last;
    std::uint32_t pieces;
    std::uint32_t in_flight;
    std::uint64_t next_offset;  // of the work without payload that is not yet submitted
    std::error_code error;      // of the first piece that failed
    std::uint64_t error_offset;
    std::uint32_t reply_bytes;  // what payload the reply carries, at the front of the pieces
    RequestInPieces whole;
    bool flushing;
    bool started;         // and not done
    bool abandoned;       // started, and its client has gone
    std::uint64_t order;  // of starts
    DeviceRequest* next_abandoned;
    DeviceRequest* next_waiting;
    DeviceClient* client;
    std::uint64_t tells_losses;  // so many: once its answer has reached the client, it was told
};

// A request that the volume has not seen yet, or whose answer has not left yet.
struct DeviceStall {
    enum class Stage : std::uint8_t {
        payload,      // until its NBD client has sent all of its data
        own_share,    // until earlier requests of its connection, or device, have been answered
        permit,       // until requests of others have been answered
        left_behind,  // until what clients that have gone left in progress has ended
        answered,     // until its NBD client has taken the answer
    };
    Stage stage = Stage::payload;
    nbd::Command command = nbd::Command::read;
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;
    rtrs::Instant since{};  // it came
    // Then its connection is ended, if permits are short.
    std::optional<rtrs::Instant> until{};
};

// One connection as its device sees it.
//
// A loss of what was not flushed is told to each of them once: the first flush that ends after it
// fails. One that joins later is told too if nobody was yet. So who hears of it does not depend on
// who flushes first, nor on whether that one still listened.
class DeviceClient : public rtrs::ListLink {
  public:
    // Whose connections are one client, which is told once.
    enum class Kind : std::uint8_t { nbd, kernel };

    explicit DeviceClient(Kind its_kind) noexcept : client_kind(its_kind) {}
    // Whether its peer has gone, though requests of it may not be read yet.
    virtual bool leaving() noexcept = 0;
    // Another one of the device, which may have been leaving, has left.
    virtual void on_other_left() = 0;
    // It has been leaving for too long.
    virtual void end_leaving() = 0;
    virtual void add_stalls(std::vector<DeviceStall>& to) const = 0;

    Kind client_kind;
    std::uint32_t block_bytes = 512;  // as it was told them; not of the kernel's
    std::uint64_t losses_told = 0;

  protected:
    ~DeviceClient() = default;
};

struct DeviceOptions {
    std::string name;         // the NBD export's, 1..4096 bytes
    std::string description;  // shown to people; may be empty
    // owes_losses() may be another now, and the volume has not said so. May be empty.
    std::function<void()> on_losses_changed = {};
};

class Device {
  public:
    // volume, shares (its session's): outlive this.
    Device(RemoteVolume& volume, PermitShares& shares, DeviceOptions options);
    ~Device();  // ASSUMES: no request is attached
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    const std::string& name() const noexcept { return options_.name; }
    RemoteVolume& volume() noexcept { return volume_; }
    const DeviceCounters& counters() const noexcept { return counters_; }
    DeviceCounters& counters() noexcept { return counters_; }

    // As an NBD client sees it now. unavailable: until the volume was open once.
    nbd::ExportDescription describe() const noexcept;
    // False while the server has never said whether the volume may be opened: a client that comes
    // now is better made to wait than told that there is no export.
    bool settled() const noexcept;
    std::uint64_t size_bytes() const noexcept { return volume_.geometry().size_bytes; }

    // ---- requests; ASSUMES from here on: describe() was available once ----

    // Permits to take; at least 1, at most request_permits_max(). ASSUMES: the request was allowed
    // by nbd::check() and is not empty.
    std::uint32_t permits_for(const nbd::Request& request) const noexcept;
    std::uint32_t request_permits_max() const noexcept;
    rtrs::ClientSession& permits() noexcept { return volume_.session().rtrs(); }
    // What of them its clients may have at a time.
    PermitShares& shares() noexcept { return shares_; }
    PermitShares::Device& share() noexcept { return share_; }

    // Takes permits_for() permits out of the span.
    void attach(DeviceRequest& request, std::span<rtrs::Permit> permits) noexcept;
    void start(DeviceRequest& request);
    // The permits go home. ASSUMES: attached and not started, or done.
    void release(DeviceRequest& request) noexcept;

    // Whether it ever had a client.
    bool was_used() const noexcept { return was_used_; }

    // A client from its first to its last request. Meanwhile the volume is not used with larger
    // blocks than it was told.
    void join(DeviceClient& client);
    void leave(DeviceClient& client);
    // The blocks of the kernel's device, from before it is attached until it is gone, whatever
    // becomes of its connections. 0: there is none.
    void set_kernel_blocks(std::uint32_t bytes);
    // Whether one that joined before is leaving. Then on_other_left() tells when to ask again.
    bool others_are_leaving(const DeviceClient& client) noexcept;
    void end_leaving(const DeviceClient& client);
    // The client has gone: what overlaps this request waits until it is done. Nothing happens to
    // one that changes no data, or is not in progress. ASSUMES: attached.
    void leave_behind(DeviceRequest& request) noexcept;
    struct LeftBehind {
        std::uint32_t requests = 0;  // of clients that have gone, in progress
        std::uint32_t waiting = 0;   // of others, for these
    };
    const LeftBehind& left_behind() const noexcept { return left_behind_; }

    // Of all its clients; for people, not for programs that are in a hurry.
    std::vector<DeviceStall> stalls();

    // The answer of a request with tells_losses has reached its client.
    void told(DeviceClient& client, std::uint64_t losses);
    // Whether something was lost that no client was told of.
    bool has_untold_losses() const noexcept { return losses_told_ < volume_.losses().news; }
    // Whether that is so, or one of its clients was not told, who may be back in the daemon's next
    // life. Of a loss of a former life it is enough that one was told in this one: else a client
    // that never flushes would make it news for ever.
    bool owes_losses() noexcept;
    // Whether its clients have to leave from now on: it owes them what they were not told by then.
    void set_ending(bool ending) noexcept {
        ending_ = ending;
        if (!ending) one_left_untold_ = false;
    }

    // Payload of the reply. Returns the entries written. ASSUMES: done; to has request.pieces.
    static std::size_t gather(const DeviceRequest& request, std::span<iovec> to) noexcept;

  private:
    static constexpr std::uint32_t pieces_max = 1000;  // entries of one sendmsg, with a header
    static constexpr std::uint32_t payload_bytes_max = 32u << 20;

    std::uint32_t piece_bytes() const noexcept;
    std::uint32_t maximum_bytes() const noexcept;
    std::uint32_t round_bytes(const nbd::Request& request) const noexcept;
    bool may_start(const DeviceRequest& request) const noexcept;
    void run(DeviceRequest& request);
    void finish(DeviceRequest& request);
    void tell_losses(DeviceRequest& request) const noexcept;
    bool is_owed(const DeviceClient& client) const noexcept;
    void lost_in_part();
    void limit_blocks();
    void forget_abandoned(DeviceRequest& request) noexcept;
    void start_waiting();
    void start_payload(DeviceRequest& request);
    void start_rounds(DeviceRequest& request);
    void submit_round(DeviceRequest& request, DevicePiece& piece);
    void write_zeroes(DevicePiece& piece, std::uint64_t offset, std::uint32_t bytes);
    void submit_flush(DeviceRequest& request);
    void submit(DevicePiece& piece, VolumeIo io);
    void start_block_status(DeviceRequest& request);
    void answer_block_status(DeviceRequest& request, std::span<const ExtentDescriptor> extents);
    void piece_done(DevicePiece& piece, std::error_code error);

    RemoteVolume& volume_;
    PermitShares& shares_;
    DeviceOptions options_;
    mutable std::string unavailable_;
    std::unique_ptr<DevicePiece[]> pieces_;
    std::uint32_t pieces_count_ = 0;
    std::uint32_t attached_ = 0;
    PermitShares::Device share_;
    std::uint64_t started_ = 0;
    rtrs::IntrusiveList<DeviceClient> clients_;
    std::uint32_t kernel_block_bytes_ = 0;  // 0: the kernel has none of it
    bool was_used_ = false;
    std::uint64_t losses_told_ = 0;  // to anybody
    std::uint64_t losses_of_former_life_;
    bool ending_ = false;
    bool one_left_untold_ = false;  // while it was ending
    DeviceRequest* abandoned_ = nullptr;
    DeviceRequest* waiting_ = nullptr;  // newest first
    LeftBehind left_behind_;
    DeviceCounters counters_{};
};

}  // namespace rnbd
