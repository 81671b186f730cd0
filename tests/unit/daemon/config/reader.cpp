#include "daemon/config/reader.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "daemon/config/common.h"
#include "daemon/config/files.h"
#include "daemon/config/yaml.h"
#include "daemon/config/yaml_place.h"

using namespace rnbd;
using namespace std::chrono_literals;

namespace {

struct Sample {
    std::string name = "default";
    std::uint32_t depth = 512;
    std::uint64_t size = 0;
    bool flag = false;
    rtrs::Duration wait = 1s;
    std::optional<rtrs::Duration> hold = 5s;
    AccessMode access = AccessMode::read_only;
    std::vector<std::string> items;
};

void read_sample(ConfigMap& map, Sample& sample) {
    map.required("name", config_text(1, 10), sample.name);
    map.optional("depth", config_integer<std::uint32_t>(1, 65535), sample.depth);
    map.optional("size", config_size(512, 1ull << 40), sample.size);
    map.optional("flag", config_bool(), sample.flag);
    map.optional("wait", config_duration(10ms, 1min), sample.wait);
    map.optional("hold", config_duration_or_forever(0s, 1h), sample.hold);
    map.optional("access", config_access(), sample.access);
    map.optional_list("items", {.max = 3}, [&](const ConfigValue& item) {
        item.map([&](ConfigMap& inner) {
            inner.required("word", config_text(1, 9), sample.items.emplace_back());
        });
    });
}

auto read(std::string_view text) {
    return read_config<Sample>({{"f.yaml", std::string(text)}}, read_sample);
}

// Every error of the text, one per line.
std::string errors_of(std::string_view text) {
    const auto result = read(text);
    if (result) return "";
    std::string all;
    for (const auto& error : result.error()) all += to_string(error) + "\n";
    return all;
}

}  // namespace

TEST_CASE("config reader: every type is read") {
    const auto sample = read(
        "name: n1\ndepth: 7\nsize: 1GiB\nflag: true\nwait: 200ms\nhold: forever\naccess: rw\n"
        "items:\n  - word: a\n  - {word: 'b'}\n");
    REQUIRE(sample);
    CHECK(sample->name == "n1");
    CHECK(sample->depth == 7);
    CHECK(sample->size == 1ull << 30);
    CHECK(sample->flag);
    CHECK(sample->wait == 200ms);
    CHECK_FALSE(sample->hold);
    CHECK(sample->access == AccessMode::read_write);
    CHECK(sample->items == std::vector<std::string>{"a", "b"});
}

TEST_CASE("config reader: absent keys keep their defaults") {
    const auto sample = read("name: n1\nitems:\n");
    REQUIRE(sample);
    CHECK(sample->depth == 512);
    CHECK(sample->hold == rtrs::Duration(5s));
}

TEST_CASE("config reader: all errors are reported, with place, key and nearest word") {
    CHECK(errors_of("nmae: x\ndepth: 70000\naccess: r w\nitems:\n  - wrod: a\n") ==
          "f.yaml:1:1: name: found no such key, expected a text of 1 to 10 bytes\n"
          "f.yaml:1:1: nmae: found an unknown key, expected name, depth, size, flag, wait, hold, "
          "access or items, nearest valid key \"name\"\n"
          "f.yaml:2:8: depth: found \"70000\", expected an integer from 1 to 65535\n"
          "f.yaml:3:9: access: found \"r w\", expected ro, rw or migration, nearest valid value "
          "\"rw\"\n"
          "f.yaml:5:5: items[0].word: found no such key, expected a text of 1 to 9 bytes\n"
          "f.yaml:5:5: items[0].wrod: found an unknown key, expected word, nearest valid key "
          "\"word\"\n");
}

TEST_CASE("config reader: wrong forms and empty values stand where they were written") {
    CHECK(errors_of("name: [a]\ndepth:\nitems: 3\n") ==
          "f.yaml:1:7: name: found a list, expected a text of 1 to 10 bytes\n"
          "f.yaml:2:1: depth: found nothing, expected an integer from 1 to 65535\n"
          "f.yaml:3:8: items: found a single value, expected a list (- ...)\n");
    CHECK(errors_of("- a\n") == "f.yaml:1:1: found a list, expected a mapping (key: value)\n");
    CHECK(errors_of("name: a\nitems: [1, 2, 3, 4]\n") ==
          "f.yaml:2:8: items: found 4 elements, expected at most 3\n");
}

