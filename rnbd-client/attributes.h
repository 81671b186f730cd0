// The sysfs attributes of the kernel's rtrs-client and rnbd-client, provided by this client
// (docs/reference/attributes.md).
//
//   attributes.cpp          the two tables of attributes
//   attributes_session.cpp  the attributes of sessions and paths
//   attributes_device.cpp   the attributes of devices
//   attributes_map.cpp      the syntax of map_device
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <map>
#include <string>

#include "daemon/attributes/commands.h"
#include "daemon/attributes/tree.h"
#include "rnbd-client/client.h"

namespace rnbd {

// Whether the session of a device that is being mapped was made for that, or existed before.
enum class SessionAge : std::uint8_t { just_made, older };

class ClientAttributes {
  public:
    // client: outlives this. socket_folder: where map_device puts the sockets of devices.
    ClientAttributes(Client& client, std::string socket_folder);
    ClientAttributes(const ClientAttributes&) = delete;
    ClientAttributes& operator=(const ClientAttributes&) = delete;

    const AttributeTree& tree() const noexcept { return tree_; }

  private:
    // A path and its session, as they are now.
    struct PathPlace {
        rtrs::ClientSession& session;
        rtrs::PathStatus path;
    };
    // The counters of a path at the time when they were reset.
    struct Baseline {
        rtrs::PathCounters counters;
        std::uint64_t reconnects = 0;
        std::uint64_t attempts_failed = 0;
    };
    using Written = AttributeWritten;
    using Done = const AttributeDone&;

    // Handlers of writes: one that is done when it returns, and one that may be done later.
    using WritesNow = Written (ClientAttributes::*)(AttributeScope, std::string_view);
    using Writes = void (ClientAttributes::*)(AttributeScope, std::string_view, Done);

    // --- attributes.cpp
    void add_variables();
    void add_session_attributes();
    void add_path_attributes();
    void add_statistics();
    void add_map_device();
    void add_device_commands();
    void add_device_facts();

    // --- attributes_session.cpp
    std::vector<std::string> session_names() const;
    std::vector<std::string> path_names(const std::string& session) const;
    std::expected<Client::Session*, AttributeError> session(const std::string& name) const;
    std::expected<PathPlace, AttributeError> path(AttributeScope scope) const;
    AttributeValue read_reconnect_attempts(AttributeScope scope) const;
    Written write_reconnect_attempts(AttributeScope scope, std::string_view value);
    AttributeValue read_policy(AttributeScope scope) const;
    Written write_policy(AttributeScope scope, std::string_view value);
    void add_path(AttributeScope scope, std::string_view value, Done done);
    void reconnect(AttributeScope scope, std::string_view value, Done done);
    void disconnect(AttributeScope scope, std::string_view value, Done done);
    void remove_path(AttributeScope scope, std::string_view value, Done done);
    AttributeValue read_hca_name(AttributeScope scope) const;
    AttributeValue read_source(AttributeScope scope) const;
    AttributeValue read_traffic(AttributeScope scope) const;
    AttributeValue read_reconnects(AttributeScope scope) const;
    Written reset_traffic(AttributeScope scope, std::string_view value);
    Written reset_reconnects(AttributeScope scope, std::string_view value);
    Written reset_migrations(AttributeScope scope, std::string_view value);
    Written reset_all(AttributeScope scope, std::string_view value);
    Baseline& baseline(const rtrs::PathStatus& path);
    Baseline known_baseline(const rtrs::PathStatus& path) const;

    // --- attributes_device.cpp
    std::vector<std::string> device_names() const;
    std::vector<std::string> link_names() const;
    std::expected<Mapping*, AttributeError> device(const std::string& name) const;
    AttributeValue link_target(AttributeScope scope) const;
    void map_device(AttributeScope scope, std::string_view value, Done done);
    void wait_until_mapped(const std::string& name, SessionAge age, Done done);
    void unmap_device(AttributeScope scope, std::string_view value, Done done);
    void remap_device(AttributeScope scope, std::string_view value, Done done);
    AttributeWritten resize(AttributeScope scope, std::string_view value);
    AttributeValue read_device_state(AttributeScope scope) const;

    Client& client_;
    std::string socket_folder_;
    AttributeWaits waits_;
    std::map<std::string, Baseline> baselines_;  // by PathStatus::id
    AttributeTree tree_;
};

}  // namespace rnbd
