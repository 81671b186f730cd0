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
#include <cstring>
#include <expected>
#include <ostream>
#include <thread>

#include "daemon/config/files.h"
#include "daemon/control/client.h"
#include "rnbdctl/members.h"
#include "rnbdctl/request.h"
#include "rnbdctl/units.h"
#include "rtrs/base/descriptor.h"

namespace rnbd {
namespace {

using nlohmann::json;

constexpr const char* head =
    "# What rnbdctl --save keeps: one JSON object, which is YAML, too. rnbdctl writes it anew.\n";

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

// The file is whole at any time, also if the machine stops in between.
std::expected<void, std::string> write_whole(const std::string& folder, const std::string& text,
                                             const struct stat& like) {
    const std::string path = folder + "/" + saved_file_name;
    // Daemons pass over what begins with a dot.
    const std::string fresh = fmt::format("{}/.{}.new", folder, saved_file_name);
    // Of one that was ended in between.
    ::unlink(fresh.c_str());
    const rtrs::Descriptor file(
        ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file) return failed(fresh, errno);
    const auto abandon = [&](int error) {
        ::unlink(fresh.c_str());
        return failed(path, error);
    };
    for (std::size_t written = 0; written < text.size();) {
        const ssize_t bytes = ::write(file.get(), text.data() + written, text.size() - written);
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0) return abandon(errno);
        written += static_cast<std::size_t>(bytes);
    }
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

std::expected<json, std::string> check(const Request& request) {
    auto answer = control_call({.socket_path = request.sockets.front(), .timeout = request.timeout},
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

// "rdma:SOURCE@HOST:PORT": what remove_paths says for an element of add_paths.
std::string label_of(const json& path) {
    const std::string rdma = members::word(path, "rdma");
    return rdma.empty() ? members::word(path, "tcp") : "rdma:" + rdma;
}

void drop_path(json& amendment, const std::string& label) {
    for (const char* const list : {"add_paths", "remove_paths"}) {
        const auto found = amendment.find(list);
        if (found == amendment.end() || !found->is_array()) continue;
        std::erase_if(found->get_ref<json::array_t&>(), [&](const json& one) {
            return one.is_string() ? one == label : one.is_object() && label_of(one) == label;
        });
        if (found->empty()) amendment.erase(found);
    }
}

const char* kind_amended(const json& amendment) {
    return amendment.contains("session") ? "session" : "export";
}

void amend(json& config, const json& wanted) {
    const char* const kind = kind_amended(wanted);
    json& all = config["amend"];
    if (!all.is_array()) all = json::array();
    auto found = std::ranges::find_if(all, [&](const json& one) {
        return one.is_object() && one.value(kind, json()) == wanted[kind];
    });
    if (found == all.end()) found = all.insert(all.end(), json{{kind, wanted[kind]}});
    for (const auto& [key, value] : wanted.items()) {
        if (key != "add_paths" && key != "remove_paths") {
            (*found)[key] = value;
            continue;
        }
        for (const json& path : value) {
            drop_path(*found, path.is_string() ? path.get<std::string>() : label_of(path));
            (*found)[key].push_back(path);
        }
    }
}

void drop_amendment(json& config, const std::string& list, const json& name) {
    const auto all = config.find("amend");
    if (all == config.end() || !all->is_array() || (list != "sessions" && list != "exports"))
        return;
    const std::string kind = list.substr(0, list.size() - 1);
    std::erase_if(all->get_ref<json::array_t&>(), [&](const json& one) {
        return one.is_object() && one.value(kind, json()) == name;
    });
    if (all->empty()) config.erase(all);
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

bool only_takes(const SavedPiece& piece) { return piece.put.empty() && piece.amend.is_null(); }

// What was taken out, and the configuration would have all the same; empty: nothing.
std::string comes_back(const Request& request, const SavedPiece& piece) {
    if (piece.take.empty()) return "";
    const auto answer =
        control_call({.socket_path = request.sockets.front(), .timeout = request.timeout},
                     "config_diff", json::object());
    if (!answer) return "";
    for (const json& object : members::elements(*answer, "objects")) {
        const std::string list = members::word(object, "object") + "s";
        const auto names = piece.take.find(list);
        if (names == piece.take.end() || members::word(object, "change") != "added") continue;
        for (const json& name : *names) {
            if (name == members::word(object, "name")) {
                return members::word(object, "object") + " " + members::word(object, "name");
            }
        }
    }
    return "";
}

}  // namespace

std::expected<std::string, std::string> with_piece(const std::string& text,
                                                   const SavedPiece& piece) {
    std::string_view left = text;
    while (left.starts_with('#')) {
        const auto end = left.find('\n');
        left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
    }
    json config = left.empty() ? json::object() : json::parse(left, nullptr, false);
    if (!config.is_object())
        return std::unexpected(
            "it is not as rnbdctl writes it; move what it says into another file");
    const auto drop = [&](const std::string& list, const json& name) {
        const auto found = config.find(list);
        if (found == config.end() || !found->is_array()) return;
        std::erase_if(found->get_ref<json::array_t&>(), [&](const json& one) {
            return one.is_object() && one.value("name", json()) == name;
        });
        if (found->empty()) config.erase(found);
    };
    for (const auto& [list, names] : piece.take.items()) {
        for (const json& name : names) {
            drop(list, name);
            // Also of what another file has: when that goes, too, nothing may be left of it here.
            drop_amendment(config, list, name);
        }
    }
    for (const auto& [list, elements] : piece.put.items()) {
        for (const json& element : elements) {
            const json name = element.value("name", json());
            drop(list, name);
            // Perhaps of a former one of this name, which is gone.
            drop_amendment(config, list, name);
            config[list].push_back(element);
        }
    }
    if (!piece.amend.is_null()) amend(config, piece.amend);
    return head + config.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::expected<Kept, std::string> keep(const Request& request, const SavedPiece& piece) {
    const auto described = check(request);
    if (!described) return std::unexpected(described.error());
    const std::string file = described->value("file", "");
    const rtrs::Descriptor configuration(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat like{};
    if (!configuration || ::fstat(configuration.get(), &like) != 0) return failed(file, errno);
    if (const auto locked = lock_saving(configuration, request); !locked)
        return std::unexpected(locked.error());
    const std::string folder = config_folder_of(file);
    const std::string path = folder + "/" + saved_file_name;
    const bool there = ::access(path.c_str(), F_OK) == 0;
    const auto known = there ? read_config_file(path, PipeEnd::not_awaited) : std::string();
    if (!known) return std::unexpected(to_string(known.error()));
    const auto text = with_piece(*known, piece);
    if (!text) return std::unexpected(path + ": " + text.error());
    const bool changed = text != with_piece(*known, {});
    if (!changed && only_takes(piece)) return Kept{path, changed};
    const auto before = check(request);
    if (!before) return std::unexpected(before.error());
    if (const std::string wrong = errors_of(*before); !wrong.empty())
        return std::unexpected("the configuration is wrong already: " + wrong);
    if (const auto made = make_folder(folder, like); !made) return std::unexpected(made.error());
    if (const auto written = write_whole(folder, *text, like); !written)
        return std::unexpected(written.error());
    const std::string wrong = what_is_wrong(request, piece);
    if (wrong.empty()) return Kept{path, changed};
    if (!there)
        ::unlink(path.c_str());
    else if (const auto back = write_whole(folder, *known, like); !back)
        return std::unexpected(wrong + "; and " + back.error());
    return std::unexpected(wrong);
}

void say_kept(const Request& request, const SavedPiece& piece, const Kept& kept, std::ostream& out,
              std::ostream& err) {
    if (const auto back = comes_back(request, piece); !back.empty()) {
        err << "rnbdctl: " << terminal_text(back)
            << ": another file of the configuration has it, and it comes back with the next config "
               "apply or start; take it out there\n";
        return;
    }
    if (request.output != Output::text) return;
    const char* const done = !only_takes(piece) ? "kept in "
                             : kept.changed     ? "taken out of "
                                                : "it was not in ";
    out << done << terminal_text(kept.path) << "\n";
}

CtlExit save(const Request& request, const SavedPiece& piece, std::ostream& out,
             std::ostream& err) {
    const auto kept = keep(request, piece);
    if (!kept) {
        err << "rnbdctl: it is done, but not " << (only_takes(piece) ? "forgotten" : "kept") << ": "
            << terminal_text(kept.error()) << "\n";
        return CtlExit::failed;
    }
    say_kept(request, piece, *kept, out, err);
    return CtlExit::ok;
}

}  // namespace rnbd
