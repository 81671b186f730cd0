#include "rnbd-client/writer_numbers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <expected>
#include <iomanip>
#include <sstream>
#include <string_view>

#include "rtrs/base/boot_id.h"
#include "rtrs/base/descriptor.h"
#include "rtrs/base/error.h"
#include "rtrs/base/whole_file.h"

namespace rnbd {
namespace {

// Where it cannot be read (a unit with ProcSubset=pid), the file should be where a boot clears it.
std::string boot() {
    const std::string id = rtrs::boot_id();
    return id.empty() ? "unknown-boot" : id;
}

// The last word of a line, if that is so.
constexpr std::string_view untold_loss = "untold-loss";

constexpr std::string_view first_words = "rnbd-client writers 1 ";

// The folder of sockets belongs to several users, of whom one may put anything at this path. Only a
// regular file of this user, or root, is taken: nothing that waits, as a FIFO, or leads elsewhere.
std::expected<std::string, std::error_code> content_of(const std::string& path) {
    const rtrs::Descriptor file(
        ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
    struct stat about{};
    if (!file || ::fstat(file.get(), &about) != 0) return std::unexpected(rtrs::from_errno(errno));
    if (!S_ISREG(about.st_mode)) return std::unexpected(rtrs::from_errno(EBADMSG));
    if (about.st_uid != 0 && about.st_uid != ::geteuid())
        return std::unexpected(rtrs::from_errno(EPERM));
    return rtrs::read_whole(file.get());
}

std::error_code put(const std::string& path, std::string_view text) {
    // What a kill left there, or somebody else.
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return rtrs::from_errno(errno);
    rtrs::Descriptor file(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!file) return rtrs::from_errno(errno);
    if (const auto error = rtrs::write_whole(file.get(), text)) return error;
    return ::close(file.release()) == 0 ? std::error_code{} : rtrs::from_errno(errno);
}

std::string first_line() { return std::string(first_words) + boot(); }

}  // namespace

std::error_code WriterNumbers::load() {
    const auto content = content_of(path_);
    if (!content)
        return content.error() == std::errc::no_such_file_or_directory ? std::error_code{}
                                                                       : content.error();
    std::istringstream file(*content);
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
    std::error_code error = put(temporary, text.str());
    if (!error && std::rename(temporary.c_str(), path_.c_str()) != 0)
        error = rtrs::from_errno(errno);
    if (error) ::unlink(temporary.c_str());
    return error;
}

}  // namespace rnbd
