#include "tests/conformance/as_client.h"

#include <fmt/format.h>

namespace conformance {
namespace {

// More than anybody may send at once.
constexpr std::uint32_t receives = 2100;
constexpr std::uint32_t sends = 3000;
// A destination that nothing was written to.
constexpr std::uint8_t untouched = 0xd7;

}  // namespace

ClientPath::ClientPath(Lab& its_lab, Report& its_report, Endpoints its_endpoints)
    : lab(its_lab),
      report(its_report),
      endpoints(std::move(its_endpoints)),
      room_(lab),
      destination_(destination_bytes_all) {
    greeting.sess_uuid = lab.uuid();
    greeting.paths_uuid = lab.uuid();
    greeting.cid_num = 2;
    auto region = room_.domain().register_memory(destination_.all(), rtrs::Access::remote_write);
    if (!region) throw Stop{"cannot register memory: " + region.error().message()};
    region_ = std::move(*region);
}

ClientPath::~ClientPath() {
    disconnect();
    links.clear();
}

Link& ClientPath::dial(std::uint16_t cid, std::optional<Octets> private_data) {
    Greeting mine = greeting;
    mine.cid = cid;
    const Octets octets = private_data.value_or(mine.octets());
    auto& link = *links.emplace_back(
        std::make_unique<Link>(lab, room_, cid, Link::Receives{.count = receives, .bytes = 8}));
    link.taken = [this, &link](const Arrival& arrival) {
        arrived(link, arrival);
        return true;
    };
    const std::span<const std::uint8_t> view(octets);
    auto endpoint = lab.fabric->connect(
        room_.domain(), endpoints.source, endpoints.destination, std::as_bytes(view),
        {.send_queue_depth = sends, .receive_queue_depth = receives + 1}, link);
    if (!endpoint) throw Stop{"cannot dial: " + endpoint.error().message()};
    link.adopt(std::move(*endpoint));
    lab.need("an answer to a connection request", [&] { return link.settled(); });
    if (!link.established) return link;
    if (cid == 0) {
        welcome = Welcome::of(link.private_data);
        depth = welcome.queue_depth;
        chunk_bytes = welcome.max_io_bytes + welcome.max_header_bytes;
        link.post_big(8 + 16 * depth);
    }
    link.post_receives();
    return link;
}

bool ClientPath::connect() {
    for (std::uint16_t cid = 0; cid < greeting.cid_num; ++cid) {
        if (!dial(cid).established) return false;
    }
    return true;
}

bool ClientPath::inform(const std::string& name) {
    info.clear();
    if (!links[0]->send(info_request(name))) return false;
    lab.need("INFO_RSP or the path's end", [&] { return !info.empty() || ended(); });
    if (info.empty()) return false;
    connected_at = lab.now();
    return lay_out();
}

void ClientPath::open_path(const std::string& name) {
    if (!connect()) {
        throw Stop{fmt::format("the server refused a connection: {}",
                               Welcome::of(links.back()->private_data).error)};
    }
    if (!inform(name)) throw Stop{"the server ended the path instead of INFO_RSP"};
}

bool ClientPath::lay_out() {
    chunks.clear();
    const std::size_t regions = take(info, 2, 2);
    for (std::size_t i = 0; i < regions; ++i) {
        const Region region = region_at(info, 8 + 16 * i);
        for (std::uint32_t at = 0; at + chunk_bytes <= region.bytes; at += chunk_bytes) {
            chunks.push_back({region.address + at, region.key});
        }
    }
    return chunks.size() == depth;
}

bool ClientPath::ended() const {
    for (const auto& link : links) {
        if (link->disconnected) return true;
    }
    return false;
}

void ClientPath::disconnect() {
    for (const auto& link : links) link->disconnect();
    lab.wait([this] {
        for (const auto& link : links) {
            if (link->endpoint && !link->drained) return false;
        }
        return true;
    });
}

// --- Requests

void ClientPath::submit(const Outgoing& wanted) {
    Outgoing outgoing = wanted;
    outgoing.permit %= depth;
    Link& link = *links[outgoing.cid];
    const auto user_bytes = static_cast<std::uint16_t>(outgoing.user.size());
    Octets tail = outgoing.user;
    std::uint64_t at = 0;
    if (outgoing.read) {
        ReadWords words{.user_bytes = user_bytes, .invalidate = outgoing.invalidate};
        const std::uint32_t bytes = outgoing.destination_bytes.value_or(outgoing.data_bytes);
        rtrs::Key key = region_->key();
        if (outgoing.invalidate) {
            auto window = room_.domain().create_windows(*region_, 1);
            if (!window) throw Stop{"no memory window: " + window.error().message()};
            const rtrs::Segment range = destination_.segment(outgoing.destination_at, bytes);
            if (!link.post({.opcode = rtrs::WorkOpcode::bind_window,
                            .signal = rtrs::Signal::completion,
                            .local = {&range, 1},
                            .window = {window->get()}})) {
                throw Stop{"cannot bind a memory window"};
            }
            key = (*window)->key(0);
            windows_.push_back(std::move(*window));
        }
        if (bytes > 0) {
            const auto room =
                std::min<std::size_t>(bytes, destination_bytes_all - outgoing.destination_at);
            destination_.fill(outgoing.destination_at, room, untouched);
            words.destinations.push_back(
                {region_->remote(outgoing.destination_at, 0).address, key, bytes});
        }
        const Octets message = outgoing.message.value_or(words.octets());
        tail.insert(tail.end(), message.begin(), message.end());
        at = outgoing.data_bytes;
    } else {
        const Octets message = outgoing.message.value_or(write_message(user_bytes));
        tail.insert(tail.end(), message.begin(), message.end());
    }
    std::vector<rtrs::Segment> from;
    if (!outgoing.read && !outgoing.data.empty()) from.push_back(room_.stage(outgoing.data));
    from.push_back(room_.stage(tail));
    const std::uint32_t offset = outgoing.data_bytes + user_bytes;
    const std::uint32_t immediate =
        outgoing.immediate.value_or(request_immediate(depth, outgoing.permit, offset));
    const Chunk& chunk = chunks.at(outgoing.permit);
    asked_[outgoing.permit] = outgoing;
    answers_[outgoing.permit].clear();
    link.write_immediate(
        from, {.address = chunk.address + outgoing.write_at.value_or(at), .key = chunk.key},
        immediate);
}

Answer ClientPath::answered(std::uint32_t permit, std::uint16_t cid) {
    permit %= depth;
    lab.need("an answer or the path's end", [&] { return !answers_[permit].empty() || ended(); });
    if (answers_[permit].empty()) return {};
    Answer answer = answers_[permit].front();
    report.check("C45", answer.cid == cid,
                 fmt::format("answer on connection {} to a request on {}", answer.cid, cid),
                 "on the same connection");
    return answer;
}

Answer ClientPath::ask(const Outgoing& outgoing) {
    submit(outgoing);
    return answered(outgoing.permit, outgoing.cid);
}

bool ClientPath::ends_or_answers(std::uint32_t permit, Duration at_most) {
    permit %= depth;
    return lab.wait(at_most, [&] { return !answers_[permit].empty() || ended(); });
}

void ClientPath::arrived(Link& link, const Arrival& arrival) {
    using rtrs::CompletionOpcode;
    if (arrival.opcode == CompletionOpcode::receive) {
        info = arrival.body;
        return;
    }
    if (arrival.opcode == CompletionOpcode::receive_invalidate) {
        ++invalidations_[link.cid];
        return;
    }
    const unsigned type = arrival.immediate >> 28;
    if (arrival.immediate == heartbeat) {
        heartbeats.push_back(arrival.when);
        report.check("C58", link.cid == 0, "a heartbeat on another connection", "on cid 0");
        if (answers_heartbeats) link.write_immediate({}, {}, heartbeat_answer);
        return;
    }
    if (arrival.immediate == heartbeat_answer) {
        ++heartbeat_answers;
        report.check("C59", link.cid == 0, "a heartbeat's answer on another connection",
                     "on cid 0");
        return;
    }
    if (type != 1 && type != 2) {
        report.not_ok("C34", fmt::format("immediate {:#010x}", arrival.immediate),
                      "types 1, 2, 8, 9 from a server");
        return;
    }
    Answer answer{.came = true,
                  .cid = link.cid,
                  .type = type,
                  .error = static_cast<int>(arrival.immediate >> 19 & 0x1ff),
                  .permit = arrival.immediate & 0x7ffff,
                  .with_body = arrival.body_written,
                  .bytes = arrival.bytes,
                  .body = arrival.body,
                  .invalidations = invalidations_[link.cid],
                  .data = {}};
    invalidations_[link.cid] = 0;
    const auto asked = asked_.find(answer.permit);
    if (asked == asked_.end()) {
        report.not_ok(
            "C45", fmt::format("an answer for permit {}, which was not asked for", answer.permit),
            "one answer per request");
        return;
    }
    judge(answer, asked->second);
    if (asked->second.read) {
        const std::size_t at = asked->second.destination_at;
        const std::size_t bytes =
            asked->second.destination_bytes.value_or(asked->second.data_bytes);
        answer.data = destination_.octets(at, std::min(bytes, destination_bytes_all - at));
    }
    answers_[answer.permit].push_back(std::move(answer));
}

void ClientPath::judge(const Answer& answer, const Outgoing& asked) {
    report.check("C45", answers_[answer.permit].empty(), "two answers to one request", "one");
    report.check("C53", answer.error <= 511, "", "");
    const bool invalidated = answer.invalidations > 0;
    report.check(
        "C47", (answer.type == 2) == invalidated,
        fmt::format("answer type {} after {} invalidations", answer.type, answer.invalidations),
        "type 2 if one was sent for the request, else 1");
    if (!asked.invalidate && !asked.message) {
        report.check("C47", !invalidated, "an invalidation that nobody asked for", "none");
    }
    if ((welcome.flags & Welcome::new_rkey) == 0) {
        report.check("C48", !answer.with_body && answer.bytes == 0,
                     fmt::format("an answer that carries {} bytes{}", answer.bytes,
                                 answer.with_body ? " by a send" : ""),
                     "a write with immediate of no bytes");
        return;
    }
    const bool form = answer.with_body && answer.bytes == 8 && take(answer.body, 0, 2) == 4 &&
                      take(answer.body, 2, 2) == answer.permit;
    if (report.check("C48", form,
                     fmt::format("{} of {} bytes, type {}, buf_id {}",
                                 answer.with_body ? "a send" : "a write", answer.bytes,
                                 take(answer.body, 0, 2), take(answer.body, 2, 2)),
                     "a send with immediate of 8 bytes: type 4, buf_id the permit, a key")) {
        chunks.at(answer.permit).key = static_cast<std::uint32_t>(take(answer.body, 4, 4));
    }
}

// --- RNBD

Answer ClientPath::session_info(unsigned version) {
    return ask({.user = conformance::session_info(version), .read = true, .data_bytes = 36});
}
Answer ClientPath::open(const std::string& volume, unsigned access) {
    return ask({.user = open_volume(volume, access), .read = true, .data_bytes = 56});
}
Answer ClientPath::close(std::uint32_t device_id) { return ask({.user = close_volume(device_id)}); }

VolumeWords ClientPath::volume(const std::string& name, unsigned access) {
    const Answer answer = open(name, access);
    if (!answer.came || answer.error != 0) {
        throw Stop{fmt::format("volume {} cannot be opened: errno {}", name, answer.error)};
    }
    return VolumeWords::of(answer.data);
}

Answer ClientPath::io(BlockOp op, std::uint32_t device, std::uint64_t sector, std::uint32_t bytes,
                      std::uint32_t flags, Octets data, std::uint16_t cid, std::uint32_t permit) {
    const bool carries = op == BlockOp::read || op == BlockOp::write;
    const std::uint32_t at = permit * 4096 % (destination_bytes_all / 2);
    return ask({.cid = cid,
                .permit = permit,
                .user = BlockWords{.device_id = device,
                                   .sector = sector,
                                   .rw = static_cast<std::uint32_t>(op) | flags,
                                   .bytes = bytes}
                            .octets(),
                .read = op == BlockOp::read || op == BlockOp::flush,
                .data_bytes = carries ? bytes : 0,
                .data = std::move(data),
                .destination_at = at});
}

}  // namespace conformance
