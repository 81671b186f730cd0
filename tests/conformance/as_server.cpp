#include "tests/conformance/as_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace conformance {
namespace {

constexpr std::size_t disk_bytes = 16u << 20;
constexpr std::uint8_t poison = 0xa5;
constexpr std::uint32_t service_receives = 512;

}  // namespace

// --- Host

Host::Host(Lab& its_lab, Report& its_report, const std::vector<std::string>& at,
           const HostOptions& its_options)
    : lab(its_lab), report(its_report), options(its_options), disk(disk_bytes, 0) {
    if (options.volume.sectors == 0) options.volume.sectors = disk_bytes / 512;
    for (const std::string& address : at) {
        auto portal = std::make_unique<Portal>(*this, portals_.size());
        auto listener = lab.fabric->listen(address, *portal);
        if (!listener) {
            throw Stop{fmt::format("cannot listen at {}: {}", address, listener.error().message())};
        }
        portal->listener = std::move(*listener);
        addresses.push_back(portal->listener->address());
        portals_.push_back(std::move(portal));
    }
}

Host::~Host() {
    refuse = nullptr;
    welcome = nullptr;
    info = nullptr;
    hold = nullptr;
    bend = nullptr;
    for (const auto& portal : portals_) portal->listener.reset();
    for (const auto& path : paths) path->disconnect();
    paths.clear();
}

Welcome Host::words() const {
    return {.queue_depth = static_cast<std::uint16_t>(options.depth),
            .max_io_bytes = options.max_io_bytes,
            .max_header_bytes = options.max_header_bytes,
            .flags = options.new_rkey ? Welcome::new_rkey : 0};
}

Octets Host::reject(int error, std::size_t bytes) const {
    Octets octets = Welcome{.error = error}.octets();
    octets.resize(bytes, 0);
    return octets;
}

HostPath* Host::path(std::size_t address) const {
    for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
        if ((*path)->address == address && (*path)->up()) return path->get();
    }
    return nullptr;
}

void Host::admit(std::unique_ptr<rtrs::ConnectRequest> request, std::size_t address) {
    const rtrs::Bytes data = request->private_data();
    Dial dial{.octets = Octets(data.size()), .greeting = {}, .address = address, .when = lab.now()};
    std::memcpy(dial.octets.data(), data.data(), data.size());
    if (!report.check("C1", data.size() == 56, fmt::format("{} bytes", data.size()), "56 bytes")) {
        return;  // unanswered is rejected
    }
    dial.greeting = Greeting::of(dial.octets);
    judge_greeting(dial);
    const auto turn_away = [&](const Octets& why) {
        dials.push_back(dial);
        const std::span<const std::uint8_t> view(why);
        request->reject(std::as_bytes(view));
    };
    if (refuse) {
        if (const auto why = refuse(dial)) return turn_away(*why);
    }
    HostPath* path = nullptr;
    bool has_gone = false;  // since its cid 0: this one was on its way already
    for (const auto& known : paths) {
        if (known->greeting.sess_uuid != dial.greeting.sess_uuid) continue;
        if (known->gone()) {
            has_gone = has_gone || known->greeting.recon_cnt == dial.greeting.recon_cnt;
            continue;
        }
        path = known.get();
        if (dial.greeting.cid == 0 || path->links.contains(dial.greeting.cid) || path->down()) {
            ++refusals;
            return turn_away(reject(-ECONNRESET));
        }
    }
    if (dial.greeting.cid != 0 && path == nullptr) {
        if (!has_gone) {
            report.not_ok("C3", fmt::format("cid {} before cid 0", dial.greeting.cid),
                          "cid 0 first");
        }
        return turn_away(reject(-ECONNRESET));
    }
    if (path == nullptr) {
        try {
            auto made = std::make_unique<HostPath>(*this, dial.greeting, address);
            path = paths.emplace_back(std::move(made)).get();
        } catch (const Stop& stop) {
            report.not_ok("C92", stop.why, "memory for the chunks");
            return turn_away(reject(-ENOMEM));
        }
    } else {
        const std::size_t next = path->links.size();
        report.check(
            "C3",
            dial.greeting.cid == next && path->links.rbegin()->second->up() &&
                dial.greeting.cid_num == path->greeting.cid_num,
            fmt::format("cid {} of {} after {} of {} connections were there", dial.greeting.cid,
                        dial.greeting.cid_num, next, path->greeting.cid_num),
            "one after another, the same cid_num");
        report.check("C6", dial.greeting.recon_cnt == path->greeting.recon_cnt,
                     "another recon_cnt within one attempt", "the same");
        report.check("C4", dial.greeting.paths_uuid == path->greeting.paths_uuid,
                     "another paths_uuid within one path", "the session's");
    }
    dial.path = path;
    dials.push_back(dial);
    path->accept(std::move(request), dial.greeting.cid);
}