TEST_CASE("config reader: a key that is there twice is an error") {
    CHECK(errors_of("name: a\nflag: true\nname: b\n") ==
          "f.yaml:3:1: name: found the key a second time, expected it once (first at f.yaml:1)\n");
    CHECK(errors_of("name: a\n? [x]\n: 1\n") ==
          "f.yaml:2:3: found a list as a key, expected a word\n");
}

TEST_CASE("config reader: a tab is blamed where YAML takes none, not elsewhere") {
    const auto tab_of = [](std::string_view text) {
        const auto line = static_cast<std::size_t>(std::ranges::count(text, '\n')) - 1;
        const auto tab = config_tab_near(text, line);
        return tab ? fmt::format("{}:{}", tab->line, tab->column) : "";
    };
    CHECK(tab_of("a:\n\tb: 1\n") == "2:1");
    CHECK(tab_of("a:\n  \tb: 1\nc: 1\n") == "2:3");
    CHECK(tab_of("a: it's [\n\tb: 1\n") == "2:1");
    CHECK(tab_of("a: [1, {b: 2}] # [\n\tb: 1\n") == "2:1");
    CHECK(tab_of("a: 'it''s [' \n\tb: 1\n") == "2:1");
    CHECK(tab_of("a: |\n  text\n\tb: 1\n") == "3:1");
    CHECK(tab_of("- k: |\n    text\n  l:\n  \tm: 1\n") == "4:3");
    // In brackets, in a block's text, in quotes, before a comment, on a line of nothing else.
    for (const char* innocent :
         {"a: [1,\n\t2\n", "a: {b: [\n\t1], c:\n\t2\n", "a: |\n  text\n  \tb: 1\n",
          "- - k: >-\n      text\n\n      \tb\n", "- |\n  \tb\n", "a: \"b\n\tc\\\"\n\td\n",
          "a: ['b\n\tc'\n", "a: 1\n\t# b\n", "a: 1\n\t\r\n"}) {
        INFO(innocent);
        CHECK(tab_of(innocent).empty());
    }
    CHECK(errors_of("a: [1,\n\t2 }\n")
              .starts_with("f.yaml:2:4: found a bracket or brace that closes nothing"));
}

TEST_CASE("config reader: what is not YAML, and what YAML bombs are made of, is refused") {
    CHECK(errors_of("name: 'a\n").starts_with("f.yaml:"));
    CHECK(errors_of("a: [\n") ==
          "f.yaml:1:5: found a list in brackets that is not closed, expected \",\" or \"]\" (no "
          "valid "
          "YAML: end of sequence flow not found)\n");
    // Quotes that are not closed are found where they begin, not where the text ends.
    CHECK(errors_of("a:\n  - b: \"c\n\n\n")
              .starts_with("f.yaml:2:8: found quotes that are not closed"));
    CHECK(errors_of("a: 'b\nc: {d\n").starts_with("f.yaml:1:4: found quotes that are not closed"));
    CHECK(errors_of("a: \"b\"\nc: it's\nd: \"e's\nf: |\n  g\n---\n")
              .starts_with("f.yaml:3:4: found quotes that are not closed"));
    CHECK(errors_of("a:\n  - b: *\n").starts_with("f.yaml:2:9: found \"*\", which is no text"));
    // What else is missing at the end is missing where the text ends.
    CHECK(errors_of("c: {d: 1\n").starts_with("f.yaml:1:9: found a mapping in braces"));
    CHECK(errors_of("- a b\n  c: 1\n").starts_with("f.yaml:2:4: found \": \" where no key ends"));
    CHECK(errors_of("a: 1\n- b\n").starts_with("f.yaml:2:1: found text that goes on with nothing"));
    CHECK(errors_of("a: @b\n").starts_with("f.yaml:1:4: found a character that no text begins"));
    CHECK(errors_of("a: ]\n").starts_with("f.yaml:1:4: found "));
    CHECK(errors_of("a: - b\n").starts_with("f.yaml:1:4: found \"- \" where no list"));
    CHECK(errors_of("a: \"\\q\"\n").find("found no valid YAML: unknown escape") !=
          std::string::npos);
    for (const char* text : {"list:\n  - name: a\n\tflag: true\n", "list:\n  - a\n\t- b\n"})
        CHECK(errors_of(text).starts_with(
            "f.yaml:3:1: found a tab in the indent of the line, expected spaces: YAML takes no "
            "tabs there (the parser says: "));
    CHECK(errors_of("list:\n  \t- b\n").starts_with("f.yaml:2:3: found a tab in the indent"));
    CHECK(errors_of("name: &x a\n").find("found an anchor") != std::string::npos);
    CHECK(errors_of("name: !!binary aGk=\n").find("found the tag") != std::string::npos);
    CHECK(errors_of("name: a\n---\nname: b\n").find(":2:1: found a second document") !=
          std::string::npos);
    CHECK(errors_of(std::string(17, '[')).find("nested too deeply") != std::string::npos);
    CHECK(errors_of(std::string("name: a\0b", 9)) ==
          "f.yaml:1:8: found the byte 0x00, expected UTF-8 text\n");
    CHECK(errors_of("name: a\nx: \xc3\x28\n") ==
          "f.yaml:2:4: found the byte 0xc3, expected UTF-8 text\n");
    CHECK(errors_of(std::string(config_bytes_max + 1, ' ')).find("expected at most") !=
          std::string::npos);
    std::string many = "items: [";
    for (std::size_t i = 0; i < config_values_max; ++i) many += "1,";
    CHECK(errors_of(many + "]").find("found more than") != std::string::npos);
}

