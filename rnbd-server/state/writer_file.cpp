#include "rnbd-server/state/writer_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <sstream>

#include "daemon/log/log.h"
#include "rtrs/base/error.h"

namespace rnbd {
namespace {

constexpr std::string_view first_line = "rnbd-server writers 2";
constexpr std::string_view known_word = "known";
constexpr std::string_view out_word = "out";

// A session's name is a peer's, and any bytes.
std::string as_word(const std::string& name) {
    std::string word = "=";
    for (const char c : name) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte <= ' ' || byte >= 0x7f || c == '%') {
            word += fmt::format("%{:02x}", byte);
        } else {
            word += c;
        }
    }
    return word;
}

std::string from_word(std::string_view word) {
    std::string name;
    for (std::size_t i = 1; i < word.size(); ++i) {
        unsigned byte = 0;
        if (word[i] != '%') {
            name += word[i];
        } else if (std::sscanf(std::string(word.substr(i + 1, 2)).c_str(), "%02x", &byte) == 1) {
            name += static_cast<char>(byte);
            i += 2;
        }
    }
    return name;
}

}  // namespace

WriterFile::WriterFile(rtrs::Reactor& reactor, std::string path)
    : file_(
          reactor, std::move(path), [this] { return text(); },
          [this](std::error_code error) { ended(error); }) {}

std::error_code WriterFile::load() {
    const auto text = file_.read();
    if (!text) {
        return text.error() == std::errc::no_such_file_or_directory ? std::error_code{}
                                                                    : text.error();
    }
    std::istringstream file(*text);
    std::string line;
    if (!std::getline(file, line) || line != first_line) return rtrs::from_errno(EBADMSG);
    bool damaged = false;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string state;
        Writers::Id id = 0;
        std::string medium;
        std::string session;
        std::string export_name;
        words >> state >> std::hex >> id >> medium >> session >> export_name;
        const bool whole = words && id != 0 && (state == known_word || state == out_word);
        damaged = damaged || !whole;
        if (!whole) continue;
        Writers& writers = media_.of(medium);
        Writers::One one{id, from_word(session), export_name};
        if (state == known_word) writers.restore_known(std::move(one));
        if (state == out_word) writers.restore_out(std::move(one));
    }
    return damaged ? rtrs::from_errno(EBADMSG) : std::error_code{};
}

std::string WriterFile::text() const {
    std::string text = fmt::format("{}\n", first_line);
    media_.for_each([&](const std::string& medium, const Writers& writers) {
        const auto add = [&](std::string_view state, const Writers::One& one) {
            text += fmt::format("{} {:016x} {} {} {}\n", state, one.id, medium,
                                as_word(one.session), one.export_name);
        };
        for (const Writers::One& one : writers.known()) add(known_word, one);
        for (const Writers::One& one : writers.out()) add(out_word, one);
    });
    return text;
}

void WriterFile::ended(std::error_code error) {
    if (error && error != logged_error_) {
        logger("rnbd.server")
            .error(
                "{}: {}; a server that is started again may let in a client that was away while "
                "another one wrote",
                path(), error.message());
    }
    logged_error_ = error;
    if (written_) written_();
}

}  // namespace rnbd
