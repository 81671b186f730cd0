// Building NBD's bytes by hand in tests: what a client would send, what a server should answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rnbd-client/nbd/handshake.h"
#include "rnbd-client/nbd/wire.h"

namespace rnbd::nbd {

// to: request_bytes.
inline void emit_request(std::byte* to, const Request& request) noexcept {
    rtrs::store_be32(to, request_magic);
    rtrs::store_be16(to + 4, request.flags);
    rtrs::store_be16(to + 6, static_cast<std::uint16_t>(request.command));
    rtrs::store_be64(to + 8, request.cookie);
    rtrs::store_be64(to + 16, request.offset);
    rtrs::store_be32(to + 24, request.length);
}

class ByteString {
  public:
    ByteString& u16(std::uint16_t v) { return number(v, 2); }
    ByteString& u32(std::uint32_t v) { return number(v, 4); }
    ByteString& u64(std::uint64_t v) { return number(v, 8); }
    ByteString& text(std::string_view t) {
        for (const char c : t) bytes_.push_back(static_cast<std::byte>(c));
        return *this;
    }
    ByteString& zeroes(std::size_t n) {
        bytes_.resize(bytes_.size() + n);
        return *this;
    }
    ByteString& add(const ByteString& other) {
        bytes_.insert(bytes_.end(), other.bytes_.begin(), other.bytes_.end());
        return *this;
    }
    // "000001ff ..." with spaces ignored.
    ByteString& hex(std::string_view digits) {
        std::string two;
        for (const char c : digits) {
            if (c == ' ') continue;
            two += c;
            if (two.size() == 2) {
                bytes_.push_back(static_cast<std::byte>(std::stoi(two, nullptr, 16)));
                two.clear();
            }
        }
        return *this;
    }

    // A client's option with its header.
    ByteString& option(std::uint32_t number, const ByteString& data = {}) {
        return u64(option_magic).u32(number).u32(data.size()).add(data);
    }
    ByteString& option(Option number, const ByteString& data = {}) {
        return option(static_cast<std::uint32_t>(number), data);
    }
    // The server's answer to one.
    ByteString& answer(std::uint32_t to, OptionReply type, const ByteString& data = {}) {
        return u64(option_reply_magic)
            .u32(to)
            .u32(static_cast<std::uint32_t>(type))
            .u32(data.size())
            .add(data);
    }
    ByteString& answer(Option to, OptionReply type, const ByteString& data = {}) {
        return answer(static_cast<std::uint32_t>(to), type, data);
    }

    std::uint32_t size() const { return static_cast<std::uint32_t>(bytes_.size()); }
    const std::vector<std::byte>& bytes() const { return bytes_; }
    operator Bytes() const { return bytes_; }
    friend bool operator==(const ByteString&, const ByteString&) = default;

  private:
    ByteString& number(std::uint64_t v, int bytes) {
        for (int i = bytes - 1; i >= 0; --i) {
            bytes_.push_back(static_cast<std::byte>(v >> (8 * i)));
        }
        return *this;
    }
    std::vector<std::byte> bytes_;
};

struct FixedExports final : ExportTable {
    struct Entry {
        std::string name;
        ExportDescription description;
    };
    std::vector<Entry> entries;

    std::size_t count() const noexcept override { return entries.size(); }
    std::string_view name(std::size_t i) const noexcept override { return entries[i].name; }
    ExportDescription describe(std::size_t i) const noexcept override {
        return entries[i].description;
    }
};

}  // namespace rnbd::nbd
