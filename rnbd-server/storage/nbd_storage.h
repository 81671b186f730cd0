// An export of any NBD server as a storage: qemu-nbd with a qcow2, nbdkit with any plugin.
//
// A lost connection is made again. What was sent over it and changes data is answered with EIO:
// nobody knows whether it was done, and it may still be, so it must not be sent again behind newer
// writes. Reads, flushes, what was not sent, and what the server refuses because it is about to end
// (ESHUTDOWN), wait for the new connection, at most hold_time, then EIO.
//
// What was acknowledged and not flushed may be gone with the NBD server. If there is such, the new
// connection is another life of the cache: another epoch. So is each opening, which clients see
// unless everything was flushed before (EpochBook). And so is what comes after a flush that failed:
// many NBD servers say only once that something cannot be written back, and forget it. So flushes
// go one at a time: none succeeds beside one that is told. Nor does a change with FUA that the
// server had already when another's flush failed: it fails, too.
//
// OWNER: a Volume. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/deferred_completions.h"
#include "rnbd-server/storage/mapping.h"
#include "rnbd-server/storage/nbd_link.h"
#include "rnbd-server/storage_options.h"

namespace rnbd {

class NbdStorage final : public Storage, private NbdLinkOwner {
  public:
    // ERRORS: EINPROGRESS (the server has not answered yet: soon again), those of NbdLink::open,
    // EROFS (a read-only export is to be written), EINVAL (size or blocks do not fit).
    static std::expected<std::unique_ptr<Storage>, StorageError> open(
        rtrs::Reactor& reactor, DeferredCompletions& deferred, const StorageOptions& options);
    ~NbdStorage() override;

    const StorageGeometry& geometry() const noexcept override { return geometry_; }
    void submit(BlockRequest& request) override;
    std::error_code check() noexcept override;
    void when_writes_are_lost(std::function<void()> lost) override { lost_ = std::move(lost); }
    std::string trouble() const override;
    std::string give_up() override;
    std::string description() const override { return "nbd " + uri_; }

  private:
    NbdStorage(rtrs::Reactor& reactor, DeferredCompletions& deferred, const StorageOptions& options,
               StorageGeometry geometry, Mapping zeroes, std::unique_ptr<NbdLink> link);

    void on_link_ready() override;
    void on_link_lost(const std::string& reason) override;
    void reconnect();
    void connected(std::unique_ptr<NbdLink> link);
    void fail_held();
    void send(BlockRequest& request);
    void sent_or_refused(BlockRequest& request, std::int64_t cookie);
    void answered(BlockRequest& request, int error);
    void take_answer(BlockRequest& request, int error);
    void flush_ended(const std::function<void(BlockRequest&)>& take);
    void give_up_waiting_to_flush();
    void failed(BlockRequest& request, std::error_code error);
    void piece_done(BlockRequest& request);
    void cache_is_another();
    void lost_under_way(BlockRequest& request);
    void refused_by_leaving(BlockRequest& request);
    void count_hold_time();
    void hold(BlockRequest& request);
    void start(BlockRequest& request);
    void end(BlockRequest& request, std::error_code error);
    void note_start(BlockRequest& request) noexcept;
    void note_end(BlockRequest& request) noexcept;
    bool at_stake() const noexcept;
    bool sync_failed_beside(const BlockRequest& request) const noexcept;
    bool forget_sent_again(BlockRequest& request) noexcept;
    void stop_counting() noexcept;
    std::uint64_t piece_bytes(const BlockRequest& request) const noexcept;

    rtrs::Reactor& reactor_;
    const std::string uri_;
    const StorageOptions::Use use_;
    StorageGeometry geometry_;
    std::uint64_t transfer_bytes_max_ = 0;  // of a read or a write
    bool can_zero_ = false;
    bool can_flush_ = false;
    bool can_fua_ = false;
    Mapping zeroes_;
    DeferredCompletions& deferred_;

    NbdLink* link_ = nullptr;     // null: lost
    std::string reason_;          // why it was lost
    bool server_leaves_ = false;  // it does nothing any more over this connection
    bool broken_ = false;         // another export is there now
    bool given_up_ = false;
    rtrs::Timer reconnect_timer_;
    rtrs::Duration reconnect_delay_;
    // From a loss until all that it kept waiting is answered: a request that costs the server its
    // life each time it comes would otherwise be sent for ever.
    const rtrs::Duration hold_time_;
    rtrs::Timer hold_timer_;
    bool hold_time_over_ = false;
    std::vector<BlockRequest*> held_;
    std::uint32_t sent_again_ = 0;                 // of them: under way over this connection
    std::vector<BlockRequest*> unfinished_;        // their next piece is to be sent
    std::uint32_t in_flight_ = 0;                  // at the server
    BlockRequest* flushing_ = nullptr;             // the flush among them
    std::vector<BlockRequest*> flushing_too_;      // those that share it
    std::vector<BlockRequest*> waiting_to_flush_;  // those that came after it was sent

    std::uint64_t acknowledged_ = 0;     // changes, without FUA
    std::uint64_t flushed_ = 0;          // of them
    std::uint64_t lost_ever_ = 0;        // of them, or flushed before such a loss
    std::uint32_t plain_under_way_ = 0;  // changes without FUA that the server may have
    std::uint32_t syncs_failed_ = 0;
    std::function<void()> lost_;
};

}  // namespace rnbd
