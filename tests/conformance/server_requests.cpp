// A server under test: requests and answers, C26, C32, C34, C45..C57, C69..C84.

#include <algorithm>

#include "tests/conformance/server_task.h"

namespace conformance {
namespace {

using namespace std::chrono_literals;

bool zero(const Octets& octets, std::size_t from, std::size_t to) {
    return std::all_of(octets.begin() + static_cast<std::ptrdiff_t>(from),
                       octets.begin() + static_cast<std::ptrdiff_t>(to),
                       [](std::uint8_t octet) { return octet == 0; });
}

std::string shown(const Answer& answer) {
    return answer.came ? fmt::format("errno {}", answer.error) : "the path ended";
}

void expect_error(ServerTask& task, std::string_view id, const Answer& answer, int error,
                  std::string_view what) {
    task.report.check(id, answer.came && answer.error == error,
                      fmt::format("{}: {}", what, shown(answer)),
                      fmt::format("{}: errno {}", what, error));
    if (answer.error != 0 && error != 0) {
        task.report.check("C53", answer.error == error, shown(answer),
                          fmt::format("errno {} in bits 27..19", error));
    }
}

void control_messages(ServerTask& task) {
    auto path = task.path();
    // Without SESS_INFO first.
    const Answer opened = path->open(task.options.volume, 1);
    expect_error(task, "C71", opened, 0, "OPEN without SESS_INFO before");
    if (!opened.came || opened.error != 0) throw Stop{"the volume cannot be opened"};
    const VolumeWords volume = VolumeWords::of(opened.data);
    task.report.check("C72",
                      volume.type == 3 && volume.logical_block >= 512 && volume.sectors >= 2048 &&
                          (volume.sectors * 512) % volume.logical_block == 0,
                      fmt::format("type {}, block size {}, {} sectors", volume.type,
                                  volume.logical_block, volume.sectors),
                      "type 3, a block size, sectors of 512 bytes");
    task.report.check("C84",
                      zero(opened.data, 46, 56) && opened.data[44] == 0 && zero(opened.data, 2, 4),
                      "reserved bytes of OPEN_RSP are not zero", "zero");
    task.report.check("C69", opened.data.size() == 56, "", "");
    for (const unsigned version : {1u, 2u, 9u}) {
        const Answer info = path->session_info(version);
        expect_error(task, "C71", info, 0, fmt::format("SESS_INFO version {}", version));
        task.report.check("C71",
                          info.data.size() == 36 && take(info.data, 0, 2) == 1 &&
                              info.data[4] == std::min(version, 2u),
                          fmt::format("answer type {}, version {}", take(info.data, 0, 2),
                                      info.data.size() > 4 ? info.data[4] : 0),
                          fmt::format("type 1, version {}", std::min(version, 2u)));
        task.report.check("C84", info.data.size() == 36 && zero(info.data, 5, 36),
                          "reserved bytes of SESS_INFO_RSP are not zero", "zero");
    }
    // Padding is whatever was on the sender's stack.
    Octets dirty = open_volume(task.options.volume, 1);
    const std::size_t end = 6 + task.options.volume.size() + 1;
    for (std::size_t i = end; i < dirty.size(); ++i) dirty[i] = 0xaa;
    dirty[2] = dirty[3] = dirty[5] = 0xaa;
    const Answer again = path->ask({.user = dirty, .read = true, .data_bytes = 56});
    expect_error(task, "C69", again, 0, "OPEN with dirty padding");
    task.report.check("C74",
                      again.came && VolumeWords::of(again.data).device_id == volume.device_id,
                      "another id for a name that is open", "the same id");
    expect_error(task, "C83", path->close(0x7fffff01), 0, "CLOSE of an unknown id");
    expect_error(task, "C69", path->close(volume.device_id), 0, "CLOSE");
    expect_error(task, "C76", path->io(BlockOp::read, volume.device_id, 0, 512), 107,
                 "a read of a closed device");
}

void block_requests(ServerTask& task) {
    auto path = task.path(3);
    const VolumeWords volume = path->volume(task.options.volume, 1);
    const std::uint32_t id = volume.device_id;
    const std::uint32_t block = volume.logical_block;
    const Octets data = pattern(block, 1);
    expect_error(task, "C51", path->io(BlockOp::write, id, 16, block, 0, data), 0, "a write");
    Answer read = path->io(BlockOp::read, id, 16, block);
    task.report.check("C51", read.came && read.error == 0 && read.data == data,
                      "the data was not there with the answer", "what was written");
    // Less than the data: as much as was asked for.
    const Octets words = BlockWords{.device_id = id, .sector = 16, .bytes = block}.octets();
    Outgoing less{.cid = 1, .permit = 2, .user = words, .read = true, .data_bytes = block};
    less.destination_bytes = block / 2;
    read = path->ask(less);
    task.report.check("C51",
                      read.came && read.error == 0 &&
                          std::equal(read.data.begin(), read.data.end(), data.begin()),
                      "a descriptor of half the data was not filled", "half of it");
    // Every connection, one chunk after the other.
    for (std::uint16_t cid = 0; cid < 3; ++cid) {
        const Answer answer = path->io(BlockOp::read, id, 16, block, 0, {}, cid, 3);
        task.report.check("C49", answer.came && answer.error == 0 && answer.data == data,
                          fmt::format("on cid {}: {}", cid, shown(answer)),
                          "the chunk's key is good on every connection");
    }
    task.report.check("C34", true, "", "");
    // Flush.
    const auto flush = [&](std::uint32_t flags, bool as_read) {
        return path->ask(
            {.cid = 1,
             .permit = 4,
             .user = BlockWords{.device_id = id, .sector = ~0ull, .rw = 2 | flags}.octets(),
             .read = as_read});
    };
    expect_error(task, "C52", flush(flag_sync | flag_fua, true), 0, "flush as a read");
    expect_error(task, "C52", flush(flag_sync | flag_fua, false), 0, "flush as a write");
    for (const std::uint32_t flags :
         {0u, flag_fua, flag_sync, flag_preflush, flag_sync | flag_fua | flag_preflush}) {
        expect_error(task, "C79", flush(flags, true), 0, fmt::format("flush with {:#x}", flags));
    }
    task.report.ok("C77", "flush with a sector of all ones");
    expect_error(task, "C78", path->io(BlockOp::write, id, 16, block, 0x80004000, data), 0,
                 "unknown flags");
    task.report.not_applicable(
        "C80", "what a medium keeps is not seen on the wire (tests/contract/storage)");

    // Sizes that do not agree.
    const auto sized = [&](std::uint32_t rw, std::uint32_t bytes, std::uint32_t data_bytes) {
        return path->ask(
            {.cid = 1,
             .permit = 5,
             .user = BlockWords{.device_id = id, .sector = 16, .rw = rw, .bytes = bytes}.octets(),
             .data_bytes = data_bytes,
             .data = pattern(data_bytes, 1)});
    };
    expect_error(task, "C77", sized(1, block, 2 * block), 22, "a write of less than its data");
    if (!task.options.gentle) {
        expect_error(task, "C77", sized(1, 2 * block, block), 22, "a write of more than its data");
    }
    if (volume.discard_sectors > 0) {
        expect_error(task, "C77", sized(3, block, 0), 0, "a discard without data");
        if (!task.options.gentle) {
            expect_error(task, "C77", sized(3, block, block), 22, "a discard with data");
        }
    }
    if (volume.write_zeroes_sectors > 0) {
        expect_error(task, "C84", sized(5, block, 0), 0, "WRITE_ZEROES, which was offered");
        const Answer zeroes = path->io(BlockOp::read, id, 16, block);
        task.report.check("C84", zeroes.came && zeroes.error == 0 && zero(zeroes.data, 0, block),
                          "data after WRITE_ZEROES", "zeroes");
    }
    expect_error(task, "C76", path->io(BlockOp::read, 0x7fffff01, 0, block), 107,
                 "an unknown device");
    // As a read with data: that is what a kernel server makes of it, and without data it crashes.
    expect_error(task, "C76",
                 path->ask({.cid = 1,
                            .permit = 1,
                            .user = BlockWords{.device_id = id, .rw = 17, .bytes = block}.octets(),
                            .read = true,
                            .data_bytes = block}),
                 95, "an unknown operation");
    if (!task.options.gentle) {
        expect_error(task, "C76", path->io(static_cast<BlockOp>(17), id, 0, block), 95,
                     "an unknown operation without data");
    }
    Octets strange(32, 0);
    strange[0] = 77;
    expect_error(task, "C76", path->ask({.cid = 1, .permit = 1, .user = strange}), 22,
                 "an unknown message type");
    // rnbd's own: which parts of a range are allocated. Nobody announced here that they speak it.
    Octets extents(32, 0);
    extents[0] = 16;
    put(extents, 4, id, 4);
    put(extents, 16, block, 8);
    expect_error(
        task, "C76",
        path->ask({.cid = 1, .permit = 1, .user = extents, .read = true, .data_bytes = 512}), 22,
        "a message of an extension that was not agreed on");
}

void access_modes(ServerTask& task) {
    auto one = task.path();
    auto two = task.unconnected();
    two->open_path(task.options.other_session);
    const std::string& name = task.options.volume;
    const auto both = [&](unsigned first, unsigned second, int error, std::string_view what) {
        const Answer mine = one->open(name, first);
        expect_error(task, "C75", mine, 0, fmt::format("{}: the first", what));
        const Answer other = two->open(name, second);
        expect_error(task, "C75", other, error, fmt::format("{}: the second", what));
        if (mine.error == 0) one->close(VolumeWords::of(mine.data).device_id);
        if (other.error == 0) two->close(VolumeWords::of(other.data).device_id);
    };
    both(1, 1, 1, "rw beside rw");
    both(1, 0, 0, "ro beside rw");
    both(0, 0, 0, "ro beside ro");
    both(1, 2, 0, "migration beside rw");
    expect_error(task, "C75", one->open("no-such-volume", 1), 2, "a missing volume");
    expect_error(task, "C75", one->open("a/../b", 1), 22, "a name with ..");
    expect_error(task, "C75", one->open(name, 3), 22, "access mode 3");
}

void invalidation(ServerTask& task) {
    if (!task.lab.tcp()) {
        task.report.not_applicable(
            "C46", "this tool's windows on verbs are of type 1, which a peer cannot invalidate");
        return;
    }
    auto path = task.path();
    const VolumeWords volume = path->volume(task.options.volume, 1);
    const auto ask = [&](std::uint32_t device, int error) {
        const Answer answer =
            path->ask({.cid = 1,
                       .permit = 1,
                       .user = BlockWords{.device_id = device, .bytes = 4096}.octets(),
                       .read = true,
                       .data_bytes = 4096,
                       .invalidate = true});
        expect_error(task, "C46", answer, error, "a read with NEED_INVAL");
        task.report.check("C46", answer.invalidations == 1 && answer.type == 2,
                          fmt::format("{} invalidations before the answer, type {}",
                                      answer.invalidations, answer.type),
                          "one, before the answer, type 2");
    };
    ask(volume.device_id, 0);
    ask(0x7fffff01, 107);
}

// The key that a chunk had before its request is dead, while the request runs and afterwards.
void revoked_keys(ServerTask& task) {
    auto path = task.path();
    if ((path->welcome.flags & Welcome::new_rkey) == 0) {
        task.report.not_applicable("C50", "the server does not announce NEW_RKEY");
        return;
    }
    const bool slow = !task.options.slow_volume.empty();
    const VolumeWords volume =
        path->volume(slow ? task.options.slow_volume : task.options.volume, 1);
    const ClientPath::Chunk before = path->chunks[1 % path->depth];
    const Octets data = pattern(4096, 3);
    const Outgoing write{
        .cid = 1,
        .permit = 1,
        .user = BlockWords{.device_id = volume.device_id, .rw = 1, .bytes = 4096}.octets(),
        .data_bytes = 4096,
        .data = data};
    const auto old_key_ends_the_path = [&](std::string_view when) {
        const Octets garbage(4096, 0x55);
        path->links[0]->write({path->stage(garbage)}, {before.address, before.key, 4096});
        task.report.check("C50", task.lab.wait([&] { return path->ended(); }),
                          fmt::format("{}: a write with the old key was taken", when),
                          "remote access refused");
    };
    if (slow) {
        path->submit(write);
        // Behind it on the same connection: the request has arrived when this was answered.
        const unsigned known = path->heartbeat_answers;
        path->links[0]->write_immediate({}, {}, heartbeat);
        task.lab.wait([&] { return path->heartbeat_answers > known; });
        task.lab.pause(task.lab.options.lookout);
        old_key_ends_the_path("while the request runs");
        path.reset();
        path = task.path();
        return;
    }
    const Answer answer = path->ask(write);
    if (!answer.came || answer.error != 0) throw Stop{"a write failed"};
    if (path->chunks[1 % path->depth].key == before.key) {
        task.report.not_applicable("C50", "the answer brought the key that was there before");
        return;
    }
    old_key_ends_the_path("after the answer");
    task.report.not_applicable("C50", "while the request runs: no slow volume was given");
}

// --- Requests that are not in order.

struct Fault {
    std::string_view what;
    std::string_view id;
    bool well_addressed;  // an answer or the path's end; else the path's end
    bool hurts_kernels;
    std::function<Outgoing(ClientPath&, std::uint32_t device)> make;
};

Outgoing io_request(std::uint32_t device) {
    return {.cid = 1,
            .permit = 1,
            .user = BlockWords{.device_id = device, .bytes = 4096}.octets(),
            .read = true,
            .data_bytes = 4096};
}

std::vector<Fault> faults() {
    return {
        {"an offset at the chunk's end", "C54", false, false,
         [](ClientPath& path, std::uint32_t device) {
             Outgoing out = io_request(device);
             out.immediate = request_immediate(path.depth, 1 % path.depth, path.chunk_bytes);
             return out;
         }},
        {"a permit beyond the depth", "C54", false, false,
         [](ClientPath& path, std::uint32_t device) {
             Outgoing out = io_request(device);
             out.immediate = request_immediate(path.depth, path.depth, 4096 + 32);
             return out;
         }},
        {"a message across the chunk's end", "C54", true, true,
         [](ClientPath& path, std::uint32_t device) {
             Outgoing out = io_request(device);
             out.message = Octets{3, 0};
             out.write_at = path.chunk_bytes - 2 - out.user.size();
             out.immediate = request_immediate(path.depth, 1 % path.depth, path.chunk_bytes - 2);
             return out;
         }},
        {"usr_len beyond the offset", "C54", true, false,
         [](ClientPath&, std::uint32_t device) {
             Outgoing out = io_request(device);
             out.message = ReadWords{.user_bytes = 5000}.octets();
             return out;
         }},
        {"message type 9", "C55", true, false,
         [](ClientPath&, std::uint32_t device) {
             Outgoing out = io_request(device);
             out.message = ReadWords{.user_bytes = 32, .type = 9}.octets();
             return out;
         }},
        {"two descriptors", "C55", true, false,
         [](ClientPath&, std::uint32_t device) {
             Outgoing out = io_request(device);
             ReadWords words{.user_bytes = 32};
             words.destinations = {{0x1000, 1, 2048}, {0x2000, 1, 2048}};
             out.message = words.octets();
             return out;
         }},
        {"a descriptor of no bytes", "C55", true, false,
         [](ClientPath&, std::uint32_t device) {
             Outgoing out = io_request(device);
             ReadWords words{.user_bytes = 32};
             words.destinations = {{0x1000, 1, 0}};
             out.message = words.octets();
             return out;
         }},
        {"an empty user message", "C55", true, true,
         [](ClientPath&, std::uint32_t) { return Outgoing{.cid = 1, .permit = 1, .user = {}}; }},
        {"a user message of 1 byte", "C54", true, true,
         [](ClientPath&, std::uint32_t) {
             return Outgoing{.cid = 1, .permit = 1, .user = Octets(1, 4)};
         }},
        {"an IO message of 23 bytes", "C54", true, true,
         [](ClientPath&, std::uint32_t device) {
             Outgoing out = io_request(device);
             out.user.resize(23);
             return out;
         }},
        {"OPEN of 100 bytes", "C54", true, true,
         [](ClientPath&, std::uint32_t) {
             Octets user = open_volume("x", 1);
             user.resize(100);
             return Outgoing{.permit = 1, .user = user, .read = true, .data_bytes = 56};
         }},
        {"OPEN with a name without end", "C54", true, true,
         [](ClientPath&, std::uint32_t) {
             return Outgoing{.permit = 1,
                             .user = open_volume(std::string(255, 'a'), 1),
                             .read = true,
                             .data_bytes = 56};
         }},
        {"CLOSE of 4 bytes", "C54", true, false,
         [](ClientPath&, std::uint32_t) {
             Octets user = close_volume(0x7fffff01);
             user.resize(4);
             return Outgoing{.permit = 1, .user = user};
         }},
        {"a user message of 3000 bytes", "C55", true, false,
         [](ClientPath&, std::uint32_t device) {
             Outgoing out = io_request(device);
             out.user.resize(3000);
             return out;
         }},
    };
}

void try_fault(ServerTask& task, const Fault& fault) {
    auto path = task.path();
    const VolumeWords volume = path->volume(task.options.volume, 1);
    const Outgoing out = fault.make(*path, volume.device_id);
    if (out.immediate && permit_of(path->depth, *out.immediate) < path->depth &&
        offset_of(path->depth, *out.immediate) < path->chunk_bytes && !fault.well_addressed) {
        return;  // this depth or chunk size leaves no room for such an immediate
    }
    path->submit(out);
    // Long enough for a server that answers, short of a heartbeat's death.
    const Duration patience = 3s;
    const bool settled = path->ends_or_answers(out.permit, patience);
    const bool ended = path->ended();
    if (!fault.well_addressed) {
        task.report.check(fault.id, settled && ended,
                          fmt::format("{}: {}", fault.what, settled ? "answered" : "nothing"),
                          "the path ends");
        return;
    }
    task.report.check("C55", settled, fmt::format("{}: neither answer nor end", fault.what),
                      "an error answer, or the path ends");
    if (ended) task.report.ok(fault.id);
    if (!settled || ended || fault.id == "C55") return;
    const Answer answer = path->answered(out.permit, out.cid);
    task.report.check(fault.id, answer.error != 0, fmt::format("{}: success", fault.what),
                      "an error, or the path ends");
}

void bad_requests(ServerTask& task) {
    for (const Fault& fault : faults()) {
        if (fault.hurts_kernels && task.options.gentle) {
            task.report.not_applicable(fault.id, fmt::format("{}: left out", fault.what));
            continue;
        }
        try_fault(task, fault);
    }
    // An over-long descriptor.
    auto path = task.path();
    const VolumeWords volume = path->volume(task.options.volume, 1);
    Outgoing out = io_request(volume.device_id);
    out.destination_bytes = 65536;
    const Answer answer = path->ask(out);
    const auto foreign = [](const Octets& data, std::size_t from) {
        return data.size() > from &&
               std::any_of(data.begin() + static_cast<std::ptrdiff_t>(from), data.end(),
                           [](std::uint8_t octet) { return octet != 0xd7; });
    };
    task.report.check("C56", !foreign(answer.data, 4096),
                      "more bytes than the read produced were written to the client",
                      "an error, or no more than the data");
    path.reset();  // its name is taken until then
    path = task.path();
    out = {.user = session_info(2), .read = true, .data_bytes = 36};
    out.destination_bytes = 4096;
    task.report.check("C56", !foreign(path->ask(out).data, 36),
                      "more bytes than SESS_INFO_RSP were written to the client",
                      "an error, or no more than the answer");
    task.report.not_applicable("C54",
                               "whether it looks at a private copy is not seen from outside");
}

// --- Load and unknown immediates.

void full_load(ServerTask& task) {
    const std::uint64_t not_ready = Lab::receiver_not_ready();
    auto path = task.path();
    const VolumeWords volume = path->volume(task.options.volume, 1);
    const std::uint32_t block = volume.logical_block;
    for (const std::uint16_t cid : {std::uint16_t{1}, std::uint16_t{0}}) {
        const std::uint32_t count = cid == 0 ? std::min(path->depth, 500u) : path->depth;
        for (unsigned round = 0; round < 3; ++round) {
            const unsigned known = path->heartbeat_answers;
            for (std::uint32_t permit = 0; permit < count; ++permit) {
                path->submit(
                    {.cid = cid,
                     .permit = permit,
                     .user = BlockWords{.device_id = volume.device_id, .bytes = block}.octets(),
                     .read = true,
                     .data_bytes = block,
                     .destination_at = std::size_t{permit % 1024} * block});
            }
            path->links[0]->write_immediate({}, {}, heartbeat);
            bool good = true;
            for (std::uint32_t permit = 0; permit < count; ++permit) {
                const Answer answer = path->answered(permit, cid);
                good = good && answer.came && answer.error == 0;
            }
            task.report.check(
                "C26", good,
                fmt::format("{} requests at once on cid {} were not all answered", count, cid),
                "a receive for each");
            if (!good) return;
            const bool beat =
                task.lab.wait([&] { return path->heartbeat_answers > known || path->ended(); });
            task.report.check("C59", beat && !path->ended(), "no answer under load", "one");
            task.report.check("C61", beat && !path->ended(),
                              "no heartbeat's answer while every permit was in use", "one");
        }
    }
    task.lab.pause(task.lab.options.lookout);  // for answers that come twice
    task.report.ok("C92", fmt::format("depth {}, chunks of {}: this server's configuration",
                                      path->depth, path->chunk_bytes));
    if (path->welcome.max_header_bytes == 65536) {
        task.report.ok("C93");
    } else {
        task.report.not_applicable("C93", "this server's headers have another size");
    }
    const std::uint64_t more = Lab::receiver_not_ready() - not_ready;
    if (task.lab.tcp()) {
        task.report.ok("C32", "TCP: a message without a receive ends the connection, none did");
    } else {
        task.report.check("C32", more == 0, fmt::format("{} RNR NAKs", more), "none");
    }
}

void unknown_immediates(ServerTask& task) {
    auto path = task.path();
    for (const std::uint16_t cid : {std::uint16_t{0}, std::uint16_t{1}}) {
        // More than there are receives, in portions.
        for (std::uint32_t i = 0; i < std::max(path->depth, 512u) + 64; ++i) {
            path->links[cid]->write_immediate({}, {}, unknown_immediate + (i % 2 << 29));
            if (i % 64 == 0) task.lab.pause(5ms);
        }
        const Answer answer = path->session_info(2);
        task.report.check("C57", answer.came && answer.error == 0,
                          fmt::format("after unknown immediates on cid {}: {}", cid, shown(answer)),
                          "they are ignored");
        if (!answer.came) return;
    }
    const VolumeWords volume = path->volume(task.options.volume, 1);
    const Answer answer = path->io(BlockOp::read, volume.device_id, 0, 4096);
    task.report.check("C57", answer.came && answer.error == 0, shown(answer), "they are ignored");
}

}  // namespace

std::vector<Scenario<ServerTask>> server_request_scenarios() {
    return {{"control-messages",
             {"C45", "C47", "C48", "C53", "C69", "C71", "C72", "C74", "C83", "C84"},
             control_messages},
            {"block-requests",
             {"C34", "C49", "C51", "C52", "C76", "C77", "C78", "C79", "C80"},
             block_requests},
            {"access-modes", {"C75"}, access_modes},
            {"invalidation", {"C46"}, invalidation},
            {"revoked-keys", {"C50"}, revoked_keys},
            {"bad-requests", {"C54", "C55", "C56"}, bad_requests},
            {"full-load", {"C26", "C32", "C59", "C61", "C92", "C93"}, full_load},
            {"unknown-immediates", {"C57"}, unknown_immediates}};
}

}  // namespace conformance
