#include "rnbd-client/nbd/handshake.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace rnbd::nbd {
namespace {

// What a client reads and writes in multiples of that was told nothing.
constexpr std::uint32_t assumed_block_bytes = 512;

std::string_view as_text(Bytes bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes as_bytes(std::string_view text) noexcept {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

void append(std::vector<std::byte>& to, Bytes bytes) {
    to.insert(to.end(), bytes.begin(), bytes.end());
}

// Takes what option data is made of, front to back; sticks in failed once anything is missing.
class Reader {
  public:
    explicit Reader(Bytes bytes) noexcept : rest_(bytes) {}

    std::uint16_t u16() noexcept { return has(2) ? rtrs::load_be16(take(2).data()) : 0; }
    std::uint32_t u32() noexcept { return has(4) ? rtrs::load_be32(take(4).data()) : 0; }
    // A 32-bit length and as many bytes; the protocol's limit on strings holds.
    std::string_view text() noexcept {
        const std::uint32_t bytes = u32();
        if (bytes > string_bytes_max) failed_ = true;
        return has(bytes) ? as_text(take(bytes)) : std::string_view{};
    }
    bool failed() const noexcept { return failed_; }
    // Nothing missing, nothing left over.
    bool complete() const noexcept { return !failed_ && rest_.empty(); }
    std::size_t rest_bytes() const noexcept { return rest_.size(); }

  private:
    bool has(std::size_t bytes) noexcept {
        if (rest_.size() < bytes) failed_ = true;
        return !failed_;
    }
    Bytes take(std::size_t bytes) noexcept {
        const Bytes taken = rest_.first(bytes);
        rest_ = rest_.subspan(bytes);
        return taken;
    }

    Bytes rest_;
    bool failed_ = false;
};

}  // namespace

std::optional<std::size_t> ExportTable::find(std::string_view wanted) const noexcept {
    if (wanted.empty()) return count() == 1 ? std::optional<std::size_t>(0) : std::nullopt;
    for (std::size_t i = 0; i < count(); ++i) {
        if (name(i) == wanted) return i;
    }
    return std::nullopt;
}

void Handshake::greet(std::vector<std::byte>& replies) {
    std::array<std::byte, greeting_bytes> greeting;
    emit_greeting(greeting.data());
    append(replies, greeting);
}

std::size_t Handshake::step(Bytes input, std::vector<std::byte>& replies) {
    std::size_t taken = 0;
    while (!finished() && replies.size() < limits_.reply_bytes_soft_max) {
        const std::size_t missing = missing_bytes();
        const std::size_t now = std::min(missing, input.size() - taken);
        if (state_ == State::skipping) {
            skip_bytes_ -= static_cast<std::uint32_t>(now);
        } else {
            append(unit_, input.subspan(taken, now));
        }
        taken += now;
        if (now < missing) break;
        complete_unit(replies);
    }
    return taken;
}

std::size_t Handshake::missing_bytes() const noexcept {
    switch (state_) {
        case State::client_flags:
            return client_flags_bytes - unit_.size();
        case State::option_header:
            return option_header_bytes - unit_.size();
        case State::option_data:
            return option_bytes_ - unit_.size();
        case State::skipping:
            return skip_bytes_;
        case State::transmission:
        case State::aborted:
        case State::failed:
            break;
    }
    return 0;
}

void Handshake::complete_unit(std::vector<std::byte>& replies) {
    switch (state_) {
        case State::client_flags:
            take_client_flags();
            break;
        case State::option_header:
            take_option_header(replies);
            break;
        case State::option_data:
            state_ = State::option_header;
            take_option(unit_, replies);
            break;
        case State::skipping:
            state_ = State::option_header;
            reply_error(replies, OptionReply::error_too_big, "option is too long");
            break;
        case State::transmission:
        case State::aborted:
        case State::failed:
            break;
    }
    unit_.clear();
}

void Handshake::take_client_flags() {
    const std::uint32_t flags = rtrs::load_be32(unit_.data());
    // The protocol wants the connection dropped: a flag changes what follows in unknown ways.
    if ((flags & ~(client_flag::fixed_newstyle | client_flag::no_zeroes)) != 0) {
        return fail("unknown client flags");
    }
    fixed_newstyle_ = (flags & client_flag::fixed_newstyle) != 0;
    no_zeroes_ = (flags & client_flag::no_zeroes) != 0;
    state_ = State::option_header;
}

void Handshake::take_option_header(std::vector<std::byte>& replies) {
    const OptionHeader header = parse_option_header(unit_);
    if (header.magic != option_magic) return fail("wrong option magic");
    const std::size_t options_max =
        limits_.options_max + exports_.count() * limits_.options_per_export;
    if (++options_seen_ > options_max) return fail("too many options");
    option_ = header.option;
    option_bytes_ = header.data_bytes;
    const bool is_export_name = header.option == static_cast<std::uint32_t>(Option::export_name);
    // A client without fixed newstyle cannot read option replies.
    if (!fixed_newstyle_ && !is_export_name) return fail("option without fixed newstyle");
    if (header.data_bytes > limits_.option_bytes_max) {
        if (header.data_bytes > limits_.skipped_bytes_max) return fail("absurd option length");
        if (is_export_name) return fail("export name is too long");
        // A SET replaces what was selected before, also when it is too long.
        if (option_ == static_cast<std::uint32_t>(Option::set_meta_context)) {
            context_export_.reset();
        }
        skip_bytes_ = header.data_bytes;
        state_ = State::skipping;
        return;
    }
    state_ = State::option_data;
    if (header.data_bytes == 0) {
        unit_.clear();
        complete_unit(replies);
    }
}

void Handshake::take_option(Bytes data, std::vector<std::byte>& replies) {
    switch (static_cast<Option>(option_)) {
        case Option::export_name:
            return export_name(data, replies);
        case Option::abort:
            reply(replies, OptionReply::ack);
            state_ = State::aborted;
            return;
        case Option::list:
            return list(data, replies);
        case Option::start_tls:
            return reply_error(replies, OptionReply::error_unsupported,
                               "TLS is not served on this socket");
        case Option::info:
        case Option::go:
            return info_or_go(data, replies);
        case Option::structured_reply:
            return structured_reply(data, replies);
        case Option::list_meta_context:
        case Option::set_meta_context:
            return meta_context(data, replies);
    }
    reply_error(replies, OptionReply::error_unsupported, "unknown option");
}

void Handshake::export_name(Bytes data, std::vector<std::byte>& replies) {
    const auto index = exports_.find(as_text(data));
    if (!index) return fail("no such export");
    const ExportDescription description = exports_.describe(*index);
    if (!description.unavailable.empty()) return fail("export is not available now");
    choose(*index, description);
    std::array<std::byte, export_name_reply_bytes + export_name_padding_bytes> answer{};
    rtrs::store_be64(answer.data(), description.size_bytes);
    rtrs::store_be16(answer.data() + 8, negotiated_.transmission_flags);
    append(replies, Bytes(answer).first(no_zeroes_ ? export_name_reply_bytes : answer.size()));
}

void Handshake::list(Bytes data, std::vector<std::byte>& replies) {
    if (!data.empty()) {
        return reply_error(replies, OptionReply::error_invalid, "LIST takes no data");
    }
    std::vector<std::byte> entry;
    for (std::size_t i = 0; i < exports_.count(); ++i) {
        const ExportDescription description = exports_.describe(i);
        if (!description.unavailable.empty()) continue;
        const std::string_view name = exports_.name(i);
        entry.resize(4);
        rtrs::store_be32(entry.data(), static_cast<std::uint32_t>(name.size()));
        append(entry, as_bytes(name));
        append(entry, as_bytes(description.text));
        reply(replies, OptionReply::server, entry);
    }
    reply(replies, OptionReply::ack);
}

void Handshake::info_or_go(Bytes data, std::vector<std::byte>& replies) {
    Reader reader(data);
    const std::string_view name = reader.text();
    const std::uint16_t infos = reader.u16();
    if (reader.failed() || reader.rest_bytes() != 2u * infos) {
        return reply_error(replies, OptionReply::error_invalid, "malformed INFO or GO");
    }
    const auto index = exports_.find(name);
    if (!index) return reply_error(replies, OptionReply::error_unknown, "no such export");
    const ExportDescription description = exports_.describe(*index);
    if (!description.unavailable.empty()) {
        return reply_error(replies, description.unavailable_type, description.unavailable);
    }

    std::vector<std::byte> info(12);
    const auto send_info = [&](Info type) {
        rtrs::store_be16(info.data(), static_cast<std::uint16_t>(type));
        reply(replies, OptionReply::info, info);
    };
    rtrs::store_be64(info.data() + 2, description.size_bytes);
    rtrs::store_be16(info.data() + 10, flags_of(description));
    send_info(Info::export_);

    bool wants_name = false, wants_text = false, wants_block_size = false;
    for (std::uint16_t i = 0; i < infos; ++i) {
        const auto wanted = static_cast<Info>(reader.u16());
        wants_name |= wanted == Info::name;
        wants_text |= wanted == Info::description;
        wants_block_size |= wanted == Info::block_size;
    }
    if (wants_name) {
        info.resize(2);
        append(info, as_bytes(exports_.name(*index)));
        send_info(Info::name);
    }
    if (wants_text && !description.text.empty()) {
        info.resize(2);
        append(info, as_bytes(description.text));
        send_info(Info::description);
    }
    // Who did not ask takes 512 bytes for granted, and what is no whole block is refused later.
    if (wants_block_size || description.block_sizes.minimum_bytes > assumed_block_bytes) {
        info.resize(14);
        rtrs::store_be32(info.data() + 2, description.block_sizes.minimum_bytes);
        rtrs::store_be32(info.data() + 6, description.block_sizes.preferred_bytes);
        rtrs::store_be32(info.data() + 10, description.block_sizes.maximum_bytes);
        send_info(Info::block_size);
    }
    reply(replies, OptionReply::ack);
    if (static_cast<Option>(option_) == Option::go) choose(*index, description);
}

void Handshake::structured_reply(Bytes data, std::vector<std::byte>& replies) {
    if (!data.empty()) {
        return reply_error(replies, OptionReply::error_invalid, "STRUCTURED_REPLY takes no data");
    }
    negotiated_.structured_replies = true;
    reply(replies, OptionReply::ack);
}

void Handshake::meta_context(Bytes data, std::vector<std::byte>& replies) {
    const bool is_set = static_cast<Option>(option_) == Option::set_meta_context;
    // A SET replaces what was selected before, also when it fails.
    if (is_set) context_export_.reset();
    if (!negotiated_.structured_replies) {
        return reply_error(replies, OptionReply::error_invalid, "structured replies come first");
    }
    Reader reader(data);
    const std::string_view name = reader.text();
    const std::uint32_t queries = reader.u32();
    // Listing with no query asks for everything there is.
    bool matches = !is_set && queries == 0;
    for (std::uint32_t i = 0; i < queries && !reader.failed(); ++i) {
        const std::string_view query = reader.text();
        matches |= query == allocation_context_name || (!is_set && query == "base:");
    }
    if (!reader.complete()) {
        return reply_error(replies, OptionReply::error_invalid, "malformed META_CONTEXT");
    }
    const auto index = exports_.find(name);
    if (!index) return reply_error(replies, OptionReply::error_unknown, "no such export");
    if (matches) {
        std::vector<std::byte> context(4);
        rtrs::store_be32(context.data(), is_set ? allocation_context_id : 0);
        append(context, as_bytes(allocation_context_name));
        reply(replies, OptionReply::meta_context, context);
        if (is_set) context_export_ = std::string(exports_.name(*index));
    }
    reply(replies, OptionReply::ack);
}

void Handshake::choose(std::size_t index, const ExportDescription& description) {
    negotiated_.export_index = index;
    negotiated_.size_bytes = description.size_bytes;
    negotiated_.transmission_flags = flags_of(description);
    // A context counts only for the export that it was selected for.
    negotiated_.allocation_context = context_export_ == exports_.name(index);
    state_ = State::transmission;
}

std::uint16_t Handshake::flags_of(const ExportDescription& description) const noexcept {
    return negotiated_.structured_replies
               ? description.transmission_flags | transmission_flag::send_df
               : description.transmission_flags;
}

void Handshake::reply(std::vector<std::byte>& replies, OptionReply type, Bytes data) const {
    const std::size_t at = replies.size();
    replies.resize(at + option_reply_header_bytes);
    emit_option_reply_header(replies.data() + at, option_, type,
                             static_cast<std::uint32_t>(data.size()));
    append(replies, data);
}

void Handshake::reply_error(std::vector<std::byte>& replies, OptionReply type,
                            std::string_view text) const {
    reply(replies, type, as_bytes(text));
}

void Handshake::fail(std::string_view why) {
    failure_ = why;
    state_ = State::failed;
}

}  // namespace rnbd::nbd