TEST_CASE("config reader: errors beyond the bound are counted") {
    std::string text = "name: a\n";
    for (int i = 0; i < 150; ++i) text += "zz" + std::to_string(i) + ": 1\n";
    const auto result = read(text);
    REQUIRE_FALSE(result);
    CHECK(result.error().size() == config_errors_max + 1);
    CHECK(result.error().back().text == "and 50 more errors");
}

TEST_CASE("config reader: an error cannot forge lines") {
    CHECK(errors_of("name: a\naccess: \"x\\ny\"\n").find("\"x\\x0ay\"") != std::string::npos);
}

TEST_CASE("sizes are strict") {
    CHECK(parse_size("4096") == 4096u);
    CHECK(parse_size("512B") == 512u);
    CHECK(parse_size("512KiB") == 512u << 10);
    CHECK(parse_size("16383PiB") == 16383ull << 50);
    const auto* bad = GENERATE("", "1GB", "1G", "1 GiB", "-1", "+1", "1.5GiB", "0x10", "16384PiB",
                               "18446744073709551616", "GiB", "1GiBx", "1gib");
    CHECK_FALSE(parse_size(bad));
}

TEST_CASE("durations are strict") {
    CHECK(parse_duration("5s") == rtrs::Duration(5s));
    CHECK(parse_duration("100us") == rtrs::Duration(100us));
    CHECK(parse_duration("2min") == rtrs::Duration(2min));
    CHECK(parse_duration("1d") == rtrs::Duration(24h));
    const auto* bad = GENERATE("", "5", "s", "-1s", "1.5s", "5 s", "1m", "106752d", "forever");
    CHECK_FALSE(parse_duration(bad));
}

TEST_CASE("addresses are numeric and become canonical") {
    CHECK(parse_address("127.0.0.1:1235", PortZero::refused) == "127.0.0.1:1235");
    CHECK(parse_address("[0:0::1]:80", PortZero::refused) == "[::1]:80");
    CHECK(parse_address("0.0.0.0:0", PortZero::allowed) == "0.0.0.0:0");
    CHECK_FALSE(parse_address("0.0.0.0:0", PortZero::refused));
    const auto* bad = GENERATE("", ":", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "::1:80", "host:80",
                               "[::1]", "[1.2.3.4]:80", "1.2.3.4:+8", "1.2.3.4:80 ", "[]:1", "[:1");
    CHECK_FALSE(parse_address(bad, PortZero::allowed));
}

