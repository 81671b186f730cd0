// The sysfs attributes of the kernel's rtrs-server and rnbd-server, provided by this server
// (docs/reference/attributes.md).
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/attributes/tree.h"
#include "rnbd-server/target.h"
#include "rtrs/server.h"

namespace rnbd {

class ServerAttributes {
  public:
    // server, target: outlive this.
    ServerAttributes(rtrs::Server& server, Target& target);
    ServerAttributes(const ServerAttributes&) = delete;
    ServerAttributes& operator=(const ServerAttributes&) = delete;

    const AttributeTree& tree() const noexcept { return tree_; }

  private:
    struct PathPlace {
        rtrs::ServerSession* session;
        rtrs::ServerPathStatus path;
    };
    struct OpenPlace {
        const Volume* volume;
        const Volume::Open* open;
    };
    using Written = AttributeWritten;

    void add_variables();
    void add_path_attributes();
    void add_device_attributes();

    std::vector<rtrs::ServerSession*> named_sessions() const;
    std::vector<std::string> session_names() const;
    std::vector<std::string> path_names(const std::string& session) const;
    std::expected<rtrs::ServerSession*, AttributeError> session(const std::string& name) const;
    std::expected<PathPlace, AttributeError> path(AttributeScope scope) const;
    AttributeValue read_traffic(AttributeScope scope) const;
    Written reset_traffic(AttributeScope scope, std::string_view value);
    Written disconnect(AttributeScope scope, std::string_view value);

    std::vector<const Volume*> open_volumes() const;
    std::vector<std::string> device_names() const;
    std::vector<std::string> holder_names(const std::string& device) const;
    std::expected<const Volume*, AttributeError> device(const std::string& name) const;
    std::expected<OpenPlace, AttributeError> holder(AttributeScope scope) const;
    AttributeValue backing_device(AttributeScope scope) const;
    Written force_close(AttributeScope scope, std::string_view value);

    // What device_names() are, and stand for, while the tree is listed: to find the name of one
    // takes a look into /dev.
    struct Devices {
        std::vector<std::string> names;
        std::map<std::string, const Volume*> by_name;
    };
    void look_at_devices();

    rtrs::Server& server_;
    Target& target_;
    std::map<std::string, rtrs::ServerPathCounters> baselines_;  // by ServerPathStatus::id
    std::optional<Devices> devices_;
    AttributeTree tree_;
};

}  // namespace rnbd
