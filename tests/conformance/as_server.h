// The tool as a server: takes the paths of a client under test, looks at every byte that it sends,
// and serves a volume in memory. What it answers can be bent by a scenario.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "tests/conformance/lab.h"
#include "tests/conformance/report.h"

namespace conformance {

struct HostOptions {
    std::uint32_t depth = 64;
    std::uint32_t max_io_bytes = 126976;
    std::uint32_t max_header_bytes = 4096;
    bool new_rkey = true;
    // Without new_rkey: so many regions, the last in memory first. Divides the depth.
    std::uint32_t regions = 1;
    // Of accepts: 56 or more bytes; what bytes 20.. (24.. with extensions) are.
    std::size_t accept_bytes = 56;
    std::uint8_t filler = 0;
    VolumeWords volume{};
    // The header type of answers to SESS_INFO and OPEN; else what they are.
    std::optional<std::uint16_t> answer_type{};
};

class HostPath;
class Host;

// A request as it came.
struct Incoming {
    HostPath* path = nullptr;
    std::uint16_t cid = 0;
    std::uint32_t permit = 0;
    bool read = false;
    bool invalidate = false;
    std::uint32_t data_bytes = 0;
    std::vector<Region> destinations;
    Octets user;
    Octets data;  // of a write
    Instant when{};
    BlockType type() const { return static_cast<BlockType>(take(user, 0, 2)); }
    BlockOp op() const { return static_cast<BlockOp>(take(user, 16, 1)); }
    bool io(BlockOp which) const { return type() == BlockType::io && op() == which; }
};

// How one answer differs from what is right.
struct Bend {
    std::optional<std::uint16_t> key_type{};
    std::optional<std::uint32_t> key_permit{};
    std::size_t key_bytes = 8;
};

// A connection request.
struct Dial {
    Octets octets;
    Greeting greeting;
    std::size_t address = 0;  // which of the host's
    Instant when{};
    HostPath* path = nullptr;  // if it was accepted
};

// One attempt of a client's path.
class HostPath {
  public:
    HostPath(Host& host, const Greeting& greeting, std::size_t address);
    ~HostPath();

    void accept(std::unique_ptr<rtrs::ConnectRequest> request, std::uint16_t cid);
    void respond(const Incoming& request, int error, const Octets& data, const Bend& bend = {});
    void disconnect();
    bool up() const { return informed && !down(); }
    // Any connection of it is.
    bool down() const;
    // All of them are.
    bool gone() const;
    bool complete() const { return links.size() == greeting.cid_num; }

    Host& host;
    Greeting greeting;
    std::size_t address;
    std::map<std::uint16_t, std::unique_ptr<Link>> links;
    std::set<std::uint32_t> running;  // permits
    bool informed = false;
    std::string name;
    Instant informed_at{};
    std::vector<Instant> heartbeats;
    unsigned heartbeat_answers = 0;

  private:
    void arrived(Link& link, const Arrival& arrival);
    void info_request(Link& link, const Arrival& arrival);
    void request(Link& link, std::uint32_t immediate);
    void process(std::uint32_t permit);
    bool layout_kept(const Incoming& in, std::size_t chunk_at, std::uint32_t offset,
                     std::uint32_t end);
    std::size_t at(std::uint32_t permit) const;
    void bind(std::uint32_t permit);

    Room room_;
    Memory chunks_;
    std::vector<std::unique_ptr<rtrs::MemoryRegion>> regions_;
    std::unique_ptr<rtrs::MemoryWindows> windows_;
    std::vector<std::uint8_t> poison_;  // of each chunk
    struct Arrived {
        std::uint16_t cid = 0;
        std::uint32_t offset = 0;
    };
    std::map<std::uint32_t, Arrived> arrived_;
};

class Host {
  public:
    Host(Lab& lab, Report& report, const std::vector<std::string>& addresses,
         const HostOptions& options);
    ~Host();

    // --- What is bent. Called in the reactor's turn.
    // Private data of a reject for this connection request, or nothing to accept it.
    std::function<std::optional<Octets>(const Dial&)> refuse;
    // The accept's private data instead of the right one.
    std::function<std::optional<Octets>(const Dial&)> welcome;
    // INFO_RSP instead of the right one.
    std::function<std::optional<Octets>(const Octets& right)> info;
    // true: not answered now; it is in held.
    std::function<bool(const Incoming&)> hold;
    // How this one's answer is bent.
    std::function<Bend(const Incoming&)> bend;
    bool answers_heartbeats = true;
    // Keys stay what they are, and nothing is revoked.
    bool keep_keys = false;
    // Our project's extensions in the client's messages are no breach.
    bool extensions = false;

    // What a request may be; noted in the report.
    void judge(const Incoming& request);
    void serve(const Incoming& request);
    // Answers all that is held.
    void release();
    // The newest path at the address that is up, or null.
    HostPath* path(std::size_t address = 0) const;
    Octets reject(int error, std::size_t bytes = 56) const;
    Welcome words() const;
    std::uint32_t chunk_bytes() const { return options.max_io_bytes + options.max_header_bytes; }

    Lab& lab;
    Report& report;
    HostOptions options;
    std::vector<std::string> addresses;
    std::vector<Dial> dials;
    std::vector<std::unique_ptr<HostPath>> paths;
    std::vector<Incoming> held;
    std::vector<Incoming> seen;  // all but the data
    unsigned refusals = 0;       // -104 because the old path was still there
    unsigned invalidations = 0;
    Octets disk;
    std::set<std::uint32_t> open_devices;

    void admit(std::unique_ptr<rtrs::ConnectRequest> request, std::size_t address);

  private:
    struct Portal final : rtrs::ListenerHandler {
        Portal(Host& its_host, std::size_t its_index) : host(its_host), index(its_index) {}
        void on_connect_request(std::unique_ptr<rtrs::ConnectRequest> request) override {
            host.admit(std::move(request), index);
        }
        Host& host;
        std::size_t index;
        std::unique_ptr<rtrs::Listener> listener;
    };
    void judge_greeting(const Dial& dial);
    void judge_io(const Incoming& request);
    void serve_io(const Incoming& request);
    // Padding that is zero, or an extension.
    void padding(const Octets& user, std::size_t from, std::size_t to, std::string_view what);
    std::vector<std::unique_ptr<Portal>> portals_;
};

}  // namespace conformance
