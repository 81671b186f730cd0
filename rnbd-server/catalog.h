// Tells sessions which exports they may open, and what becomes of them.
//
// A session that follows gets a whole picture, then an event per change, numbered without a gap.
// One that is too slow for its events gets a new picture instead of those that found no room.
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
    // volumes: as they are now, whenever it looks; outlives it.
    Catalog(rtrs::Clock& clock, const Volumes& volumes);
    ~Catalog();

    void session_up(rtrs::ServerSession& session);
    void session_down(rtrs::ServerSession& session);
    // An export came, went, or is not what it was (size, state, rules): looked at in a coming turn.
    void changed() { timer_.arm(clock_.now()); }
    // Its size, whatever was told last: some have heard another one by opening it.
    void tell_size(const Volume& volume);
    // What the session has open of it was closed, and not by the session.
    void taken(const rtrs::ServerSession& session, const Volume& volume);
    // Whether sessions may come in and open exports. Tells everybody who follows.
    void intend(ServerIntent intent);
    // Tells everybody who follows that the server is about to end; done() when they have heard it,
    // or soon.
    void end(std::function<void()> done);
    // How often it has compared all exports with what was told.
    std::uint64_t looks() const noexcept { return looks_; }

  private:
    struct Subscriber;
    // What was told last, and to whom.
    struct Known {
        CatalogEntry entry;
        bool read_only = false;
        std::vector<ServerConfig::Allow> allow;
        std::uint64_t seen = 0;
    };

    void look();
    void tell(CatalogEventKind kind, const Known& known);
    void tell_access(const Known& before, const Known& now);
    // What is true of the server itself. False: nobody follows.
    bool tell(CatalogEventKind kind);
    void send(Subscriber& subscriber, const CatalogEvent& event);
    void send_picture(Subscriber& subscriber, std::uint32_t number);
    void wait_for_request(Subscriber& subscriber);
    void requested(Subscriber& subscriber, const rtrs::ReceivedMessage& message);
    void answer(Subscriber& subscriber, const rtrs::ReceivedMessage& message);
    void wait_if_answered(Subscriber& subscriber);
    void sent(Subscriber& subscriber);
    void picture_sent(Subscriber& subscriber, std::error_code error);
    void picture_failed(Subscriber& subscriber, std::error_code error);
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
