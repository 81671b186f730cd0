// A server machine: its storages, and one process after another that serves them.
//
// The process is rtrs::Server with as much of RNBD as volumes need. A volume is exclusive: one
// session may have it open, and a session of the same name only follows when the old one has come
// to its end (the core's promise, checked here). A process that starts takes a volume's lock first,
// which is free when the last operation of the process before has ended.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rnbd/messages.h"
#include "rtrs/server.h"
#include "tests/sim/failover/storage.h"

namespace failover {

// What belongs to a process that died: nothing calls it any more, and nothing may destroy it, since
// it has not come to its end.
void bury(void* object);

struct ServerVolume {
    std::string name;
    SimStorage storage;
    std::uint64_t losses = 0;  // while a server had it
};

class ServerMachine {
  public:
    ServerMachine(const Surroundings& surroundings, rtrs::SimHost& its_host, std::uint32_t number);
    ServerVolume& add_volume(std::uint8_t number);

    void start();
    bool running() const noexcept { return life_ != nullptr; }
    void kill();   // the process
    void crash();  // the machine; restart() ends it
    void restart();
    void stop();           // begins an orderly end
    bool stopped() const;  // ... which came to its end
    void remove();         // ASSUMES: stopped()
    // The next process has another configuration.
    void reconfigure();

    // An operator closes a device, or the server a session.
    void close_a_device();
    void close_a_session();
    // As an operator who evicts; and as a storage whose own server was restarted.
    void take_a_device(std::uint32_t which);
    void lose_a_cache(std::uint32_t which);

    std::uint32_t in_flight() const;
    std::size_t sessions() const;

    rtrs::SimHost& host;
    std::vector<std::unique_ptr<ServerVolume>> volumes;
    bool stopping = false;
    bool died = false;  // a process did, once

  private:
    class Life;
    const Surroundings& surroundings_;
    std::uint32_t number_;
    std::uint32_t lives_ = 0;
    rtrs::ServerOptions server_options_;
    Life* life_ = nullptr;
};

}  // namespace failover
