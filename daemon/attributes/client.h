// The attributes of both daemons as one tree, over their control sockets: for rnbdctl and
// rnbd-sysfs. A daemon that is not there has none, as a kernel module that is not loaded.
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

// Whose attributes are at and below a path; both: of folders that both are in.
enum class AttributeOwner : std::uint8_t { server, client, both };
AttributeOwner attribute_owner(std::string_view path);

struct AttributeSockets {
    // Empty: that daemon is not asked.
    std::string server, client;
    // For one answer to a reader; and to a writer, who gets it when the effect is there.
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

    // ERRORS: as control_call(); refused: with the errno. absent, away or unreachable: of the
    // daemon that the path belongs to, or of both if it is of none.
    Answer<std::string> read(std::string_view path) const;
    Answer<void> write(std::string_view path, std::string_view value) const;
    Answer<AttributeListing> list(std::string_view path, Depth depth) const;

  private:
    std::vector<std::string> sockets_for(std::string_view path) const;
    Answer<nlohmann::json> ask_one(std::string_view path, rtrs::Duration timeout,
                                   std::string_view command, const nlohmann::json& arguments) const;

    AttributeSockets sockets_;
};

// The errno that stands for a failed call: of an attribute its own, ENOENT if nobody is there.
int to_errno(const ControlCallFailure& failure) noexcept;

}  // namespace rnbd