void Host::judge_greeting(const Dial& dial) {
    const Octets& octets = dial.octets;
    const auto zero = [&](std::size_t from, std::size_t to) {
        return std::all_of(octets.begin() + static_cast<std::ptrdiff_t>(from),
                           octets.begin() + static_cast<std::ptrdiff_t>(to),
                           [](std::uint8_t octet) { return octet == 0; });
    };
    report.check("C1", octets[0] == 0 && octets[1] == 0 && (octets[44] & 0xfe) == 0,
                 "bytes 0, 1 or the flags' upper bits are not zero", "zero");
    if (extensions && !zero(48, 52) && zero(45, 48) && zero(52, 56)) {
        report.extension("C1", fmt::format("bytes 48..51 offer features {:#x} (wire-rtrs.md)",
                                           take(octets, 48, 4)));
    } else {
        report.check("C1", zero(45, 56), "bytes 45..55 are not zero", "zero");
    }
    const Greeting& words = dial.greeting;
    report.check("C2", words.magic == 0x1bbd && words.version == 0x0200,
                 fmt::format("magic {:#06x}, version {:#06x}", words.magic, words.version),
                 "0x1bbd, 0x0200");
    report.check("C3", words.cid < words.cid_num && words.cid_num <= 4096,
                 fmt::format("cid {} of {}", words.cid, words.cid_num), "below cid_num, <= 4096");
    report.check("C4",
                 words.sess_uuid != words.paths_uuid && words.sess_uuid != Octets(16, 0) &&
                     words.paths_uuid != Octets(16, 0),
                 "uuids that are equal or zero", "random");
}

void Host::release() {
    std::vector<Incoming> all;
    all.swap(held);
    for (const Incoming& each : all) serve(each);
}

void Host::padding(const Octets& user, std::size_t from, std::size_t to, std::string_view what) {
    bool clean = true;
    for (std::size_t i = from; i < to && i < user.size(); ++i) clean = clean && user[i] == 0;
    report.check("C69", clean, fmt::format("padding of {} is not zero", what), "zero");
}

void Host::judge(const Incoming& request) {
    const Octets& user = request.user;
    const auto control = [&](std::string_view what, std::size_t bytes, bool read,
                             std::uint32_t data) {
        report.check("C69", user.size() == bytes, fmt::format("{} of {} bytes", what, user.size()),
                     fmt::format("{} bytes", bytes));
        report.check("C70", request.cid == 0 && request.read == read && request.data_bytes == data,
                     fmt::format("{} on cid {}, {}, data of {} bytes", what, request.cid,
                                 request.read ? "a read" : "a write", request.data_bytes),
                     fmt::format("on cid 0, {}, {} bytes", read ? "a read" : "a write", data));
        padding(user, 2, 4, what);
    };
    switch (request.type()) {
        case BlockType::session_info: {
            control("SESS_INFO", session_info_bytes, true, session_info_bytes);
            report.check("C71", user.size() > 4 && user[4] == 2, "another version", "2");
            const bool marked = extensions && take(user, 8, 4) != 0 && take(user, 12, 8) != 0;
            padding(user, 5, marked ? 8 : 36, "SESS_INFO");
            padding(user, 20, 36, "SESS_INFO");
            if (marked) report.extension("C69", "SESS_INFO offers features (wire-rnbd.md)");
            return;
        }
        case BlockType::open: {
            control("OPEN", open_bytes, true, open_answer_bytes);
            const auto begin = user.begin() + 6;
            const auto end = std::find(begin, begin + 255, 0);
            report.check("C69", user[4] <= 2 && end != begin && end != begin + 255,
                         "access mode or name is out of range", "0..2; a name with a NUL");
            padding(user, 5, 6, "OPEN");
            padding(user, static_cast<std::size_t>(end - user.begin()), open_bytes, "OPEN");
            return;
        }
        case BlockType::close:
            return control("CLOSE", close_bytes, false, 0);
        case BlockType::io:
            return judge_io(request);
        case BlockType::session_info_answer:
        case BlockType::open_answer:
            break;
    }
    report.not_ok("C69", fmt::format("message type {}", take(user, 0, 2)),
                  "SESS_INFO, OPEN, IO, CLOSE");
}

