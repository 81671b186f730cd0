// A remote volume presented as one NBD export: an NBD request becomes operations on permits.
//
// A request takes all its permits at once, before its payload is received. No request ever holds
// some permits while it waits for more, so requests cannot wait for each other. READ and WRITE are
// cut into pieces of one permit each. TRIM, WRITE_ZEROES and CACHE carry no payload and may be as
// long as the device: they reuse a few permits until the whole range is done.
//
// Requests that a departed client left in flight are still under way to the server, and the same
// client may now repeat them on another connection. So a request that overlaps a change which was
// left behind starts when that change has ended. Live clients never wait for each other.
//
// OWNER: Mapping; outlives its listeners. THREAD: the volume's.
//
// One request (owned by a connection, in a fixed array):
//   take permits_for() permits -> attach() -> WRITE: fill the pieces' payload -> start() -> done(),
//   which may be called from inside start() -> its payload is sent -> release()
//   The client leaves before done(): leave_behind()
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
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

// One permit in use. An array of them is indexed by the permit's id.
struct DevicePiece {
    rtrs::Permit permit;
    struct DeviceRequest* request = nullptr;
    DevicePiece* next = nullptr;
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;
    VolumeOperation operation = VolumeOperation::read;  // as it was submitted
    std::uint32_t zeroes_due = 0;  // how many bytes of zeroes it has to write after these
};

// An object whose bytes are all zero is valid. The owner sets nbd, client and done; the other
// members belong to the device.
struct DeviceRequest {
    nbd::Request nbd;
    void (*done)(DeviceRequest& request);

    Device* device;
    DevicePiece* first;  // in the order of the payload
    DevicePiece* last;
    std::uint32_t pieces;
    std::uint32_t in_flight;
    std::uint64_t next_offset;  // where the work without payload begins that is not submitted yet
    std::error_code error;      // of the first piece that failed
    std::uint64_t error_offset;
    std::uint32_t reply_bytes;  // payload of the reply, at the front of the pieces
    RequestInPieces whole;
    bool flushing;
    bool started;         // and not done
    bool abandoned;       // started, and its client has left
    std::uint64_t order;  // the order in which requests started
    DeviceRequest* next_abandoned;
    DeviceRequest* next_waiting;
    DeviceClient* client;
    std::uint64_t tells_losses;  // its client is told of this many losses once it has the answer
};

// A request that the volume does not have yet, or whose answer is not sent yet.
struct DeviceStall {
    // What it waits for.
    enum class Stage : std::uint8_t {
        payload,      // until its NBD client has sent all of its data
        own_share,    // until earlier requests of its connection, or device, are answered
        permit,       // until requests of others are answered
        left_behind,  // until requests that departed clients left in progress have ended
        answered,     // until its NBD client has taken the answer
    };
    Stage stage = Stage::payload;
    nbd::Command command = nbd::Command::read;
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;
    rtrs::Instant since{};  // when it came
    // When its connection is ended, if permits are short.
    std::optional<rtrs::Instant> until{};
};

// One connection as its device sees it.
//
// If unflushed writes are lost, each connection is told once: its first flush that ends after the
// loss fails. A connection that joins later is told, too, if nobody was told yet. So it depends
// neither on who flushes first, nor on whether that client still listens, who learns of the loss.
class DeviceClient : public rtrs::ListLink {
  public:
    // kernel: all connections of the kernel are one client, which is told once.
    enum class Kind : std::uint8_t { nbd, kernel };

    explicit DeviceClient(Kind its_kind) noexcept : client_kind(its_kind) {}
    // Whether its peer has gone, even if requests of the peer may not be read yet.
    virtual bool leaving() noexcept = 0;
    // Another client of the device, which may have been leaving, has left.
    virtual void on_other_left() = 0;
    // This client has been leaving for too long.
    virtual void end_leaving() = 0;
    virtual void add_stalls(std::vector<DeviceStall>& to) const = 0;

    Kind client_kind;
    std::uint32_t block_bytes = 512;  // the block size that it was told; not used for the kernel
    std::uint64_t losses_told = 0;

  protected:
    ~DeviceClient() = default;
};