TEST_CASE("names and paths") {
    CHECK(config_session_name().parse("host-a"));
    for (const auto* bad : {"", "a.b", "a/b", "a b", "\xc3\xa4"})
        CHECK_FALSE(config_session_name().parse(bad));
    CHECK_FALSE(config_session_name().parse(std::string(255, 'a')));
    CHECK(config_session_name().parse(std::string(254, 'a')));
    CHECK(config_volume_name().parse("disks/vol.1"));
    for (const auto* bad : {"", "a..b", "/a", "a b"}) CHECK_FALSE(config_volume_name().parse(bad));
    CHECK(config_path(107).parse("/a/b..c"));
    for (const auto* bad : {"", "/", "a", "/a/../b", "/..", "/a/", "/a\n"})
        CHECK_FALSE(config_path(107).parse(bad));
    CHECK_FALSE(config_path(107).parse("/" + std::string(107, 'a')));
    CHECK(config_path(107).expected ==
          "an absolute path of at most 107 bytes that has no \"..\" and does not end in '/'");
    CHECK(config_host().parse("fe80:0::1") == "fe80::1");
    CHECK_FALSE(config_host().parse("[::1]"));
}

TEST_CASE("config file: absent, a directory and too large are one error each") {
    char directory[] = "/tmp/rnbd-config-XXXXXX";
    REQUIRE(::mkdtemp(directory) != nullptr);
    const std::string path = std::string(directory) + "/c.yaml";
    CHECK(to_string(read_config_file(path, PipeEnd::not_awaited).error()) ==
          path + ": cannot be opened: No such file or directory");
    CHECK(to_string(read_config_file(directory, PipeEnd::not_awaited).error())
              .find("cannot be read") != std::string::npos);
    std::ofstream(path) << "name: a\n";
    CHECK(read_config_file(path, PipeEnd::not_awaited).value() == "name: a\n");
    REQUIRE(::truncate(path.c_str(), config_bytes_max + 1) == 0);
    CHECK(read_config_file(path, PipeEnd::not_awaited).error().text.starts_with("found more than"));
    ::unlink(path.c_str());
    ::rmdir(directory);
}

// As `--config <(command)`, while the command is not done.
TEST_CASE("config file: a pipe is read to its end, or refused until there is one") {
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    const std::string path = "/dev/fd/" + std::to_string(pipe[0]);
    REQUIRE(::write(pipe[1], "name: ", 6) == 6);
    const auto refused = read_config_file(path, PipeEnd::not_awaited);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().text == "found a pipe whose writer has not finished, expected a file");
    std::expected<std::string, ConfigError> text;
    std::thread reader([&] { text = read_config_file(path, PipeEnd::awaited); });
    // It may come while the reader waits, or before it begins to.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    REQUIRE(::write(pipe[1], "a\n", 2) == 2);
    ::close(pipe[1]);
    reader.join();
    REQUIRE(text);
    CHECK(*text == "a\n");
    ::close(pipe[0]);
}

// --- several files ---

namespace {

std::string errors_of(const std::vector<ConfigSource>& sources) {
    const auto result = read_config<Sample>(sources, read_sample);
    if (result) return "";
    std::string all;
    for (const auto& error : result.error()) all += to_string(error) + "\n";
    return all;
}

}  // namespace

TEST_CASE("config reader: lists of several files go on, of a value the last one counts") {
    const auto sample = read_config<Sample>({{"a.yaml", "name: a\ndepth: 1\nitems: [{word: x}]\n"},
                                             {"b.yaml", ""},
                                             {"c.yaml", "depth: 3\nitems: [{word: y}]\n"},
                                             {"d.yaml", "size: 1MiB\nitems: [{word: z}]\n"}},
                                            read_sample);
    REQUIRE(sample);
    CHECK(sample->name == "a");
    CHECK(sample->depth == 3);
    CHECK(sample->size == 1u << 20);
    CHECK(sample->items == std::vector<std::string>{"x", "y", "z"});
}