void Host::judge_io(const Incoming& request) {
    const BlockWords words = BlockWords::of(request.user);
    report.check("C69", request.user.size() == io_bytes,
                 fmt::format("IO of {} bytes", request.user.size()), "32 bytes");
    padding(request.user, 2, 4, "IO");
    padding(request.user, 26, 32, "IO");
    const BlockOp op = request.op();
    const bool carries = op == BlockOp::read || op == BlockOp::write;
    report.check(
        "C82",
        request.data_bytes <= options.max_io_bytes && request.destinations.size() <= 1 &&
            (carries ? request.data_bytes == words.bytes : request.data_bytes == 0),
        fmt::format("operation {} with {} bytes of data, bi_size {}, {} descriptors",
                    words.rw & 0xff, request.data_bytes, words.bytes, request.destinations.size()),
        "data of bi_size for reads and writes, at most max_io_size; else none");
    const VolumeWords& volume = options.volume;
    const bool offered = op == BlockOp::discard        ? volume.discard_sectors > 0
                         : op == BlockOp::write_zeroes ? volume.write_zeroes_sectors > 0
                         : op == BlockOp::secure_erase ? volume.secure_discard > 0
                                                       : op <= BlockOp::write_zeroes;
    report.check("C81", offered, fmt::format("operation {}, not offered", words.rw & 0xff),
                 "what the open answer offers");
    report.check("C66", open_devices.contains(words.device_id),
                 fmt::format("I/O to device id {}, which is not open", words.device_id),
                 "the id of the newest open answer");
}

void Host::serve(const Incoming& request) {
    HostPath& path = *request.path;
    if (path.down()) return;
    if (request.type() == BlockType::io) return serve_io(request);
    const Bend how = bend ? bend(request) : Bend{};
    switch (request.type()) {
        case BlockType::session_info: {
            Octets answer = session_info(2);
            put(answer, 0, options.answer_type.value_or(1), 2);
            return path.respond(request, 0, answer, how);
        }
        case BlockType::open: {
            VolumeWords words = options.volume;
            words.type = options.answer_type.value_or(3);
            open_devices = {words.device_id};
            return path.respond(request, 0, words.octets(), how);
        }
        case BlockType::close:
            return path.respond(request, 0, {}, how);
        case BlockType::io:
        case BlockType::session_info_answer:
        case BlockType::open_answer:
            break;
    }
    path.respond(request, EINVAL, {}, how);
}

void Host::serve_io(const Incoming& request) {
    const BlockWords words = BlockWords::of(request.user);
    const Bend how = bend ? bend(request) : Bend{};
    const std::uint64_t at = words.sector * 512;
    if (request.op() == BlockOp::flush) return request.path->respond(request, 0, {}, how);
    if (words.sector > disk.size() / 512 || words.bytes > disk.size() - at) {
        return request.path->respond(request, EINVAL, {}, how);
    }
    const auto begin = disk.begin() + static_cast<std::ptrdiff_t>(at);
    switch (request.op()) {
        case BlockOp::read:
            return request.path->respond(request, 0, Octets(begin, begin + words.bytes), how);
        case BlockOp::write:
            std::copy(request.data.begin(), request.data.end(), begin);
            break;
        case BlockOp::flush:
            break;
        case BlockOp::discard:
        case BlockOp::secure_erase:
        case BlockOp::write_zeroes:
            std::fill_n(begin, words.bytes, 0);
            break;
    }
    request.path->respond(request, 0, {}, how);
}

