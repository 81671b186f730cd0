// An export of any NBD server as a storage: qemu-nbd with a qcow2 image, nbdkit with any plugin.
//
// A lost connection is made again. Changes of data that were sent over it are answered with EIO:
// nobody knows whether they were done, and they may still be done later, so they must not be sent
// again after newer writes. Other requests wait for the new connection, at most hold_time, then
// they fail with EIO. These are reads, flushes, requests that were not sent, and requests that the
// server refused because it is about to end (ESHUTDOWN).
//
// Writes that were acknowledged and not flushed may be lost with the NBD server. If there are any,
// the new connection is another life of the cache, with another epoch. So is each opening; clients
// see that unless everything was flushed before (EpochFile). And so is the time after a failed
// flush: many NBD servers report only once that something cannot be written back, and then forget
// it. For the same reason flushes are sent one at a time, so that none succeeds beside one that
// gets the report. A change with FUA that the server already had when another request's flush
// failed fails, too.
//
// OWNER: a Volume. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/deferred_completions.h"
#include "rnbd-server/storage/descriptor_room.h"
#include "rnbd-server/storage/mapping.h"
#include "rnbd-server/storage/nbd_link.h"
#include "rnbd-server/storage_options.h"

namespace rnbd {

class NbdStorage final : public Storage, private NbdLinkOwner {
  public:
    // ERRORS: EINPROGRESS (the server has not answered yet: try again soon), those of
    // NbdLink::open(), EROFS (the export is read-only and is to be written), EINVAL (its size or
    // blocks do not fit).
    static std::expected<std::unique_ptr<Storage>, StorageError> open(rtrs::Reactor& reactor,
                                                                      DeferredCompletions& deferred,
                                                                      const StorageOptions& options,
                                                                      DescriptorRoom::For whom);
    ~NbdStorage() override;

    const StorageGeometry& geometry() const noexcept override { return geometry_; }
    void submit(BlockRequest& request) override;
    std::error_code check() noexcept override;
    void when_writes_are_lost(std::function<void()> lost) override { lost_ = std::move(lost); }
    std::string trouble() const override;
    std::string give_up() override;
    std::function<std::error_code()> flush_aside() override;
    std::string description() const override { return "nbd " + uri_; }

  private:
    NbdStorage(rtrs::Reactor& reactor, DeferredCompletions& deferred, const StorageOptions& options,
               StorageGeometry geometry, Mapping zeroes, std::unique_ptr<NbdLink> link);

    void on_link_ready() override;
    void on_link_lost(const std::string& reason) override;
    void reconnect();
    void connected(std::unique_ptr<NbdLink> link);
    rtrs::Duration grown_delay() noexcept;
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
    std::uint64_t transfer_bytes_max_ = 0;  // per read or write
    bool can_zero_ = false;
    bool can_flush_ = false;
    bool can_fua_ = false;
    Mapping zeroes_;
    DeferredCompletions& deferred_;

    NbdLink* link_ = nullptr;     // null: the connection is lost
    std::string reason_;          // why it was lost
    bool server_leaves_ = false;  // the server does nothing any more over this connection
    bool broken_ = false;         // another export is there now
    bool given_up_ = false;
    rtrs::Timer reconnect_timer_;
    rtrs::Duration reconnect_delay_;
    rtrs::Instant connected_at_{};  // the newest link
    // The hold time runs from a loss until all requests that it kept waiting are answered.
    // Otherwise a request that makes the server crash each time would be sent for ever.
    const rtrs::Duration hold_time_;
    rtrs::Timer hold_timer_;
    bool hold_time_over_ = false;
    std::vector<BlockRequest*> held_;
    std::uint32_t sent_again_ = 0;                 // held requests sent again by this connection
    std::vector<BlockRequest*> unfinished_;        // requests whose next piece is to be sent
    std::uint32_t in_flight_ = 0;                  // requests at the server
    bool heard_ = false;                           // it has answered since the last check()
    std::uint32_t unheard_checks_ = 0;             // in a row, with requests at the server
    BlockRequest* flushing_ = nullptr;             // the flush that is in flight
    std::vector<BlockRequest*> flushing_too_;      // flushes that share it
    std::vector<BlockRequest*> waiting_to_flush_;  // flushes that came after it was sent

    std::uint64_t acknowledged_ = 0;     // changes without FUA
    std::uint64_t flushed_ = 0;          // how many of them were flushed
    std::uint64_t lost_ever_ = 0;        // how many of them were lost, or flushed before a loss
    std::uint32_t plain_under_way_ = 0;  // changes without FUA that the server may have
    std::uint32_t syncs_failed_ = 0;
    std::function<void()> lost_;
};

}  // namespace rnbd
