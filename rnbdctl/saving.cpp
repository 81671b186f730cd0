#include "rnbdctl/saving.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ostream>
#include <thread>
#include <utility>

#include "daemon/config/files.h"
#include "daemon/control/client.h"
#include "rnbdctl/member_text.h"
#include "rnbdctl/request.h"
#include "rnbdctl/trusted_path.h"
#include "rnbdctl/units.h"
#include "rtrs/base/descriptor.h"
#include "rtrs/base/whole_file.h"

namespace rnbd {
namespace {

using nlohmann::json;

std::unexpected<std::string> failed(const std::string& what, int error) {
    return std::unexpected(what + ": " + std::strerror(error));
}

std::expected<void, std::string> make_folder(const std::string& folder, const struct stat& like) {
    if (::mkdir(folder.c_str(), 0700) != 0)
        return errno == EEXIST ? std::expected<void, std::string>{} : failed(folder, errno);
    // Who may read the configuration may read its folder.
    const mode_t readers = like.st_mode & 0444;
    if (::chown(folder.c_str(), like.st_uid, like.st_gid) != 0 ||
        ::chmod(folder.c_str(), 0700 | readers | readers >> 2) != 0)
        return failed(folder, errno);
    return {};
}

// A link that the administrator has put there stays: what it leads to is written.
std::expected<std::string, std::string> behind_links(const std::string& path) {
    struct stat status{};
    if (::lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) return path;
    const std::unique_ptr<char, decltype(&std::free)> found(::realpath(path.c_str(), nullptr),
                                                            &std::free);
    if (!found) return failed(path + ": where the link leads", errno);
    return found.get();
}

// The file is whole at any time, also if the machine stops in between.
std::expected<void, std::string> write_whole(const std::string& path, const std::string& text,
                                             const struct stat& like) {
    const auto slash = path.rfind('/');
    const std::string folder = path.substr(0, slash);
    // Daemons pass over what begins with a dot.
    const std::string fresh = fmt::format("{}/.{}.new", folder, path.substr(slash + 1));
    // Of one that was ended in between.
    ::unlink(fresh.c_str());
    const rtrs::Descriptor file(
        ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file) return failed(fresh, errno);
    const auto abandon = [&](int error) {
        ::unlink(fresh.c_str());
        return failed(path, error);
    };
    if (const auto error = rtrs::write_whole(file.get(), text)) return abandon(error.value());
    if (::fchown(file.get(), like.st_uid, like.st_gid) != 0 ||
        ::fchmod(file.get(), like.st_mode & 0777) != 0 || ::fsync(file.get()) != 0 ||
        ::rename(fresh.c_str(), path.c_str()) != 0)
        return abandon(errno);
    const rtrs::Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory || ::fsync(directory.get()) != 0) return failed(folder, errno);
    return {};
}

// Between reading the file and writing it anew nobody else may: what that one keeps would be lost.
// configuration: the daemon's, which is there whether or not its folder is.
std::expected<void, std::string> lock_saving(const rtrs::Descriptor& configuration,
                                             const Request& request) {
    constexpr std::chrono::milliseconds look_interval{10};
    const auto deadline = std::chrono::steady_clock::now() + request.timeout;
    while (::flock(configuration.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) return failed("flock", errno);
        if (std::chrono::steady_clock::now() >= deadline)
            return std::unexpected("another rnbdctl --save does not end");
        std::this_thread::sleep_for(look_interval);
    }
    return {};
}

std::expected<json, std::string> check(const Request& request, uid_t* daemon_user = nullptr) {
    auto answer = control_call({.socket_path = request.sockets.front(),
                                .timeout = request.timeout,
                                .daemon_user = daemon_user},
                               "config_check", json::object());
    if (!answer) return std::unexpected(answer.error().message);
    return std::move(*answer);
}

// What is wrong with the configuration; empty: nothing.
std::string errors_of(const json& checked) {
    std::string text;
    for (const json& error : members::elements(checked, "errors"))
        text += fmt::format(
            "{}{}{}: {}{}{}", text.empty() ? "" : "; ", members::word(error, "file"),
            members::word(error, "line") == "0" ? "" : ":" + members::word(error, "line"),
            members::word(error, "key"), members::word(error, "key").empty() ? "" : ": ",
            members::word(error, "text"));
    return text;
}

// What is amended, if no file has it: the daemon passes over that with a warning. Empty: one has.
std::string amends_nothing(const json& checked, const SavedPiece& piece) {
    if (piece.amend.is_null()) return "";
    const std::string kind = kind_amended(piece.amend);
    const std::string name = piece.amend.value(kind, "");
    const std::string found = fmt::format("found \"{}\", which is no {} of any file", name, kind);
    for (const json& warning : members::elements(checked, "warnings")) {
        if (members::word(warning, "file").ends_with(std::string("/") + saved_file_name) &&
            members::word(warning, "text").starts_with(terminal_text(found)))
            return fmt::format("{} {} is in no file of the configuration", kind, name);
    }
    return "";
}

// With the piece in its file; empty: nothing.
std::string what_is_wrong(const Request& request, const SavedPiece& piece) {
    const auto checked = check(request);
    if (!checked) return checked.error();
    const std::string wrong = errors_of(*checked);
    return wrong.empty() ? amends_nothing(*checked, piece) : wrong;
}

// The daemon has named the file, and may be another user's, or somebody else in its place, who must
// not lead root anywhere. Empty: it may be written.
std::string not_for_root(uid_t daemon_user, const std::string& file, const std::string& saved) {
    if (::geteuid() != 0 || daemon_user == 0) return "";
    for (const std::string& path : {file, saved}) {
        if (const std::string who = changed_by_others(path); !who.empty())
            return "not written by root: " + who + "; run rnbdctl as the user whose files they are";
    }
    return "";
}

bool only_takes(const SavedPiece& piece) { return piece.put.empty() && piece.amend.is_null(); }

// The files beside the one that --save writes; what one says that cannot be read is not known.
// gone: gets the sessions that may leave.
Elsewhere others(const std::string& file, const std::string& own, std::vector<std::string>& gone) {
    auto files = read_config_files(file, PipeEnd::not_awaited);
    std::erase_if(files.sources, [&](const ConfigSource& one) { return one.file == own; });
    const auto any = [files = std::move(files)](const auto& says) {
        return !files.errors.empty() || std::ranges::any_of(files.sources, says);
    };
    Elsewhere elsewhere;
    elsewhere.may_leave = [any, &gone](const std::string& session) {
        if (any([&](const ConfigSource& one) { return names_session(one, session); })) return false;
        gone.push_back(session);
        return true;
    };
    elsewhere.has_session = [any](const std::string& session) {
        return any([&](const ConfigSource& one) { return has_session(one, session); });
    };
    elsewhere.amends = [any](const std::string& kind, const std::string& name) {
        return any([&](const ConfigSource& one) { return amends(one, kind, name); });
    };
    return elsewhere;
}

// What the files say and the daemon does not do; nothing if it does not answer.
json differences(const Request& request) {
    auto answer = control_call({.socket_path = request.sockets.front(), .timeout = request.timeout},
                               "config_diff", json::object());
    return answer ? members::elements(*answer, "objects") : json::array();
}

// Whether the next config apply makes it.
bool is_added(const json& object, const std::string& kind, const json& name) {
    return members::word(object, "object") == kind && name == members::word(object, "name") &&
           members::word(object, "change") == "added";
}

// What was taken out, and the configuration would have all the same; empty: nothing.
std::string comes_back(const json& objects, const SavedPiece& piece) {
    for (const json& object : objects) {
        const std::string kind = members::word(object, "object");
        const auto names = piece.take.find(kind + "s");
        if (names == piece.take.end()) continue;
        for (const json& name : *names) {
            if (is_added(object, kind, name)) return kind + " " + members::word(object, "name");
        }
    }
    return "";
}

// A session that has left the file, and what the daemon does with it, if it has it.
void say_gone(const Request& request, const json& objects, const std::string& session,
              std::ostream& out, std::ostream& err) {
    const auto runs = std::ranges::find_if(objects, [&](const json& one) {
        return members::word(one, "object") == "session" &&
               members::word(one, "name") == terminal_text(session) &&
               members::word(one, "change") == "removed";
    });
    const bool stays = runs != objects.end();
    if (request.output == Output::text)
        out << "with session " << terminal_text(session) << ", which no file names any more"
            << (stays ? "; it runs until the next config apply" : "") << "\n";
    // That is refused as a whole then, whatever else the files say.
    if (const std::string conflict = stays ? members::word(*runs, "conflict") : "";
        !conflict.empty())
        err << "rnbdctl: the next config apply is refused as long as session "
            << terminal_text(session) << " is in use: " << conflict << "\n";
}

}  // namespace