// --- HostPath

HostPath::HostPath(Host& its_host, const Greeting& its_greeting, std::size_t its_address)
    : host(its_host),
      greeting(its_greeting),
      address(its_address),
      room_(host.lab),
      chunks_(std::size_t{host.options.depth} * host.chunk_bytes()),
      poison_(host.options.depth, 0) {
    const std::uint32_t count = host.options.new_rkey ? 1 : host.options.regions;
    const std::size_t bytes = std::size_t{host.options.depth} * host.chunk_bytes() / count;
    for (std::uint32_t i = 0; i < count; ++i) {
        auto region = room_.domain().register_memory(
            rtrs::MutableBytes{chunks_.data() + (count - 1 - i) * bytes, bytes},
            host.options.new_rkey ? rtrs::Access::local : rtrs::Access::remote_write);
        if (!region) throw Stop{"cannot register chunks: " + region.error().message()};
        regions_.push_back(std::move(*region));
    }
}

HostPath::~HostPath() { links.clear(); }

bool HostPath::down() const {
    return std::ranges::any_of(links, [](const auto& each) { return each.second->disconnected; });
}
bool HostPath::gone() const {
    return !links.empty() && std::ranges::all_of(links, [](const auto& each) {
        return each.second->drained || !each.second->endpoint;
    });
}
void HostPath::disconnect() {
    for (const auto& [cid, link] : links) link->disconnect();
}

// Where a permit's chunk is in our memory: the regions lie there backwards.
std::size_t HostPath::at(std::uint32_t permit) const {
    const std::uint32_t count = static_cast<std::uint32_t>(regions_.size());
    const std::uint32_t each = host.options.depth / count;
    const std::uint32_t place = (count - 1 - permit / each) * each + permit % each;
    return std::size_t{place} * host.chunk_bytes();
}

void HostPath::accept(std::unique_ptr<rtrs::ConnectRequest> request, std::uint16_t cid) {
    const std::uint32_t receives = cid == 0 ? service_receives : host.options.depth;
    auto& link = *(links[cid] = std::make_unique<Link>(
                       host.lab, room_, cid, Link::Receives{.count = receives, .bytes = 0}));
    link.taken = [this, &link](const Arrival& arrival) {
        arrived(link, arrival);
        return true;
    };
    link.revoked = [this](std::uint64_t permit) { process(static_cast<std::uint32_t>(permit)); };
    Octets answer = host.words().octets();
    answer.resize(host.options.accept_bytes, 0);
    // An extension of ours takes bytes 20..23.
    for (std::size_t i = host.extensions ? 24 : 20; i < answer.size(); ++i) {
        answer[i] = host.options.filler;
    }
    if (host.welcome) answer = host.welcome(host.dials.back()).value_or(answer);
    const std::span<const std::uint8_t> view(answer);
    auto endpoint = request->accept(
        room_.domain(), std::as_bytes(view),
        {.send_queue_depth = 4 * host.options.depth + 2300, .receive_queue_depth = receives + 1},
        link);
    if (!endpoint) {
        link.disconnected = link.drained = true;
        return;
    }
    link.adopt(std::move(*endpoint));
    if (cid == 0) link.post_big(272);
    link.post_receives();
}

void HostPath::arrived(Link& link, const Arrival& arrival) {
    if (arrival.opcode == rtrs::CompletionOpcode::receive) return info_request(link, arrival);
    if (arrival.opcode != rtrs::CompletionOpcode::receive_immediate) {
        host.report.not_ok("C34", "a message without immediate", "writes with immediate");
        return;
    }
    const unsigned type = arrival.immediate >> 28;
    if (arrival.immediate == heartbeat) {
        heartbeats.push_back(arrival.when);
        host.report.check("C58", link.cid == 0, "a heartbeat on another connection", "on cid 0");
        if (host.answers_heartbeats) link.write_immediate({}, {}, heartbeat_answer);
    } else if (arrival.immediate == heartbeat_answer) {
        ++heartbeat_answers;
        host.report.check("C59", link.cid == 0, "a heartbeat's answer on another connection",
                          "on cid 0");
    } else if (type == 0) {
        request(link, arrival.immediate);
    } else {
        host.report.not_ok("C34", fmt::format("immediate {:#010x}", arrival.immediate),
                           "types 0, 8, 9 from a client");
    }
}