struct DeviceOptions {
    std::string name;         // the name of the NBD export, 1..4096 bytes
    std::string description;  // shown to people; may be empty
    // Called when owes_losses() may have changed without a change of the volume. May be empty.
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

    // The export as an NBD client sees it now. It is unavailable until the volume was open once.
    nbd::ExportDescription describe() const noexcept;
    // False until the server has said for the first time whether the volume may be opened: it is
    // better to let a client wait than to tell it that there is no export.
    bool settled() const noexcept;
    std::uint64_t size_bytes() const noexcept { return volume_.geometry().size_bytes; }

    // ---- requests; ASSUMES from here on: describe() was available once ----

    // How many permits the request needs; at least 1, at most request_permits_max().
    // ASSUMES: nbd::check() allows the request, and it is not empty.
    std::uint32_t permits_for(const nbd::Request& request) const noexcept;
    std::uint32_t request_permits_max() const noexcept;
    rtrs::ClientSession& permits() noexcept { return volume_.session().rtrs(); }
    // How many permits its clients may hold at a time.
    PermitShares& shares() noexcept { return shares_; }
    PermitShares::Device& share() noexcept { return share_; }

    // Takes permits_for() permits out of the span.
    void attach(DeviceRequest& request, std::span<rtrs::Permit> permits) noexcept;
    void start(DeviceRequest& request);
    // Gives the permits back.
    // ASSUMES: the request is attached and not started, or done.
    void release(DeviceRequest& request) noexcept;

    // Whether it ever had a client.
    bool was_used() const noexcept { return was_used_; }

    // A client joins before its first request and leaves after its last. Between them the volume is
    // not used with larger blocks than the client was told.
    void join(DeviceClient& client);
    void leave(DeviceClient& client);
    // The block size of the kernel's device, from before it is attached until it is gone, whatever
    // happens to its connections. 0: there is no kernel device.
    void set_kernel_blocks(std::uint32_t bytes);
    // Whether a client that joined earlier is leaving. If so, on_other_left() is called when it is
    // time to ask again.
    bool others_are_leaving(const DeviceClient& client) noexcept;
    void end_leaving(const DeviceClient& client);
    // The client has left: requests that overlap this one wait until it is done. Nothing happens if
    // the request changes no data, or is not in progress.
    // ASSUMES: the request is attached.
    void leave_behind(DeviceRequest& request) noexcept;
    struct LeftBehind {
        std::uint32_t requests = 0;  // requests in progress of clients that have left
        std::uint32_t waiting = 0;   // requests of others that wait for these
    };
    const LeftBehind& left_behind() const noexcept { return left_behind_; }

    // The stalls of all its clients. For people: it is too slow for programs that are in a hurry.
    std::vector<DeviceStall> stalls();

    // The answer of a request with tells_losses has reached its client.
    void told(DeviceClient& client, std::uint64_t losses);
    // Whether something was lost of which no client was told.
    bool has_untold_losses() const noexcept { return losses_told_ < volume_.losses().news; }
    // Whether has_untold_losses() is true, or a client was not told of a loss and may come back in
    // the daemon's next life. For a loss of a former life it is enough that one client was told in
    // this life; otherwise a client that never flushes would keep the loss alive for ever.
    bool owes_losses() noexcept;
    // ending: its clients have to leave from now on. A client that leaves without having been told
    // of a loss is then still owed that.
    void set_ending(bool ending) noexcept {
        ending_ = ending;
        if (!ending) one_left_untold_ = false;
    }

    // Describes the payload of the reply in `to`, and returns the number of entries written.
    // ASSUMES: the request is done; to has room for request.pieces entries.
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
    std::uint32_t kernel_block_bytes_ = 0;  // 0: there is no kernel device
    bool was_used_ = false;
    std::uint64_t losses_told_ = 0;  // how many losses any client was told of
    std::uint64_t losses_of_former_life_;
    bool ending_ = false;
    bool one_left_untold_ = false;  // while it was ending
    DeviceRequest* abandoned_ = nullptr;
    DeviceRequest* waiting_ = nullptr;  // newest first
    LeftBehind left_behind_;
    DeviceCounters counters_{};
};

}  // namespace rnbd
