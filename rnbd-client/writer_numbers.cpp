#include "rnbd-client/writer_numbers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <string_view>

#include "rtrs/base/error.h"

namespace rnbd {
namespace {

// Where it cannot be read (a unit with ProcSubset=pid), the file should be where a boot clears it.
std::string boot() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    return file >> id ? id : "unknown-boot";
}

// The last word of a line, if that is so.
constexpr std::string_view untold_loss = "untold-loss";

constexpr std::string_view first_words = "rnbd-client writers 1 ";

std::string first_line() { return std::string(first_words) + boot(); }

}  // namespace

std::error_code WriterNumbers::load() {
    std::ifstream file(path_);
    if (!file) return errno == ENOENT ? std::error_code{} : rtrs::from_errno(errno);
    std::string line;
    if (!std::getline(file, line) || !line.starts_with(first_words)) {
        return rtrs::from_errno(EBADMSG);
    }
    if (line != first_line()) return {};  // of another boot
    bool damaged = false;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        Life life;
        std::string session;
        std::string volume;
        std::string uuid;
        words >> std::hex >> life.number >> std::quoted(session) >> std::quoted(volume) >>
            life.epoch >> uuid >> life.medium.life >> life.medium.number;
        if (!words) {
            damaged = true;
            continue;
        }
        std::string last;
        life.untold_loss = words >> last && last == untold_loss;
        life.medium.uuid = parse_uuid(uuid).value_or(Uuid{});
        numbers_[{session, volume}] = life;
    }
    return damaged ? rtrs::from_errno(EBADMSG) : std::error_code{};
}

WriterNumbers::Life WriterNumbers::former(const std::string& session,
                                          const std::string& volume) const {
    const auto found = numbers_.find({session, volume});
    return found == numbers_.end() ? Life{} : found->second;
}

bool WriterNumbers::keep(const std::string& session, const std::string& volume, const Life& life) {
    return std::exchange(numbers_[{session, volume}], life) != life;
}

bool WriterNumbers::forget(const std::string& session, const std::string& volume) {
    return numbers_.erase({session, volume}) > 0;
}

// Not synchronized: it has to outlive this process, not the machine's boot.
std::error_code WriterNumbers::write() const {
    if (numbers_.empty()) {
        const bool gone = ::unlink(path_.c_str()) == 0 || errno == ENOENT;
        return gone ? std::error_code{} : rtrs::from_errno(errno);
    }
    std::ostringstream text;
    text << first_line() << '\n';
    for (const auto& [name, life] : numbers_) {
        text << fmt::format("{:016x} ", life.number) << std::quoted(name.first) << ' '
             << std::quoted(name.second)
             << fmt::format(" {:016x} {} {:x} {:x}", life.epoch,
                            life.medium.uuid == Uuid{} ? "-" : to_text(life.medium.uuid),
                            life.medium.life, life.medium.number)
             << (life.untold_loss ? ' ' + std::string(untold_loss) : "") << '\n';
    }
    const std::string temporary = path_ + ".new";
    std::ofstream file(temporary, std::ios::trunc);
    file << text.str();
    file.close();
    if (!file) return rtrs::from_errno(errno != 0 ? errno : EIO);
    if (std::rename(temporary.c_str(), path_.c_str()) != 0) return rtrs::from_errno(errno);
    return {};
}

}  // namespace rnbd