void HostPath::info_request(Link& link, const Arrival& arrival) {
    Report& report = host.report;
    report.check("C24", link.cid == 0 && complete() && arrival.bytes == 272 && !informed,
                 fmt::format("INFO_REQ of {} bytes on cid {} with {} of {} connections",
                             arrival.bytes, link.cid, links.size(), greeting.cid_num),
                 "272 bytes on cid 0, once all connections are there");
    report.check("C24", take(arrival.body, 0, 2) == 0, "another type", "type 0");
    name.clear();
    for (std::size_t i = 2; i < 257 && arrival.body[i] != 0; ++i) {
        name += static_cast<char>(arrival.body[i]);
    }
    report.check("C25",
                 !name.empty() && name.size() <= 254 && name.find_first_of("/.") == name.npos,
                 "session name \"" + name + "\"", "1..254 bytes without / and .");
    const bool padded =
        std::all_of(arrival.body.begin() + 2 + static_cast<std::ptrdiff_t>(name.size()),
                    arrival.body.end(), [](std::uint8_t o) { return o == 0; });
    report.check("C25", padded, "bytes behind the name are not zero", "NUL padded");

    std::vector<Region> regions;
    if (host.options.new_rkey) {
        auto windows = room_.domain().create_windows(*regions_[0], host.options.depth);
        if (!windows) return link.disconnect();
        windows_ = std::move(*windows);
        for (std::uint32_t permit = 0; permit < host.options.depth; ++permit) {
            bind(permit);
            regions.push_back({regions_[0]->remote(at(permit), 0).address, windows_->key(permit),
                               host.chunk_bytes()});
        }
    } else {
        for (const auto& region : regions_) {
            regions.push_back({region->remote(0, 0).address, region->key(),
                               static_cast<std::uint32_t>(region->bytes())});
        }
    }
    Octets answer = info_response(regions);
    if (host.info) answer = host.info(answer).value_or(answer);
    informed = true;
    informed_at = host.lab.now();
    link.send(answer);
}

void HostPath::bind(std::uint32_t permit) {
    const rtrs::Segment chunk = chunks_.segment(at(permit), host.chunk_bytes());
    // Behind the request's revoke, and before its answer, on the connection of both.
    const auto known = arrived_.find(permit);
    Link& link = *links.at(known == arrived_.end() ? std::uint16_t{0} : known->second.cid);
    link.post({.opcode = rtrs::WorkOpcode::bind_window,
               .signal = rtrs::Signal::completion,
               .local = {&chunk, 1},
               .window = {windows_.get(), permit}});
}

void HostPath::request(Link& link, std::uint32_t immediate) {
    const std::uint32_t depth = host.options.depth;
    const std::uint32_t permit = permit_of(depth, immediate);
    const std::uint32_t offset = offset_of(depth, immediate);
    const bool fits = permit < depth && offset < host.chunk_bytes();
    host.report.check("C34", fits, fmt::format("permit {}, offset {}", permit, offset),
                      "a permit below the depth, an offset inside the chunk");
    if (!fits) return;
    if (!host.report.check("C37", running.insert(permit).second,
                           fmt::format("permit {} has two requests", permit), "one")) {
        return;
    }
    arrived_[permit] = {link.cid, offset};
    if (host.options.new_rkey && !host.keep_keys &&
        link.endpoint->post_revoke({windows_.get(), permit}, permit) ==
            rtrs::RevokeResult::pending) {
        return;
    }
    process(permit);
}

