// The tool as a client: one path to the server under test, request by request.
#pragma once

#include <map>
#include <optional>

#include "tests/conformance/lab.h"
#include "tests/conformance/report.h"

namespace conformance {

// What came for one request.
struct Answer {
    bool came = false;
    std::uint16_t cid = 0;
    unsigned type = 0;
    int error = 0;
    std::uint32_t permit = 0;
    bool with_body = false;   // a send with immediate
    std::uint32_t bytes = 0;  // placed with the answer itself
    Octets body;
    unsigned invalidations = 0;  // since the answer before, on this connection
    Octets data;                 // at the destination when the answer was seen
};

// One request as it goes out. The defaults make a well-formed one of kind and user message.
struct Outgoing {
    std::uint16_t cid = 0;
    std::uint32_t permit = 0;
    Octets user;
    bool read = false;
    std::uint32_t data_bytes = 0;                      // room (read) or data (write)
    Octets data{};                                     // write
    std::optional<std::uint32_t> destination_bytes{};  // read; default data_bytes, 0: none
    std::size_t destination_at = 0;
    bool invalidate = false;
    // Instead of what would be right:
    std::optional<Octets> message{};
    std::optional<std::uint32_t> immediate{};
    std::optional<std::uint64_t> write_at{};  // in the chunk
};

struct Endpoints {
    std::string destination;
    std::string source{};
};

class ClientPath {
  public:
    ClientPath(Lab& lab, Report& report, Endpoints endpoints);
    ~ClientPath();

    // One connection; waits until it is settled. private_data: instead of the greeting's own.
    Link& dial(std::uint16_t cid, std::optional<Octets> private_data = {});
    // All connections, until one is not accepted. True if all are up.
    bool connect();
    // INFO_REQ and its answer. False if the path went down instead.
    bool inform(const std::string& name);
    // The same, and Stop if it fails.
    void open_path(const std::string& name);

    // A permit beyond the depth stands for one below.
    void submit(const Outgoing& wanted);
    // Stop if there is neither answer nor the path's end in time. came is false at its end.
    Answer answered(std::uint32_t permit, std::uint16_t cid);
    Answer ask(const Outgoing& outgoing);
    // Nothing is answered and the path stays up, or ends? Waits for the patience given.
    bool ends_or_answers(std::uint32_t permit, Duration at_most);
    bool ended() const;
    rtrs::Segment stage(const Octets& octets) { return room_.stage(octets); }
    void disconnect();

    // RNBD in one call each, on `cid` and permit 0 but for io.
    Answer session_info(unsigned version);
    Answer open(const std::string& volume, unsigned access);
    Answer close(std::uint32_t device_id);
    Answer io(BlockOp op, std::uint32_t device, std::uint64_t sector, std::uint32_t bytes,
              std::uint32_t flags = 0, Octets data = {}, std::uint16_t cid = 1,
              std::uint32_t permit = 1);
    // open() that has to work: the answer's words.
    VolumeWords volume(const std::string& name, unsigned access);

    Lab& lab;
    Report& report;
    Endpoints endpoints;
    Greeting greeting;
    Welcome welcome;
    Octets info;  // INFO_RSP
    std::uint32_t depth = 0, chunk_bytes = 0;
    struct Chunk {
        std::uint64_t address = 0;
        std::uint32_t key = 0;
    };
    std::vector<Chunk> chunks;
    bool answers_heartbeats = true;
    std::vector<Instant> heartbeats;  // the server's
    unsigned heartbeat_answers = 0;
    Instant connected_at{};
    std::vector<std::unique_ptr<Link>> links;
    static constexpr std::size_t destination_bytes_all = 4u << 20;

  private:
    void arrived(Link& link, const Arrival& arrival);
    void judge(const Answer& answer, const Outgoing& asked);
    bool lay_out();

    Room room_;
    Memory destination_;
    std::unique_ptr<rtrs::MemoryRegion> region_;
    std::map<std::uint32_t, Outgoing> asked_;  // by permit
    std::map<std::uint32_t, std::vector<Answer>> answers_;
    std::map<std::uint16_t, unsigned> invalidations_;
    std::vector<std::unique_ptr<rtrs::MemoryWindows>> windows_;
};

}  // namespace conformance
