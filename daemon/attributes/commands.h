// The attribute tree on the control socket (docs/reference/control-protocol.md): attribute_get,
// attribute_set, attribute_list and attribute_table; and writes that are answered when their effect
// is there.
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

// What the errno of an attribute is on the control socket.
ControlFailure control_failure(const AttributeError& error);
// And what the failure of a command is as an attribute's errno.
AttributeError attribute_error(const ControlFailure& failure);

// Looks, every 10 ms, whether what was asked for has happened.
//
// THREAD: the clock's. OWNER: the daemon.
class AttributeWaits {
  public:
    // Nothing: not yet.
    using Look = std::function<std::optional<AttributeWritten>()>;
    // After this long it is ETIMEDOUT: as long as the kernel waits for a connection, and more.
    static constexpr rtrs::Duration time_max = std::chrono::seconds(40);

    explicit AttributeWaits(rtrs::Clock& clock);
    // Looks for the first time at once; done may come from inside this call.
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
