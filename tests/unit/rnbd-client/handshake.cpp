#include "rnbd-client/nbd/handshake.h"

#include <catch2/catch.hpp>
#include <random>

#include "tests/unit/rnbd-client/nbd_bytes.h"

using namespace rnbd::nbd;

namespace {

constexpr std::uint16_t disk_flags = transmission_flag::has_flags | transmission_flag::send_flush |
                                     transmission_flag::send_fua |
                                     transmission_flag::can_multi_conn;

FixedExports one_disk() {
    FixedExports exports;
    exports.entries.push_back({"vol1",
                               {.size_bytes = 1u << 30,
                                .transmission_flags = disk_flags,
                                .block_sizes = {512, 4096, 1u << 25},
                                .text = "a disk"}});
    return exports;
}

FixedExports two_disks() {
    FixedExports exports = one_disk();
    exports.entries.push_back({"vol2", {.size_bytes = 4096}});
    return exports;
}

struct Talk {
    std::vector<std::byte> replies;
    Handshake::State state;
    Negotiated negotiated;
    std::size_t taken;
    std::string failure;
};

Talk talk(const ExportTable& exports, Bytes input, const Handshake::Limits& limits = {}) {
    Handshake handshake(exports, limits);
    Talk result;
    result.taken = handshake.step(input, result.replies);
    result.state = handshake.state();
    result.negotiated = handshake.negotiated();
    result.failure = handshake.failure();
    return result;
}

// As talk(), the input cut into pieces at random.
Talk talk_in_pieces(const ExportTable& exports, Bytes input, std::mt19937& random) {
    Handshake handshake(exports);
    Talk result{};
    while (result.taken < input.size() && !handshake.finished()) {
        const std::size_t rest = input.size() - result.taken;
        const std::size_t piece = std::uniform_int_distribution<std::size_t>(1, rest)(random);
        const std::size_t most = random() % 2 ? piece : std::min<std::size_t>(piece, 7);
        result.taken += handshake.step(input.subspan(result.taken, most), result.replies);
    }
    result.state = handshake.state();
    result.negotiated = handshake.negotiated();
    return result;
}

ByteString flags(std::uint32_t value = 3) { return ByteString().u32(value); }

ByteString name_field(std::string_view name) {
    return ByteString().u32(static_cast<std::uint32_t>(name.size())).text(name);
}

ByteString export_info(std::uint64_t size, std::uint16_t transmission) {
    return ByteString().u16(0).u64(size).u16(transmission);
}

ByteString error_text(std::string_view text) { return ByteString().text(text); }

}  // namespace

TEST_CASE("handshake: the greeting is the protocol's, byte for byte") {
    std::vector<std::byte> replies;
    Handshake::greet(replies);
    CHECK(replies == ByteString().hex("4e42444d41474943 49484156454f5054 0003").bytes());
}

TEST_CASE("handshake: golden EXPORT_NAME with and without zeroes") {
    const auto exports = one_disk();
    const auto short_end =
        talk(exports, ByteString().hex("00000003 49484156454f5054 00000001 00000004 766f6c31"));
    CHECK(short_end.state == Handshake::State::transmission);
    CHECK(short_end.replies == ByteString().hex("0000000040000000 010d").bytes());
    const auto long_end =
        talk(exports, ByteString().hex("00000001 49484156454f5054 00000001 00000004 766f6c31"));
    CHECK(long_end.replies == ByteString().hex("0000000040000000 010d").zeroes(124).bytes());
    // Also for a client that knows no fixed newstyle.
    const auto plain = talk(exports, flags(0).option(Option::export_name, error_text("vol1")));
    CHECK(plain.state == Handshake::State::transmission);
    CHECK(plain.replies.size() == 134);
}

