// An NBD server of somebody else's, for storages on it: a process on a Unix socket.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/contract/storage/support.h"
#include "tests/skip.h"

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

inline const std::vector<std::string> nbdkit_file = {"nbdkit", "-f",   "-U",
                                                     "SOCKET", "file", "IMAGE"};

StorageOptions on(const NbdServer& server);
// Until the storage has noticed.
void wait_until_lost(Bench& bench);
// One that never ends fails the test.
void finish_in_time(Bench& bench, const TestRequest& request);

// body: takes a ServedFile. Skipped aloud where there is no nbdkit.
template <typename Body>
void with_nbdkit(Body body) {
    try {
        ServedFile served(nbdkit_file);
        body(served);
    } catch (const Unavailable& unavailable) {
        skip(unavailable.reason);
    }
}

}  // namespace rnbd::testing
