// The paths of a session whose RDMA device is not there yet: its driver is loaded later, or its
// address is not set. They are tried again every second, each until the session has it, or until it
// is forgotten.
//
// OWNER: Client::Session. THREAD: the reactor's (rtrs/reactor.h).
// ERRORS: none; why a path is not used is its reason, and is logged whenever it changes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "rnbd-client/config.h"
#include "rtrs/base/clock.h"
#include "rtrs/base/instant.h"

namespace rnbd {

struct AwaitedPath {
    ClientConfig::Path path;
    std::string reason;  // why it is not used; one line, never empty
    rtrs::Instant since{};
    rtrs::Instant next_attempt{};
    std::uint32_t attempts = 0;  // those that have failed since
};

class AwaitedPaths {
  public:
    class Owner {
      public:
        // False: no path may come up at present, so none is tried.
        virtual bool may_add_awaited() const noexcept = 0;
        // Returns why the session cannot have the path yet; empty: it has it.
        virtual std::string add_awaited(const ClientConfig::Path& path) = 0;

      protected:
        ~Owner() = default;
    };

    // session: its name, for the log. owner: outlives this.
    AwaitedPaths(rtrs::Clock& clock, std::string session, Owner& owner);

    // Whether a path that has no device because of this error may have one later.
    static bool may_come(std::error_code error) noexcept;
    void add(ClientConfig::Path path, std::string reason);
    const std::vector<AwaitedPath>& all() const noexcept { return all_; }
    // label: Path::to_string(). Null: that path is not waited for. Valid until the next turn.
    const AwaitedPath* find(std::string_view label) const noexcept;
    // False: that path is not waited for.
    bool forget(std::string_view label) noexcept;
    bool set_priority(std::string_view label, rtrs::PathPriority priority) noexcept;

  private:
    void try_all();
    void log(const AwaitedPath& one) const;

    rtrs::Clock& clock_;
    const std::string session_;
    Owner& owner_;
    std::vector<AwaitedPath> all_;
    rtrs::Timer timer_;  // armed while there are any
};

}  // namespace rnbd