TEST_CASE("handshake: golden GO with block size, name and description on request") {
    const auto exports = one_disk();
    const auto result = talk(
        exports, ByteString().hex("00000003 49484156454f5054 00000007 00000010 00000004 766f6c31 "
                                  "0003 0003 0001 0002"));
    CHECK(result.state == Handshake::State::transmission);
    CHECK(result.replies ==
          ByteString()
              .hex("0003e889045565a9 00000007 00000003 0000000c 0000 0000000040000000 010d")
              .hex("0003e889045565a9 00000007 00000003 00000006 0001 766f6c31")
              .hex("0003e889045565a9 00000007 00000003 00000008 0002 61206469736b")
              .hex("0003e889045565a9 00000007 00000003 0000000e 0003 00000200 00001000 02000000")
              .hex("0003e889045565a9 00000007 00000001 00000000")
              .bytes());
    CHECK(result.negotiated.size_bytes == 1u << 30);
    CHECK_FALSE(result.negotiated.structured_replies);
}

TEST_CASE("handshake: INFO answers and goes on, nothing that was not asked is sent") {
    const auto result = talk(one_disk(), flags().option(Option::info, name_field("vol1").u16(0)));
    CHECK(result.state == Handshake::State::option_header);
    CHECK(result.replies ==
          ByteString()
              .answer(Option::info, OptionReply::info, export_info(1u << 30, disk_flags))
              .answer(Option::info, OptionReply::ack)
              .bytes());
}

TEST_CASE("handshake: blocks that are larger than anybody expects are told unasked") {
    FixedExports exports = one_disk();
    exports.entries[0].description.block_sizes.minimum_bytes = 4096;
    const auto result = talk(exports, flags().option(Option::go, name_field("vol1").u16(0)));
    CHECK(result.state == Handshake::State::transmission);
    CHECK(result.replies ==
          ByteString()
              .answer(Option::go, OptionReply::info, export_info(1u << 30, disk_flags))
              .answer(Option::go, OptionReply::info,
                      ByteString().u16(3).u32(4096).u32(4096).u32(1u << 25))
              .answer(Option::go, OptionReply::ack)
              .bytes());
}

TEST_CASE("handshake: the empty name is the device when there is one, nothing when there are two") {
    const auto one = talk(one_disk(), flags().option(Option::go, name_field("").u16(0)));
    CHECK(one.state == Handshake::State::transmission);
    CHECK(one.negotiated.export_index == 0);
    const auto two = talk(two_disks(), flags().option(Option::go, name_field("").u16(0)));
    CHECK(two.state == Handshake::State::option_header);
    CHECK(two.replies ==
          ByteString()
              .answer(Option::go, OptionReply::error_unknown, error_text("no such export"))
              .bytes());
    const auto second = talk(two_disks(), flags().option(Option::go, name_field("vol2").u16(0)));
    CHECK(second.negotiated.export_index == 1);
}

TEST_CASE("handshake: LIST names every export") {
    const auto result = talk(two_disks(), flags().option(Option::list));
    CHECK(result.replies ==
          ByteString()
              .answer(Option::list, OptionReply::server, name_field("vol1").text("a disk"))
              .answer(Option::list, OptionReply::server, name_field("vol2"))
              .answer(Option::list, OptionReply::ack)
              .bytes());
}

TEST_CASE("handshake: structured replies bring DF and meta contexts") {
    const auto result = talk(
        one_disk(), flags()
                        .option(Option::structured_reply)
                        .option(Option::list_meta_context, name_field("vol1").u32(0))
                        .option(Option::set_meta_context, name_field("vol1")
                                                              .u32(2)
                                                              .add(name_field("base:allocation"))
                                                              .add(name_field("x-other:thing")))
                        .option(Option::go, name_field("vol1").u16(0)));
    CHECK(result.state == Handshake::State::transmission);
    CHECK(result.negotiated.structured_replies);
    CHECK(result.negotiated.allocation_context);
    CHECK(result.negotiated.transmission_flags == (disk_flags | transmission_flag::send_df));
    CHECK(result.replies ==
          ByteString()
              .answer(Option::structured_reply, OptionReply::ack)
              .answer(Option::list_meta_context, OptionReply::meta_context,
                      ByteString().u32(0).text("base:allocation"))
              .answer(Option::list_meta_context, OptionReply::ack)
              .answer(Option::set_meta_context, OptionReply::meta_context,
                      ByteString().u32(1).text("base:allocation"))
              .answer(Option::set_meta_context, OptionReply::ack)
              .answer(Option::go, OptionReply::info,
                      export_info(1u << 30, disk_flags | transmission_flag::send_df))
              .answer(Option::go, OptionReply::ack)
              .bytes());
}

