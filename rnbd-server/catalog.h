// Tells sessions which exports they may open, and reports changes of these exports.
//
// A session that follows the catalog gets a whole picture, then one event per change, numbered
// without a gap. A session that takes its events too slowly gets a new picture instead of the
// events that found no room.
//
// OWNER: Target. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rnbd-server/volume.h"
#include "rnbd/catalog.h"
#include "rtrs/base/clock.h"
#include "rtrs/server.h"

namespace rnbd {

class Catalog {
  public:
    using Volumes = std::vector<std::unique_ptr<Volume>>;
    // volumes: the present volumes, whenever the catalog looks at them; outlives this.
    Catalog(rtrs::Clock& clock, const Volumes& volumes);
    ~Catalog();

    void session_up(rtrs::ServerSession& session);
    void session_down(rtrs::ServerSession& session);
    // An export was added or removed, or has changed (size, state, rules). The catalog looks at the
    // exports in a later turn.
    void changed() { timer_.arm(clock_.now()); }
    // Tells the size of the volume even if it is the size that was told last, because some sessions
    // have received another size when they opened it.
    void tell_size(const Volume& volume);
    // The server closed what the session had open of the volume; the session did not ask for it.
    void taken(const rtrs::ServerSession& session, const Volume& volume);
    // Whether sessions may come in and open exports. Tells all sessions that follow.
    void intend(ServerIntent intent);
    // Tells all sessions that follow that the server is about to end. done() is called when they
    // have received that, or soon in any case.
    void end(std::function<void()> done);
    // How often the catalog has compared all exports with what was told.
    std::uint64_t looks() const noexcept { return looks_; }

  private:
    struct Subscriber;
    // What was told last about an export, and the rules that say to whom.
    struct Known {
        CatalogEntry entry;
        bool read_only = false;
        std::vector<ServerConfig::Allow> allow;
        std::uint64_t seen = 0;
    };

    void look();
    void tell(CatalogEventKind kind, const Known& known);
    void tell_access(const Known& before, const Known& now);
    // Tells an event of the server itself. False: no session follows.
    bool tell(CatalogEventKind kind);
    void send(Subscriber& subscriber, const CatalogEvent& event);
    void send_picture(Subscriber& subscriber, std::uint32_t number);
    void wait_for_request(Subscriber& subscriber);
    void requested(Subscriber& subscriber, const rtrs::ReceivedMessage& message);
    void answer(Subscriber& subscriber, const rtrs::ReceivedMessage& message);
    void wait_if_answered(Subscriber& subscriber);
    void sent(Subscriber& subscriber);
    void picture_sent(Subscriber& subscriber, std::error_code error);
    void picture_failed(Subscriber& subscriber, std::error_code error, const std::string& why);
    void end_told();

    rtrs::Clock& clock_;
    const Volumes& volumes_;
    rtrs::Timer timer_;
    rtrs::Timer end_timer_;
    std::map<std::string, Known> known_;
    std::uint64_t looks_ = 0;
    std::map<const rtrs::ServerSession*, std::unique_ptr<Subscriber>> subscribers_;
    ServerIntent intent_ = ServerIntent::serve;
    std::function<void()> ended_;
};

}  // namespace rnbd
