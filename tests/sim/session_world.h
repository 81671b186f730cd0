// A client session, a server and a disk on simulated hosts, with a workload that checks itself.
//
// The disk is one register per block. Every write carries a value of its own; a read must return
// the newest write that was acknowledged before it began, or a later one. The server hands out an
// epoch per session, as RNBD does device ids: a request that names another one is a bug of whoever
// held it. Nothing here throws or asserts while the world runs: what is wrong is noted in Findings.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rtrs/client.h"
#include "rtrs/fabric/fault/faulty_fabric.h"
#include "rtrs/fabric/sim/sim_world.h"
#include "rtrs/server.h"

namespace simtest {

using namespace rtrs;
using namespace std::chrono_literals;

// What was found wrong, the first few of it.
struct Findings {
    std::vector<std::string> lines;
    void expect(bool holds, const std::string& what) {
        if (!holds && lines.size() < 10) lines.push_back(what);
    }
};

// Keeps what was said, with virtual time.
class Recorder final : public Tracer {
  public:
    explicit Recorder(SimWorld& world) : world_(world) {}
    void trace(TraceLevel level, std::string_view subsystem, std::string_view subject,
               std::string_view text) override;
    const std::vector<std::string>& lines() const { return lines_; }
    bool said(std::string_view text) const;

  private:
    SimWorld& world_;
    std::vector<std::string> lines_;
};

// The objects of a crashed process: nothing calls them any more, and nothing may destroy them,
// since they have not come to their end.
void bury(void* object);

struct Disk {
    explicit Disk(std::size_t blocks) : values(blocks) {}
    std::vector<std::uint64_t> values;
    std::uint64_t writes = 0;
    std::uint64_t reads = 0;
};

// The user messages of the test: OPEN (8 bytes) is answered with the epoch, IO is 32 bytes; one of
// 16 bytes waits until the test answers it.
struct IoRequest {
    std::uint64_t epoch = 0;
    std::uint64_t block = 0;
    std::uint64_t value = 0;  // of a write
    std::uint64_t bytes = 0;
};

// One life of a server process.
class ServerLife final : public ServerHandler {
  public:
    ServerLife(SimWorld& world, SimHost& host, Disk& disk, Findings& findings, Tracer& tracer,
               const ServerOptions& options, const FaultOptions& faults);
    ~ServerLife();

    std::error_code on_session_up(ServerSession& session) override;
    void on_request(ServerOp& op) override;
    void on_session_down(ServerSession& session) override;
    void on_closed() override { closed = true; }

    std::uint32_t in_flight() const;
    // Of those: in the storage.
    std::size_t working() const noexcept { return works_.size(); }

    Duration service_max{0};  // operations take up to so long; 0: most are answered at once
    std::error_code turn_away{};
    std::uint32_t sessions_up = 0;
    std::vector<ServerOp*> waiting;
    bool closed = false;
    FaultyFabric fabric;
    Server server;

  private:
    struct Work;
    void execute(ServerOp& op, const IoRequest& io);
    void work_done(Work& work);

    SimWorld& world_;
    SimHost& host_;
    Disk& disk_;
    Findings& findings_;
    std::map<const ServerSession*, std::uint64_t> epochs_;
    std::map<Work*, std::unique_ptr<Work>> works_;
};

// One life of a client process and its workload.
class ClientLife final : public ClientSessionHandler {
  public:
    ClientLife(SimWorld& world, SimHost& host, std::size_t blocks, Findings& findings,
               Tracer& tracer, ClientSessionOptions options, const FaultOptions& faults);

    void on_link_up() override;
    void on_link_down(std::error_code reason) override;
    void on_closed() override { closed = true; }

    // busy: a request that is answered is followed by the next. leisurely: some milliseconds later.
    enum class Pace : std::uint8_t { busy, leisurely };
    // Keeps `depth` requests in flight until `total` were made.
    void run(std::uint32_t depth, std::uint64_t total, Pace pace = Pace::busy);
    void pump();
    void pause() { total_ = made; }
    // One request. False: no permit.
    bool issue();
    bool idle() const { return answered == made; }
    void ask_epoch();

    std::uint64_t made = 0;
    std::uint64_t answered = 0;
    std::uint64_t failed = 0;
    std::map<std::error_code, std::uint64_t> errors;
    bool errors_expected = false;
    bool open = false;
    bool closed = false;
    std::uint32_t links_up = 0;
    std::uint32_t links_down = 0;
    std::function<void()> when_lost;  // in on_link_down()
    Instant last_failure{};
    std::uint32_t bytes_max = 512;  // of most requests
    FaultyFabric fabric;
    ClientSession session;

  private:
    struct Request {
        bool busy = false;
        bool write = false;
        IoRequest io;
        std::size_t oldest = 0;  // read: the newest acknowledged write when it began
    };
    // What was written to a block, oldest first; one write at a time.
    struct Block {
        std::vector<std::uint64_t> history;
        std::size_t acknowledged = 0;
        bool writing = false;
    };

    static void responded(void* context, Permit permit, std::error_code error);
    void done(Permit permit, std::error_code error);
    void check_read(const Request& request, MutableBytes data);
    void epoch_known(std::error_code error, Bytes response);

    SimWorld& world_;
    Findings& findings_;
    std::vector<Request> requests_;
    std::vector<Block> blocks_;
    std::uint64_t epoch_ = 0;
    std::uint64_t last_value_ = 0;
    std::uint32_t depth_ = 0;
    std::uint64_t total_ = 0;
    Pace pace_ = Pace::busy;
    bool asking_ = false;
    bool known_ = false;  // every block was read once: what a life before left behind
    Timer pump_timer_;
};

struct SceneOptions {
    SimOptions sim{};
    ServerOptions server{};
    ClientSessionOptions client{};
    FaultOptions server_faults{};
    FaultOptions client_faults{};
    std::size_t addresses = 1;
    std::size_t blocks = 16;
};

SceneOptions quick_options(std::uint64_t seed);

class Scene {
  public:
    explicit Scene(SceneOptions options);
    ~Scene();

    void start_server();
    void start_client();
    void crash_server(SimHost::CrashSeen seen);
    void crash_client(SimHost::CrashSeen seen);
    // on_closed, then destroyed.
    bool close_server(Duration limit = 20s);
    bool close_client(Duration limit = 20s);
    bool run_until(const std::function<bool()>& done, Duration limit = 20s) {
        return world.run_until(done, limit);
    }
    // The client has opened.
    bool ready(Duration limit = 20s) {
        return run_until([&] { return client && client->open; }, limit);
    }
    // Everything that was made is answered.
    bool finish(Duration limit = 60s) {
        return run_until([&] { return client->idle(); }, limit);
    }
    // Permits are home, slots are free.
    bool at_rest() const;
    std::string address(std::size_t index = 0) const;

    SceneOptions options;
    SimWorld world;
    SimHost& server_host;
    SimHost& client_host;
    Findings findings;
    Recorder recorder;
    Disk disk;
    bool crashed = false;  // somebody: the fabric keeps what the dead had
    std::unique_ptr<ServerLife> server;
    std::unique_ptr<ClientLife> client;
};

}  // namespace simtest