TEST_CASE("handshake: a meta context holds only for its export and until the next SET") {
    const auto select = [](std::string_view name, std::uint32_t queries) {
        ByteString data = name_field(name).u32(queries);
        for (std::uint32_t i = 0; i < queries; ++i) data.add(name_field("base:allocation"));
        return data;
    };
    const auto other_export =
        talk(two_disks(), flags()
                              .option(Option::structured_reply)
                              .option(Option::set_meta_context, select("vol2", 1))
                              .option(Option::go, name_field("vol1").u16(0)));
    CHECK(other_export.state == Handshake::State::transmission);
    CHECK_FALSE(other_export.negotiated.allocation_context);
    const auto replaced = talk(one_disk(), flags()
                                               .option(Option::structured_reply)
                                               .option(Option::set_meta_context, select("vol1", 1))
                                               .option(Option::set_meta_context, select("vol1", 0))
                                               .option(Option::go, name_field("vol1").u16(0)));
    CHECK_FALSE(replaced.negotiated.allocation_context);
    for (const ByteString& failing : {select("nope", 1), ByteString().zeroes(20000)}) {
        const auto failed =
            talk(one_disk(), flags()
                                 .option(Option::structured_reply)
                                 .option(Option::set_meta_context, select("vol1", 1))
                                 .option(Option::set_meta_context, failing)
                                 .option(Option::go, name_field("vol1").u16(0)));
        CHECK(failed.state == Handshake::State::transmission);
        CHECK_FALSE(failed.negotiated.allocation_context);
    }
}

TEST_CASE("handshake: a meta context outlives an export beside its own") {
    FixedExports exports = two_disks();
    Handshake handshake(exports);
    std::vector<std::byte> replies;
    handshake.step(flags()
                       .option(Option::structured_reply)
                       .option(Option::set_meta_context,
                               name_field("vol2").u32(1).add(name_field("base:allocation"))),
                   replies);
    exports.entries.erase(exports.entries.begin());
    handshake.step(ByteString().option(Option::go, name_field("vol2").u16(0)), replies);
    REQUIRE(handshake.state() == Handshake::State::transmission);
    CHECK(handshake.negotiated().allocation_context);
}

TEST_CASE("handshake: options that are refused leave the haggling open") {
    struct Case {
        Option option;
        ByteString data;
        OptionReply type;
        const char* text;
    };
    const Case cases[] = {
        {static_cast<Option>(77), ByteString().u32(5), OptionReply::error_unsupported,
         "unknown option"},
        {static_cast<Option>(4), {}, OptionReply::error_unsupported, "unknown option"},
        {static_cast<Option>(11), {}, OptionReply::error_unsupported, "unknown option"},
        {Option::start_tls, {}, OptionReply::error_unsupported, "TLS is not served on this socket"},
        {Option::list, ByteString().u16(0), OptionReply::error_invalid, "LIST takes no data"},
        {Option::structured_reply, ByteString().u16(0), OptionReply::error_invalid,
         "STRUCTURED_REPLY takes no data"},
        {Option::go, {}, OptionReply::error_invalid, "malformed INFO or GO"},
        {Option::go, ByteString().u32(100).text("vol1").u16(0), OptionReply::error_invalid,
         "malformed INFO or GO"},
        {Option::go, ByteString().u32(0xffffffff).text("vol1").u16(0), OptionReply::error_invalid,
         "malformed INFO or GO"},
        {Option::go, name_field("vol1").u16(2).u16(0), OptionReply::error_invalid,
         "malformed INFO or GO"},
        {Option::go, name_field("vol1").u16(0).u16(0), OptionReply::error_invalid,
         "malformed INFO or GO"},
        {Option::go, name_field(std::string(5000, 'x')).u16(0), OptionReply::error_invalid,
         "malformed INFO or GO"},
        {Option::info, name_field("vol2").u16(0), OptionReply::error_unknown, "no such export"},
        {Option::set_meta_context, name_field("vol1").u32(0), OptionReply::error_invalid,
         "structured replies come first"},
        {Option::list_meta_context, name_field("vol1").u32(0), OptionReply::error_invalid,
         "structured replies come first"},
    };
    for (const Case& c : cases) {
        const auto result = talk(one_disk(), flags().option(c.option, c.data));
        CAPTURE(c.text);
        CHECK(result.state == Handshake::State::option_header);
        CHECK(result.replies == ByteString().answer(c.option, c.type, error_text(c.text)).bytes());
    }
}