std::expected<Kept, std::string> keep(const Request& request, const SavedPiece& piece) {
    auto daemon_user = static_cast<uid_t>(-1);
    const auto described = check(request, &daemon_user);
    if (!described) return std::unexpected(described.error());
    const std::string file = described->value("file", "");
    const std::string folder = config_folder_of(file);
    const std::string path = folder + "/" + saved_file_name;
    if (std::string why = not_for_root(daemon_user, file, path); !why.empty())
        return std::unexpected(std::move(why));
    const rtrs::Descriptor configuration(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat like{};
    if (!configuration || ::fstat(configuration.get(), &like) != 0) return failed(file, errno);
    if (const auto locked = lock_saving(configuration, request); !locked)
        return std::unexpected(locked.error());
    const auto written_to = behind_links(path);
    if (!written_to) return std::unexpected(written_to.error());
    const bool there = ::access(path.c_str(), F_OK) == 0;
    const auto known = there ? read_config_file(path, PipeEnd::not_awaited) : std::string();
    if (!known) return std::unexpected(to_string(known.error()));
    Kept kept{.path = path};
    const Elsewhere elsewhere = others(file, path, kept.sessions_gone);
    const auto text = with_piece(*known, piece, elsewhere);
    if (!text) return std::unexpected(path + ": " + text.error());
    kept.changed = text != with_piece(*known, {}, elsewhere);
    if (!kept.changed && only_takes(piece)) return kept;
    const auto before = check(request);
    if (!before) return std::unexpected(before.error());
    if (const std::string wrong = errors_of(*before); !wrong.empty())
        return std::unexpected("the configuration is wrong already: " + wrong);
    if (const auto made = make_folder(folder, like); !made) return std::unexpected(made.error());
    if (const auto written = write_whole(*written_to, *text, like); !written)
        return std::unexpected(written.error());
    const std::string wrong = what_is_wrong(request, piece);
    if (wrong.empty()) return kept;
    if (!there)
        ::unlink(path.c_str());
    else if (const auto back = write_whole(*written_to, *known, like); !back)
        return std::unexpected(wrong + "; and " + back.error());
    return std::unexpected(wrong);
}

bool only_files_have(const Request& request, const std::string& kind, const std::string& name) {
    return std::ranges::any_of(differences(request), [&](const json& object) {
        return is_added(object, kind, terminal_text(name));
    });
}

void say_kept(const Request& request, const SavedPiece& piece, const Kept& kept, std::ostream& out,
              std::ostream& err) {
    const bool leaves = !piece.take.empty() || !kept.sessions_gone.empty();
    const json objects = leaves ? differences(request) : json::array();
    if (const auto back = comes_back(objects, piece); !back.empty()) {
        err << "rnbdctl: " << terminal_text(back)
            << ": another file of the configuration has it, and it comes back with the next config "
               "apply or start; take it out there\n";
        return;
    }
    if (request.output == Output::text) {
        const char* const done = !only_takes(piece) ? "kept in "
                                 : kept.changed     ? "taken out of "
                                                    : "it was not in ";
        out << done << terminal_text(kept.path) << "\n";
    }
    for (const std::string& session : kept.sessions_gone)
        say_gone(request, objects, session, out, err);
}

std::string say_not_kept(const SavedPiece& piece, const std::string& why) {
    return fmt::format("it is done, but not {}: {}", only_takes(piece) ? "forgotten" : "kept",
                       terminal_text(why));
}

CtlExit save(const Request& request, const SavedPiece& piece, std::ostream& out,
             std::ostream& err) {
    const auto kept = keep(request, piece);
    if (!kept) {
        err << "rnbdctl: " << say_not_kept(piece, kept.error()) << "\n";
        return CtlExit::failed;
    }
    say_kept(request, piece, *kept, out, err);
    return CtlExit::ok;
}

}  // namespace rnbd
