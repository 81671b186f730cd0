// The RNBD protocol at the server: sessions open volumes, their requests become storage requests.
//
// OWNER: main. THREAD: the reactor's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rnbd-server/config.h"
#include "rnbd-server/volume.h"
#include "rnbd/messages.h"
#include "rtrs/reactor.h"
#include "rtrs/server.h"

namespace rnbd {

// What one session did, for status.
struct SessionStatistics {
    std::uint64_t reads = 0;
    std::uint64_t writes = 0;
    std::uint64_t other = 0;  // flush, discard, write zeroes
    std::uint64_t read_bytes = 0;
    std::uint64_t write_bytes = 0;
    std::uint64_t errors = 0;
};

class Target final : public rtrs::ServerHandler {
  public:
    // epochs: outlives it.
    Target(rtrs::Reactor& reactor, const std::vector<ServerConfig::Export>& exports,
           EpochBook& epochs);
    ~Target();

    std::error_code on_session_up(rtrs::ServerSession& session) override;
    void on_request(rtrs::ServerOp& op) override;
    void on_chunk_gone(void* chunk_context) override;
    void on_session_down(rtrs::ServerSession& session) override;
    void on_closed() override { closed_(); }

    // What to do when the server has closed.
    void when_closed(std::function<void()> closed) { closed_ = std::move(closed); }
    // Flushes every volume that was writable.
    void flush_all(std::function<void()> done);

    const std::vector<std::unique_ptr<Volume>>& volumes() const noexcept { return volumes_; }
    static const SessionStatistics& statistics(const rtrs::ServerSession& session);

  private:
    struct Session;
    struct OpenVolume;
    struct Io;

    void session_info(Session& session, rtrs::ServerOp& op);
    void open(Session& session, rtrs::ServerOp& op);
    void close(Session& session, rtrs::ServerOp& op);
    void io(Session& session, rtrs::ServerOp& op);
    void extents(Session& session, rtrs::ServerOp& op);
    std::error_code prepare(Session& session, rtrs::ServerOp& op, Io& io);
    static void start(Io& io, Storage& storage);
    static void completed(BlockRequest& request, std::error_code error);
    void log_failure(OpenVolume& open, const Io& io, std::error_code error);
    Volume* find(const std::string& name) noexcept;

    rtrs::Reactor& reactor_;
    std::vector<std::unique_ptr<Volume>> volumes_;
    std::function<void()> closed_;
    std::size_t flushes_ = 0;
};

}  // namespace rnbd