TEST_CASE("config reader: an error names the file that it is in") {
    CHECK(errors_of({{"a.yaml", "name: a\nitems: [{word: x}]\n"},
                     {"b.yaml", "\nitems:\n  - word: y\n  - wort: z\n"},
                     {"c.yaml", "depth: many\n"}}) ==
          "b.yaml:4:5: items[1].word: found no such key, expected a text of 1 to 9 bytes\n"
          "b.yaml:4:5: items[1].wort: found an unknown key, expected word, nearest valid key "
          "\"word\"\n"
          "c.yaml:1:8: depth: found \"many\", expected an integer from 1 to 65535\n");
    CHECK(errors_of({{"a.yaml", "name: a\n"}, {"b.yaml", "- x\n"}}) ==
          "b.yaml:1:1: found a list, expected a mapping (key: value)\n");
    CHECK(errors_of({{"a.yaml", "- x\n"}, {"b.yaml", "name: a\n"}}) ==
          "a.yaml:1:1: found a list, expected a mapping (key: value)\n");
    CHECK(errors_of({{"a.yaml", "name: a\n"}, {"b.yaml", "name: \"\n"}}).starts_with("b.yaml:"));
}

TEST_CASE("config reader: a key that a later file says twice is an error") {
    CHECK(errors_of({{"a.yaml", "name: a\n"}, {"b.yaml", "name: b\nname: c\n"}}) ==
          "b.yaml:2:1: name: found the key a second time, expected it once (first at a.yaml:1)\n");
}

TEST_CASE("config reader: files together are bounded") {
    const std::string half(config_bytes_max / 2, ' ');
    CHECK(errors_of({{"a.yaml", "name: a\n" + half}, {"b.yaml", half}})
              .find("with the files before it") != std::string::npos);
}

TEST_CASE("config reader: the folder beside a file") {
    CHECK(config_folder_of("/etc/rnbd/server.yaml") == "/etc/rnbd/server.d");
    CHECK(config_folder_of("server.yml") == "server.d");
    CHECK(config_folder_of("/etc/rnbd/server") == "/etc/rnbd/server.d");
    char folder[] = "/tmp/rnbd-config-XXXXXX";
    REQUIRE(::mkdtemp(folder) != nullptr);
    const std::string at = folder;
    const auto write = [&](const std::string& name, const char* text) {
        std::ofstream(at + "/" + name) << text;
    };
    write("x.yaml", "0");
    const auto read = [&] { return read_config_files(at + "/x.yaml", PipeEnd::not_awaited); };
    REQUIRE(read().errors.empty());
    REQUIRE(::mkdir((at + "/x.d").c_str(), 0700) == 0);
    write("x.d/20.yaml", "2");
    write("x.d/10.yaml", "1");
    write("x.d/.hidden.yaml", "no");
    write("x.d/README", "no");
    REQUIRE(read().errors.empty());
    std::string order;
    for (const auto& source : read().sources) order += source.text;
    CHECK(order == "012");
    CHECK(config_files_without_text(at + "/x.yaml").empty());
    write("x.d/10.yaml", " \t\r\n");
    REQUIRE(config_files_without_text(at + "/x.yaml").size() == 1);
    CHECK(config_files_without_text(at + "/x.yaml").front().file == at + "/x.d/10.yaml");
    write("x.d/10.yaml", "# 1");
    CHECK(config_files_without_text(at + "/x.yaml").empty());
    CHECK(config_files_passed_over(at + "/x.yaml").empty());
    CHECK(config_files_passed_over(at + "/nothing.yaml").empty());
    for (const char* name : {"x.d/30.yml", "x.d/40.YAML", "x.d/50.yaml~", "x.d/.60.yml"})
        write(name, "no");
    const auto passed_over = config_files_passed_over(at + "/x.yaml");
    REQUIRE(passed_over.size() == 2);
    CHECK(to_string(passed_over[0]) ==
          at + "/x.d/30.yml: not read: of this folder, only files whose names end in .yaml are");
    CHECK(passed_over[1].file == at + "/x.d/40.YAML");
    CHECK(read().sources.size() == 3);
    REQUIRE(::mkdir((at + "/x.d/30.yaml").c_str(), 0700) == 0);
    const auto broken = read();
    REQUIRE(broken.errors.size() == 1);
    CHECK(broken.errors.front().file == at + "/x.d/30.yaml");
    CHECK(broken.sources.size() == 3);  // whose errors are told as well
    for (const char* name : {"/x.d/30.yml", "/x.d/40.YAML", "/x.d/50.yaml~", "/x.d/.60.yml",
                             "/x.d/30.yaml", "/x.d/20.yaml", "/x.d/10.yaml", "/x.d/.hidden.yaml",
                             "/x.d/README", "/x.d", "/x.yaml", ""})
        static_cast<void>(::remove((at + name).c_str()));
}
