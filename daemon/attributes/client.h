// The attributes of both daemons as one tree, read over their control sockets: for rnbdctl and
// rnbd-sysfs. A daemon that does not run has no attributes, like a kernel module that is not
// loaded.
//
// THREAD: any, several at a time; blocks the caller. Nothing is kept between calls.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/client.h"
#include "rtrs/base/instant.h"

namespace rnbd {

// The daemon whose attributes are at and below a path. both: the folder has attributes of both.
enum class AttributeOwner : std::uint8_t { server, client, both };
AttributeOwner attribute_owner(std::string_view path);

struct AttributeSockets {
    // Empty: that daemon is not asked.
    std::string server, client;
    // The time limits for an answer. A write is answered only when it has taken effect.
    rtrs::Duration read_timeout = std::chrono::seconds(10);
    rtrs::Duration write_timeout = std::chrono::seconds(60);
};

struct AttributeEntry {
    enum class Kind : std::uint8_t { directory, file, link };
    std::string path;  // "class/rtrs-client/host-a"; empty: the root
    Kind kind = Kind::directory;
    unsigned mode = 0755;
    std::string target;  // of a link
};

struct AttributeListing {
    AttributeEntry entry;
    std::vector<AttributeEntry> entries;  // below it, by path
};

class AttributeClient {
  public:
    template <typename Result>
    using Answer = std::expected<Result, ControlCallFailure>;
    enum class Depth : std::uint8_t { children, all };

    explicit AttributeClient(AttributeSockets sockets) : sockets_(std::move(sockets)) {}

    // ERRORS: as control_call(). refused: with the errno. absent, away, unreachable: the daemon to
    // which the path belongs, or both daemons if it belongs to neither alone.
    Answer<std::string> read(std::string_view path) const;
    Answer<void> write(std::string_view path, std::string_view value) const;
    Answer<AttributeListing> list(std::string_view path, Depth depth) const;

  private:
    std::vector<std::string> sockets_for(std::string_view path) const;
    Answer<nlohmann::json> ask_one(std::string_view path, rtrs::Duration timeout,
                                   std::string_view command, const nlohmann::json& arguments) const;

    AttributeSockets sockets_;
};

// The errno for a failed call: the attribute's own errno, or ENOENT if the daemon is not there.
int to_errno(const ControlCallFailure& failure) noexcept;

}  // namespace rnbd
