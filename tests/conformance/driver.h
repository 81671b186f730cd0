// The program that makes a client under test do things: started for each of them, while the tool
// serves. What it has to understand is in docs/reference/conformance.md.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/conformance/lab.h"

namespace conformance {

class Driver {
  public:
    // The driver itself is one word; folder is its own, in CONFORMANCE_DIR.
    Driver(Lab& lab, std::string program);
    ~Driver();

    class Job {
      public:
        Job(pid_t id, std::string what) : id_(id), what_(std::move(what)) {}
        // Has it ended? Never waits.
        bool ended();
        int status() const { return status_; }
        const std::string& what() const { return what_; }

      private:
        pid_t id_;
        std::string what_;
        bool ended_ = false;
        int status_ = 0;
    };
    std::unique_ptr<Job> start(const std::vector<std::string>& words);
    // Its exit status; Stop if it does not end in time.
    int run(const std::vector<std::string>& words);
    int finish(Job& job);
    // run(), and Stop unless it is 0.
    void must(const std::vector<std::string>& words);
    // A file of its folder.
    std::string file(const std::string& name) const { return folder_ + "/" + name; }
    Octets content(const std::string& name) const;
    void store(const std::string& name, const Octets& octets) const;
    // What it printed last.
    std::string output() const;
    // Of one job, and of a new session, which may wait for a client's delays.
    Duration patience = std::chrono::seconds(120);

  private:
    Lab& lab_;
    std::string program_;
    std::string folder_;
};

}  // namespace conformance
