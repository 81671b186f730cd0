// The inside of RemoteSession, shared with RemoteVolume. Not for users of the library.
#pragma once

#include <list>
#include <map>
#include <string>
#include <vector>

#include "rnbd/remote_session.h"
#include "rnbd/remote_volume_inside.h"
#include "rtrs/base/lazy_array.h"

namespace rnbd {

// One submitted request, found by its permit: it says who gets the answer.
struct IoRecord {
    RemoteVolume::Inside* volume;
    VolumeIo io;
    std::uint32_t device_id;  // the device id in its message
    std::uint64_t covers;     // flush: writes that were acknowledged before it was submitted
    bool lost;                // flush: some of the writes that it covers are lost
    std::uint64_t epoch;      // the epoch of the server's cache when it was sent; 0: not known
    bool strayed;             // another volume had its device id while it was under way
};

// True if the answer never came, so that the server may have done what it was asked.
inline bool unanswered(std::error_code error) noexcept {
    return error == rtrs::Error::path_lost || error == rtrs::Error::closed;
}

struct RemoteSession::Inside final : rtrs::ClientSessionHandler {
    Inside(rtrs::SessionEnvironment its_environment, rtrs::ClientSessionOptions options,
           RemoteSessionHandler& its_handler);

    void on_link_up() override;
    void on_link_down(std::error_code reason) override;
    void on_given_up(std::error_code error) override;
    void on_settled(rtrs::PermitId id) override;
    void on_messages_reset() override {
        catalog.reset();
        statistics.reset();
    }
    void on_closed() override {
        catalog.closed();
        statistics.closed();
        handler.on_session_closed();
    }
    void on_path_changed(std::string_view label, rtrs::PathChange change,
                         std::error_code reason) override {
        handler.on_session_path_changed(label, change, reason);
    }
    void on_path_not_connected(std::string_view label, std::error_code reason,
                               std::string_view text) override {
        handler.on_session_path_not_connected(label, reason, text);
    }
    void on_path_gone(std::string_view label) override { handler.on_session_path_gone(label); }

    void catalog_event(const CatalogEvent& event);
    void exchange_info();
    void info_known(std::error_code error, rtrs::Bytes response);
    // A volume was closed here, but the server could not be told. The session at the server may
    // outlive the loss of the link, and would then keep others from opening the volume.
    void close_later(const RemoteVolumeOptions& volume);
    bool has_volume(const std::string& name) const noexcept;
    // The server has opened a volume under this id. volume: null if it is none of `volumes`.
    void id_was_given(std::uint32_t device_id, const RemoteVolume::Inside* volume);
    void close_left_open();
    void left_open_answered(std::error_code error, rtrs::Bytes response);
    void left_closed(std::error_code error);
    IoRecord& record(rtrs::PermitId id);
    // A request of this volume was reported as failed, and the server may still run it.
    void may_still_run(rtrs::PermitId id, const std::string& volume);
    // Whether the server may still run such a request: then nothing new may be done to the volume.
    bool may_still_run_for(const std::string& volume) const noexcept;

    rtrs::SessionEnvironment environment;
    RemoteSessionHandler& handler;
    rtrs::ClientSession session;
    RemoteCatalog catalog;
    RemoteStatistics statistics;
    rtrs::LazyArray<IoRecord> records;
    std::vector<RemoteVolume::Inside*> volumes;
    // By permit: the names of volumes of whose requests the server may still run one.
    std::map<rtrs::PermitId, std::string> unsettled;
    // The features in force; valid while `ready` is true.
    Feature features = Feature::none;
    // The link is up and SESS_INFO was exchanged: volumes may be opened.
    bool ready = false;
    bool asking = false;  // a SESS_INFO is on its way
    // Volumes that are closed here and may still be open at the server. While closing_left_open is
    // true, the first one is being closed there.
    std::list<RemoteVolumeOptions> left_open;
    bool closing_left_open = false;
    rtrs::Timer left_open_timer;
};

}  // namespace rnbd