TEST_CASE("handshake: malformed meta context queries are invalid") {
    const ByteString datas[] = {
        ByteString(),
        name_field("vol1"),
        name_field("vol1").u32(1),
        name_field("vol1").u32(0xffffffff),
        name_field("vol1").u32(1).u32(50).text("base:"),
        name_field("vol1").u32(0).u16(1),
        name_field("vol1").u32(2).add(name_field("base:allocation")),
    };
    for (const auto& data : datas) {
        const auto result =
            talk(one_disk(),
                 flags().option(Option::structured_reply).option(Option::set_meta_context, data));
        CHECK(result.state == Handshake::State::option_header);
        CHECK(result.replies == ByteString()
                                    .answer(Option::structured_reply, OptionReply::ack)
                                    .answer(Option::set_meta_context, OptionReply::error_invalid,
                                            error_text("malformed META_CONTEXT"))
                                    .bytes());
    }
}

TEST_CASE("handshake: an export that is not available says why, and is not listed") {
    auto exports = one_disk();
    exports.entries[0].description.unavailable = "volume vol1: not open yet";
    const auto go = talk(exports, flags().option(Option::go, name_field("vol1").u16(0)));
    CHECK(go.replies == ByteString()
                            .answer(Option::go, OptionReply::error_unknown,
                                    error_text("volume vol1: not open yet"))
                            .bytes());
    CHECK(talk(exports, flags().option(Option::export_name, error_text("vol1"))).state ==
          Handshake::State::failed);
    CHECK(talk(exports, flags().option(Option::list)).replies ==
          ByteString().answer(Option::list, OptionReply::ack).bytes());
}

TEST_CASE("handshake: ABORT is acknowledged and ends it") {
    const auto result = talk(one_disk(), flags().option(Option::abort).option(Option::list));
    CHECK(result.state == Handshake::State::aborted);
    CHECK(result.taken == 4 + option_header_bytes);
    CHECK(result.replies == ByteString().answer(Option::abort, OptionReply::ack).bytes());
}

TEST_CASE("handshake: what cannot be answered ends the connection") {
    const auto exports = one_disk();
    CHECK(talk(exports, flags(4)).failure == "unknown client flags");
    CHECK(talk(exports, flags(0x80000003)).failure == "unknown client flags");
    CHECK(talk(exports, flags().u64(option_magic + 1).u64(0)).failure == "wrong option magic");
    CHECK(talk(exports, flags(2).option(Option::list)).failure == "option without fixed newstyle");
    CHECK(talk(exports, flags().option(Option::export_name, error_text("other"))).failure ==
          "no such export");
    CHECK(talk(exports, flags().u64(option_magic).u32(3).u32(0xffffffff)).failure ==
          "absurd option length");
    CHECK(talk(exports, flags().option(Option::export_name, ByteString().zeroes(20000))).failure ==
          "export name is too long");
    ByteString flood = flags();
    for (int i = 0; i < 300; ++i) flood.option(Option::structured_reply);
    CHECK(talk(exports, flood).failure == "too many options");
    CHECK(talk(exports, flood).replies.size() == (256 + 8) * option_reply_header_bytes);
}

