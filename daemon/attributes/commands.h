// The commands of the control socket for the attribute tree (docs/reference/control-protocol.md):
// attribute_get, attribute_set, attribute_list and attribute_table. Also waits for writes that are
// answered only when they have taken effect.
#pragma once

#include <functional>
#include <list>
#include <optional>

#include "daemon/attributes/tree.h"
#include "daemon/control/server.h"
#include "rtrs/base/clock.h"

namespace rnbd {

// tree: outlives control.
void add_attribute_commands(ControlServer& control, const AttributeTree& tree);

// Converts the error of an attribute to a failure on the control socket.
ControlFailure control_failure(const AttributeError& error);
// Converts the failure of a command to the error of an attribute.
AttributeError attribute_error(const ControlFailure& failure);

// Checks every 10 ms whether a requested effect has happened.
//
// THREAD: the clock's. OWNER: the daemon.
class AttributeWaits {
  public:
    // Returns nullopt if the effect has not happened yet.
    using Look = std::function<std::optional<AttributeWritten>()>;
    // After this time the result is ETIMEDOUT. It is longer than the kernel waits for a connection.
    static constexpr rtrs::Duration time_max = std::chrono::seconds(40);

    explicit AttributeWaits(rtrs::Clock& clock);
    // Looks for the first time at once; done may be called from inside this call.
    void wait(Look look, AttributeDone done);

  private:
    struct Wait {
        Look look;
        AttributeDone done;
        rtrs::Instant deadline;
    };
    void check();

    rtrs::Clock& clock_;
    rtrs::Timer timer_;
    std::list<Wait> waits_;
};

}  // namespace rnbd
