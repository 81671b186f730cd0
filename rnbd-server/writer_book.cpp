#include "rnbd-server/writer_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "daemon/log/log.h"
#include "rnbd-server/storage/state_file.h"
#include "rtrs/base/error.h"

namespace rnbd {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view first_line = "rnbd-server writers 2";
constexpr std::string_view known_word = "known";
constexpr std::string_view out_word = "out";
// A machine that starts opens a thousand volumes at once: one write of the file for all of them.
constexpr rtrs::Duration write_delay = 500ms;
constexpr rtrs::Duration retry_delay = 5s;

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

// Written by two threads: what is older must not take the place of what is newer.
struct WriterBook::File {
    std::error_code write(Ticket its_version, const std::string& text) {
        const std::lock_guard lock(mutex);
        if (its_version <= written) return {};
        const std::error_code error = write_state_file(path, text);
        if (!error) written = its_version;
        return error;
    }

    std::string path;
    WriterBook* book = nullptr;  // the reactor's; null: it is gone
    std::mutex mutex;
    Ticket written = 0;  // guarded by mutex
};

WriterBook::WriterBook(rtrs::Reactor& reactor, std::string path)
    : reactor_(reactor),
      path_(std::move(path)),
      timer_(reactor, this,
             [](void* self) {
                 auto& book = *static_cast<WriterBook*>(self);
                 book.wanted_ = true;
                 if (!book.running_) book.start();
             }),
      file_(std::make_shared<File>()),
      helper_([&reactor](std::function<void()> done) { reactor.post(std::move(done)); }) {
    file_->path = path_;
    file_->book = this;
}

WriterBook::~WriterBook() { file_->book = nullptr; }

std::error_code WriterBook::load() {
    if (path_.empty()) return {};
    const auto text = read_state_file(path_);
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

std::string WriterBook::text() const {
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

void WriterBook::changed() {
    if (path_.empty() || timer_.armed()) return;
    timer_.arm(reactor_.now() + write_delay);
}

WriterBook::Ticket WriterBook::write_now() {
    if (path_.empty()) return 0;
    timer_.disarm();
    wanted_ = true;
    if (running_) return version_ + 1;
    start();
    return version_;
}

void WriterBook::start() {
    wanted_ = false;
    running_ = true;
    const Ticket version = ++version_;
    const auto error = std::make_shared<std::error_code>();
    const auto work = [file = file_, error, version, text = text()] {
        *error = file->write(version, text);
    };
    const auto done = [file = file_, error, version] {
        if (file->book != nullptr) file->book->ended(version, *error);
    };
    if (helper_.run(work, done)) return;
    // Without a thread all wait for it.
    work();
    reactor_.post(done);
}

void WriterBook::ended(Ticket version, std::error_code error) {
    running_ = false;
    done_ = std::max(done_, version);
    if (error && error != logged_error_) {
        logger("rnbd.server")
            .error(
                "{}: {}; a server that is started again may let in a client that was away while "
                "another one wrote",
                path_, error.message());
    }
    logged_error_ = error;
    if (wanted_) {
        start();
    } else if (error && !timer_.armed()) {
        timer_.arm(reactor_.now() + retry_delay);
    }
    if (written_) written_();
}

std::error_code WriterBook::save() {
    if (path_.empty()) return {};
    timer_.disarm();
    const std::error_code error = within(
        last_patience,
        [file = file_, version = ++version_, text = text()] { return file->write(version, text); });
    // It is in the way of the last one.
    if (error == std::errc::timed_out) helper_.abandon();
    done_ = version_;
    return error;
}

}  // namespace rnbd
