// The catalog: what a server says about its exports. Layout, parse, emit. The catalog is our
// extension of RNBD; messages with tags carry it (rtrs/messages.h). No I/O, no state. All integers
// are little-endian, as in RNBD.
//
// Tags: bits 63..32 say what the message is (CatalogTag). Bits 31..0 are a number that the client
// chooses; the answer to its request, and the events that follow it, repeat the number.
//
// CATALOG, client to server, 8 bytes                  tag: request
//    0  2  type 32      2  2  flags  1 follow: send events too, from this picture on
//    4  4  reserved
// CATALOG_RSP, server to client, 24 bytes + entries   tag: picture
//    0  2  type 33      2  2  flags  1 draining     4  4  count
//    8  8  generation  16  8  reserved
// EVENT, server to client, 16 bytes + one entry       tag: event
//    0  2  type 34      2  2  kind (CatalogEventKind)     4  4  reserved
//    8  8  generation: one more than that of the picture or event before it
// Entry, 24 bytes + the name, zero-padded to a multiple of 8
//    0  8  size        8  4  block size   12  4  sessions that have it open
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
// The mask that compares what the message is, whatever its number.
inline constexpr std::uint64_t catalog_tag_mask = 0xffff'ffff'0000'0000;

// The most exports that a server tells a session of, and that a client takes in: what it costs to
// read and show them is time in which a daemon does nothing else, and what it keeps of them is
// memory that any server can ask for. 16 MiB, the longest message, would be half a million.
inline constexpr std::uint32_t catalog_entries_max = 1u << 16;

struct CatalogEntry {
    std::string name;
    std::uint64_t size_bytes = 0;
    std::uint32_t block_bytes = 0;
    std::uint32_t in_use = 0;  // sessions that have it open
    bool writable = false;     // by the session that asks
    bool waiting = false;      // the export waits for its storage; the size is the last known one

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
    bool draining = false;  // the server accepts no new session and opens no export
    std::vector<CatalogEntry> entries;

    // ERRORS: too_short (also if an entry extends beyond the end of data), wrong_type, name_empty,
    // name_too_long, name_has_nul, too_many_exports (more than catalog_entries_max).
    static std::expected<CatalogPicture, ParseError> parse(Bytes data);
    // What is wrong with data, which parse() refused with that error.
    static std::string complaint(Bytes data, ParseError error);
    std::size_t wire_bytes() const noexcept;
    // to: at least wire_bytes().
    void emit(MutableBytes to) const noexcept;
};

// What a server intends to do with its sessions.
enum class ServerIntent : std::uint8_t {
    serve,
    drain,  // accept no new session, open no export
    end,
};
const char* to_string(ServerIntent intent) noexcept;

enum class CatalogEventKind : std::uint16_t {
    added = 1,  // this session may open the export from now on
    removed,    // this session may not open the export any more
    resized,    // its size is another one, or its block size
    access,     // the export became writable, or read-only
    waiting,    // the storage of the export is gone
    ready,      // the storage of the export is back
    // These are about the server, and have no entry:
    draining,   // the server accepts no new session and opens no export
    accepting,  // the server is no longer draining
    ending,     // the server is about to end
    // This one is about an export again:
    taken,  // the server closed what this session had open of the export
};
const char* to_string(CatalogEventKind kind) noexcept;
// True if events of this kind are about an export, which the entry of the event describes.
constexpr bool has_entry(CatalogEventKind kind) noexcept {
    return kind < CatalogEventKind::draining || kind == CatalogEventKind::taken;
}

struct CatalogEvent {
    CatalogEventKind kind = CatalogEventKind::draining;
    std::uint64_t generation = 0;
    CatalogEntry entry;

    // ERRORS: as CatalogPicture::parse(), and unknown_type (kind).
    static std::expected<CatalogEvent, ParseError> parse(Bytes data);
    std::size_t wire_bytes() const noexcept;
    void emit(MutableBytes to) const noexcept;
};

}  // namespace rnbd