void HostPath::process(std::uint32_t permit) {
    if (down()) return;
    const auto [cid, offset] = arrived_[permit];
    const std::size_t chunk = at(permit);
    const std::size_t rest = std::min<std::size_t>(host.chunk_bytes() - offset, 24);
    const Octets message = chunks_.octets(chunk + offset, rest);
    const auto type = take(message, 0, 2);
    const auto user_bytes = static_cast<std::uint32_t>(take(message, 2, 2));
    Incoming in{.path = this, .cid = cid, .permit = permit, .read = type == 3};
    in.when = host.lab.now();
    const bool sane = (type == 2 || type == 3) && user_bytes <= offset;
    if (!host.report.check(
            "C35", sane,
            fmt::format("message type {}, usr_len {} at offset {}", type, user_bytes, offset),
            "type 2 or 3, usr_len within the offset")) {
        return;
    }
    in.data_bytes = offset - user_bytes;
    in.user = chunks_.octets(chunk + in.data_bytes, user_bytes);
    std::uint32_t end = offset + 4;
    if (in.read) {
        in.invalidate = (take(message, 4, 2) & 1) != 0;
        const auto count = static_cast<std::uint32_t>(take(message, 6, 2));
        host.report.check("C82", count <= 1, fmt::format("{} descriptors", count), "0 or 1");
        if (count == 1) in.destinations.push_back(region_at(message, 8));
        end = offset + 8 + 16 * count;
        host.report.check("C36", count == 0 || in.destinations[0].bytes == in.data_bytes,
                          "a descriptor of another length than the data", "the same");
    } else {
        in.data = chunks_.octets(chunk, in.data_bytes);
    }
    layout_kept(in, chunk, offset, end);
    poison_[permit] = poison;
    chunks_.fill(chunk, host.chunk_bytes(), poison);
    host.judge(in);
    Incoming noted = in;
    noted.data.clear();
    host.seen.push_back(std::move(noted));
    if (host.hold && host.hold(in)) {
        host.held.push_back(std::move(in));
        return;
    }
    host.serve(in);
}

// Nothing but what the request consists of was written to its chunk.
bool HostPath::layout_kept(const Incoming& in, std::size_t chunk, std::uint32_t offset,
                           std::uint32_t end) {
    const Octets all = chunks_.octets(chunk, host.chunk_bytes());
    const std::uint8_t clean = poison_[in.permit];
    const auto untouched = [&](std::size_t from, std::size_t to) {
        return std::all_of(all.begin() + static_cast<std::ptrdiff_t>(from),
                           all.begin() + static_cast<std::ptrdiff_t>(to),
                           [&](std::uint8_t octet) { return octet == clean; });
    };
    bool kept = host.report.check("C35", untouched(end, all.size()),
                                  fmt::format("bytes behind the message at {}", offset), "none");
    if (in.read) {
        kept = host.report.check("C36", untouched(0, in.data_bytes),
                                 "a read wrote into the data's room", "untouched") &&
               kept;
    }
    return kept;
}

void HostPath::respond(const Incoming& in, int error, const Octets& data, const Bend& bend) {
    const auto found = links.find(in.cid);
    if (found == links.end() || !found->second->up()) return;
    Link& link = *found->second;
    const bool wants_data = in.read && !in.destinations.empty();
    if (wants_data && error == 0 && !data.empty()) {
        const std::size_t bytes = std::min<std::size_t>(data.size(), in.destinations[0].bytes);
        const Octets part(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(bytes));
        link.write({room_.stage(part)}, {in.destinations[0].address, in.destinations[0].key, 0});
    }
    const bool invalidate = wants_data && in.invalidate;
    if (invalidate) {
        link.send_invalidate(in.destinations[0].key);
        ++host.invalidations;
    }
    const std::uint32_t immediate = answer_immediate(invalidate ? 2 : 1, in.permit, error);
    if (host.options.new_rkey) {
        if (!host.keep_keys) bind(in.permit);
        Octets body = key_answer(bend.key_permit.value_or(in.permit), windows_->key(in.permit),
                                 bend.key_type.value_or(4));
        body.resize(bend.key_bytes);
        running.erase(in.permit);
        link.send_immediate(body, immediate);
    } else {
        running.erase(in.permit);
        link.write_immediate({}, {}, immediate);
    }
}

}  // namespace conformance
