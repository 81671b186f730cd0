// The paths of a session whose RDMA device is not there yet: its driver is loaded later, or its
// address is not set. They are tried again every second, each until the session has it, or until it
// is forgotten.
//
// OWNER: who has the session. THREAD: the reactor's (rtrs/reactor.h).
// ERRORS: none; why a path is not used is its reason, and the owner is told whenever it changes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "rtrs/base/clock.h"
#include "rtrs/base/instant.h"
#include "rtrs/client.h"
#include "rtrs/rdma_devices.h"

namespace rnbd {

struct AwaitedPath {
    std::string label;  // as in rtrs::PathAddress; its owner finds the addresses by it
    rtrs::PathPriority priority = rtrs::PathPriority::prefer;
    rtrs::RdmaDevices::Error reason;  // why it is not used; its text is one line, never empty
    rtrs::Instant since{};
    rtrs::Instant next_attempt{};
    std::uint32_t attempts = 0;  // those that have failed since
};

class AwaitedPaths {
  public:
    // It adds or forgets no awaited path inside a call.
    class Owner {
      public:
        // False: no path may come up at present, so none is tried.
        virtual bool may_add_awaited() const noexcept = 0;
        // Returns why the session cannot have the path yet; none: it has it.
        virtual std::optional<rtrs::RdmaDevices::Error> add_awaited(const AwaitedPath& path) = 0;
        // The path is not used, for a reason that is new.
        virtual void on_awaited(const AwaitedPath& path) = 0;

      protected:
        ~Owner() = default;
    };

    // owner: outlives this.
    AwaitedPaths(rtrs::Clock& clock, Owner& owner);

    // Whether a path that has no device because of this error may have one later.
    static bool may_come(std::error_code error) noexcept;
    void add(std::string label, rtrs::PathPriority priority, rtrs::RdmaDevices::Error reason);
    const std::vector<AwaitedPath>& all() const noexcept { return all_; }
    // Null: that path is not waited for. Valid until the next turn.
    const AwaitedPath* find(std::string_view label) const noexcept;
    // False: that path is not waited for.
    bool forget(std::string_view label) noexcept;
    bool set_priority(std::string_view label, rtrs::PathPriority priority) noexcept;

  private:
    void try_all();

    rtrs::Clock& clock_;
    Owner& owner_;
    std::vector<AwaitedPath> all_;
    rtrs::Timer timer_;  // armed while there are any
};

}  // namespace rnbd
