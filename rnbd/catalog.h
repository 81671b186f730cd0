// What a server tells about its exports: layout, parse, emit. Ours; carried by messages with tags
// (rtrs/messages.h). No I/O, no state. All integers little-endian, as RNBD's.
//
// Tags: bits 63..32 say what it is (CatalogTag), bits 31..0 are a number of the client's choice
// that an answer and its events repeat.
//
// CATALOG, client to server, 8 bytes                  tag: request
//    0  2  type 32      2  2  flags  1 follow: events too, from this picture on
//    4  4  reserved
// CATALOG_RSP, server to client, 24 bytes + entries   tag: picture
//    0  2  type 33      2  2  flags  1 draining     4  4  count
//    8  8  generation  16  8  reserved
// EVENT, server to client, 16 bytes + one entry       tag: event
//    0  2  type 34      2  2  kind (CatalogEventKind)     4  4  reserved
//    8  8  generation: one more than that of the picture or event before
// Entry, 24 bytes + the name, zero-padded to a multiple of 8
//    0  8  size        8  4  block size   12  4  in use by how many
//   16  1  modes, 1 read, 2 write         17  1  state, 0 ready, 1 waiting
//   18  2  length of the name             20  4  reserved
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include "rnbd/messages.h"
#include "rtrs/base/bytes.h"

namespace rnbd {

enum class CatalogTag : std::uint32_t { request = 1, picture = 2, event = 3 };
constexpr std::uint64_t catalog_tag(CatalogTag what, std::uint32_t number) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(what)} << 32 | number;
}
// Compares what it is, whatever the number.
inline constexpr std::uint64_t catalog_tag_mask = 0xffff'ffff'0000'0000;

struct CatalogEntry {
    std::string name;
    std::uint64_t size_bytes = 0;
    std::uint32_t block_bytes = 0;
    std::uint32_t in_use = 0;  // sessions that have it open
    bool writable = false;     // by the session that asks
    bool waiting = false;      // for its storage; size as far as known

    friend bool operator==(const CatalogEntry&, const CatalogEntry&) = default;
};

struct CatalogRequest {
    static constexpr std::size_t wire_bytes = 8;
    bool follow = false;

    // ERRORS: too_short, wrong_type.
    static std::expected<CatalogRequest, ParseError> parse(Bytes data) noexcept;
    void emit(MutableBytes to) const noexcept;
};

struct CatalogPicture {
    std::uint64_t generation = 0;
    bool draining = false;  // no session comes in, nothing is opened
    std::vector<CatalogEntry> entries;

    // ERRORS: too_short (also an entry that does not end inside), wrong_type, name_empty,
    // name_too_long, name_has_nul.
    static std::expected<CatalogPicture, ParseError> parse(Bytes data);
    std::size_t wire_bytes() const noexcept;
    // to: at least wire_bytes().
    void emit(MutableBytes to) const noexcept;
};

// What a server means to do with its sessions.
enum class ServerIntent : std::uint8_t {
    serve,
    drain,  // no session comes in, nothing is opened
    end,
};
const char* to_string(ServerIntent intent) noexcept;

enum class CatalogEventKind : std::uint16_t {
    added = 1,  // may be opened by this session from now on
    removed,    // not any more
    resized,
    access,   // became writable, or read-only
    waiting,  // its storage is gone
    ready,    // its storage is back
    // Of the server, without an entry:
    draining,   // no session comes in, nothing is opened
    accepting,  // not so any more
    ending,     // it is about to end
    // Of an export again:
    taken,  // what the session has open of it was closed by the server
};
const char* to_string(CatalogEventKind kind) noexcept;
// Tells of an export, which is in the event's entry.
constexpr bool has_entry(CatalogEventKind kind) noexcept {
    return kind < CatalogEventKind::draining || kind == CatalogEventKind::taken;
}

struct CatalogEvent {
    CatalogEventKind kind = CatalogEventKind::draining;
    std::uint64_t generation = 0;
    CatalogEntry entry;

    // ERRORS: as CatalogPicture's; unknown_type (kind).
    static std::expected<CatalogEvent, ParseError> parse(Bytes data);
    std::size_t wire_bytes() const noexcept;
    void emit(MutableBytes to) const noexcept;
};

}  // namespace rnbd