TEST_CASE("handshake: all exports of a long list can be asked for") {
    FixedExports exports = one_disk();
    exports.entries.resize(500, exports.entries[0]);
    ByteString asking = flags().option(Option::structured_reply).option(Option::list);
    for (int i = 0; i < 500; ++i) {
        asking.option(Option::set_meta_context, name_field("vol1").u32(0));
        asking.option(Option::info, name_field("vol1").u16(0));
    }
    CHECK(talk(exports, asking.option(Option::abort)).state == Handshake::State::aborted);
}

TEST_CASE("handshake: an oversize option is skipped and answered TOO_BIG") {
    const auto result = talk(
        one_disk(), flags().option(Option::go, ByteString().zeroes(100000)).option(Option::abort));
    CHECK(result.state == Handshake::State::aborted);
    CHECK(result.replies ==
          ByteString()
              .answer(Option::go, OptionReply::error_too_big, error_text("option is too long"))
              .answer(Option::abort, OptionReply::ack)
              .bytes());
}

TEST_CASE("handshake: what follows the last option belongs to transmission") {
    const auto result =
        talk(one_disk(), flags().option(Option::go, name_field("").u16(0)).u32(request_magic));
    CHECK(result.taken == 4 + option_header_bytes + 6);
}

TEST_CASE("handshake: replies that pile up stop the input") {
    ByteString input = flags();
    for (int i = 0; i < 100; ++i) input.option(Option::list);
    const auto exports = one_disk();
    Handshake limited(exports, {.reply_bytes_soft_max = 1000});
    std::vector<std::byte> all;
    std::size_t taken = 0;
    while (taken < input.size()) {
        std::vector<std::byte> replies;
        taken += limited.step(Bytes(input).subspan(taken), replies);
        CHECK(replies.size() < 1100);
        REQUIRE_FALSE(replies.empty());
        all.insert(all.end(), replies.begin(), replies.end());
    }
    CHECK(all == talk(exports, input).replies);
}

TEST_CASE("handshake: however the stream is cut, the result is the same") {
    std::mt19937 random(20240517);
    const auto exports = two_disks();
    const Option known[] = {Option::list,
                            Option::info,
                            Option::go,
                            Option::structured_reply,
                            Option::abort,
                            Option::export_name,
                            Option::start_tls,
                            Option::list_meta_context,
                            Option::set_meta_context,
                            static_cast<Option>(99)};
    for (int round = 0; round < 500; ++round) {
        ByteString input = flags(round % 50 == 0 ? 1 : 3);
        const int options = static_cast<int>(random() % 12);
        for (int i = 0; i < options; ++i) {
            // Ends are rare, or nothing would be long.
            Option option = known[random() % std::size(known)];
            const bool ends =
                option == Option::go || option == Option::abort || option == Option::export_name;
            if (ends && random() % 3 != 0) option = Option::info;
            ByteString data;
            switch (random() % 4) {
                case 0:
                    break;
                case 1:
                    data = name_field("vol2").u16(2).u16(3).u16(1);
                    break;
                case 2:
                    data = name_field("vol1").u32(1).add(name_field("base:allocation"));
                    break;
                case 3:
                    data.zeroes(random() % 20000);
                    break;
            }
            input.option(option, data);
        }
        if (random() % 20 == 0) input.u64(1).u64(2);
        const auto whole = talk(exports, input);
        const auto pieces = talk_in_pieces(exports, input, random);
        CHECK(whole.state == pieces.state);
        CHECK(whole.taken == pieces.taken);
        CHECK(whole.replies == pieces.replies);
        CHECK(whole.negotiated.export_index == pieces.negotiated.export_index);
        CHECK(whole.negotiated.allocation_context == pieces.negotiated.allocation_context);
    }
}
