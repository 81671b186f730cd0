// An NBD server of somebody else's, for storages on it: a process on a Unix socket.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/contract/storage/support.h"

namespace rnbd::testing {

class NbdServer {
  public:
    // command: its words, in which SOCKET stands for the socket's path.
    // Throws Unavailable if the program is not there.
    NbdServer(std::vector<std::string> command, std::string socket);
    ~NbdServer();  // as kill()
    NbdServer(const NbdServer&) = delete;
    NbdServer& operator=(const NbdServer&) = delete;

    // Returns when it listens.
    void start();
    void kill();
    // In order, which takes as long as it takes: until has_ended().
    void tell_to_end();
    bool has_ended();
    std::string uri() const { return "nbd+unix:///?socket=" + socket_; }

  private:
    std::vector<std::string> command_;
    std::string socket_;
    pid_t process_ = 0;
};

// A file of zeroes, and a server that serves it.
struct ServedFile {
    TemporaryFolder folder;
    std::unique_ptr<NbdServer> server;
    // words: of the command, with SOCKET and IMAGE.
    explicit ServedFile(std::vector<std::string> words);
};

}  // namespace rnbd::testing
