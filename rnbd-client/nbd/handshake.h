// The server's side of the fixed newstyle handshake: bytes in, replies out. Pure.
//
// OWNER: one NbdConnection, until transmission begins. THREAD: its owner's.
//
// | State         | On                              | Goes to       | Replies                  |
// | ------------- | ------------------------------- | ------------- | ------------------------ |
// | client_flags  | known flags                     | option_header |                          |
// | client_flags  | an unknown flag                 | failed        |                          |
// | option_header | magic, acceptable length        | option_data   |                          |
// | option_header | a length over option_bytes_max  | skipping      |                          |
// | option_header | wrong magic, absurd length, too | failed        |                          |
// |               | many options, no fixed newstyle |               |                          |
// | option_data   | EXPORT_NAME of a usable export  | transmission  | size and flags           |
// | option_data   | EXPORT_NAME of nothing usable   | failed        | (it cannot carry errors) |
// | option_data   | GO of a usable export           | transmission  | infos, ack               |
// | option_data   | ABORT                           | aborted       | ack                      |
// | option_data   | anything else                   | option_header | infos, ack or an error   |
// | skipping      | the oversize option's last byte | option_header | ERR_TOO_BIG              |
//
// transmission, aborted and failed are final. After aborted, the replies are still sent and then
// the connection is closed; after failed, it is closed at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rnbd-client/nbd/wire.h"

namespace rnbd::nbd {

// All powers of two but the maximum, which is a multiple of the minimum.
struct BlockSizes {
    std::uint32_t minimum_bytes = 1;
    std::uint32_t preferred_bytes = 4096;
    std::uint32_t maximum_bytes = 32u << 20;
};

struct ExportDescription {
    std::uint64_t size_bytes = 0;
    // Without send_df, which depends on what the client negotiates.
    std::uint16_t transmission_flags = transmission_flag::has_flags;
    BlockSizes block_sizes{};
    std::string_view text{};  // shown to people; may be empty; at most string_bytes_max
    // Why the export cannot be used now, for people; empty if it can be used. Such an export is not
    // listed: many clients ask for each one that is listed, and end at the first error.
    std::string_view unavailable{};
    OptionReply unavailable_type = OptionReply::error_unknown;
};

// The exports that one socket serves. Names have at most string_bytes_max bytes; views are valid as
// long as the table's entry.
class ExportTable {
  public:
    virtual ~ExportTable() = default;
    virtual std::size_t count() const noexcept = 0;
    // index: below count().
    virtual std::string_view name(std::size_t index) const noexcept = 0;
    // The present description: sizes may change between two calls.
    virtual ExportDescription describe(std::size_t index) const noexcept = 0;
    // The empty name means the default export: the only one, if the socket serves just one.
    virtual std::optional<std::size_t> find(std::string_view name) const noexcept;
};

// What the client negotiated.
struct Negotiated {
    std::size_t export_index = 0;
    std::uint64_t size_bytes = 0;          // as told to the client
    std::uint16_t transmission_flags = 0;  // as told to the client
    bool structured_replies = false;
    bool allocation_context = false;  // base:allocation was selected for this export
};

// The id of base:allocation in replies.
inline constexpr std::uint32_t allocation_context_id = 1;
inline constexpr std::string_view allocation_context_name = "base:allocation";

class Handshake {
  public:
    struct Limits {
        std::uint32_t option_bytes_max = 16u << 10;  // larger: ERR_TOO_BIG
        std::uint32_t skipped_bytes_max = 1u << 20;  // larger: the connection ends
        // The number of options is limited to options_max, and options_per_export more for each
        // export: a client that asks for every listed export does no harm.
        std::uint32_t options_max = 256;
        std::uint32_t options_per_export = 8;
        // step() stops taking input when this much waits to be sent.
        std::size_t reply_bytes_soft_max = 64u << 10;
    };
    enum class State : std::uint8_t {
        client_flags,
        option_header,
        option_data,
        skipping,
        transmission,
        aborted,
        failed,
    };

    // exports: outlives this.
    explicit Handshake(const ExportTable& exports) : Handshake(exports, Limits{}) {}
    Handshake(const ExportTable& exports, const Limits& limits)
        : exports_(exports), limits_(limits) {}

    // Appends the server's greeting to replies.
    static void greet(std::vector<std::byte>& replies);

    // Takes as much of the input as it can, and appends to replies. Returns the number of bytes
    // taken. They are fewer than given if a final state is reached (the rest belongs to
    // transmission), or if replies has grown over reply_bytes_soft_max (send them, then call again
    // with the rest).
    std::size_t step(Bytes input, std::vector<std::byte>& replies);

    State state() const noexcept { return state_; }
    bool finished() const noexcept { return state_ >= State::transmission; }
    // ASSUMES: state() is transmission.
    const Negotiated& negotiated() const noexcept { return negotiated_; }
    // One line for the log that says why the state is failed; empty in other states.
    std::string_view failure() const noexcept { return failure_; }

  private:
    std::size_t missing_bytes() const noexcept;
    void complete_unit(std::vector<std::byte>& replies);
    void take_client_flags();
    void take_option_header(std::vector<std::byte>& replies);
    void take_option(Bytes data, std::vector<std::byte>& replies);
    void export_name(Bytes data, std::vector<std::byte>& replies);
    void list(Bytes data, std::vector<std::byte>& replies);
    void info_or_go(Bytes data, std::vector<std::byte>& replies);
    void structured_reply(Bytes data, std::vector<std::byte>& replies);
    void meta_context(Bytes data, std::vector<std::byte>& replies);
    void choose(std::size_t index, const ExportDescription& description);
    std::uint16_t flags_of(const ExportDescription& description) const noexcept;
    void reply(std::vector<std::byte>& replies, OptionReply type, Bytes data = {}) const;
    void reply_error(std::vector<std::byte>& replies, OptionReply type,
                     std::string_view text) const;
    void fail(std::string_view why);

    const ExportTable& exports_;
    const Limits limits_;
    State state_ = State::client_flags;
    std::vector<std::byte> unit_;  // what has arrived of the current fixed part or option
    std::uint32_t option_ = 0;
    std::uint32_t option_bytes_ = 0;
    std::uint32_t skip_bytes_ = 0;
    std::uint32_t options_seen_ = 0;
    bool fixed_newstyle_ = false;
    bool no_zeroes_ = false;
    // The export whose base:allocation was selected; by name, since numbers change when an export
    // goes away.
    std::optional<std::string> context_export_{};
    Negotiated negotiated_{};
    std::string_view failure_{};
};

}  // namespace rnbd::nbd
