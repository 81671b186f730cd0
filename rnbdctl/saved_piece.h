// The pieces of configuration that --save keeps, and the text of the file that has them.
//
// THREAD: any.
#pragma once

#include <expected>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "daemon/config/reader.h"

namespace rnbd {

// A part of a configuration.
struct SavedPiece {
    // {"devices": [{"name": ..., ...}]}: objects that are put in, and replace those of the same
    // names; but a session with the same paths stays as the file has it, and one that another file
    // has stays there alone.
    nlohmann::json put = nlohmann::json::object();
    // {"devices": ["vol1"]}: objects that are taken out.
    nlohmann::json take = nlohmann::json::object();
    // {"session": "host-a", "policy": ..., "add_paths": [...]} or {"export": "vol1", "size": ...}:
    // the present state of an object of any file. An object of this file is changed in place,
    // unless another file amends it. A path that is added is no longer listed as removed, and the
    // reverse. An object that is put in or taken out loses its amendments.
    nlohmann::json amend = nullptr;
};

// The name of a path as daemons write it: "rdma:SOURCE@HOST:PORT". path: an element of `paths`, or
// of remove_paths, which is text.
std::string label_of_path(const nlohmann::json& path);

// "session" or "export".
const char* kind_amended(const nlohmann::json& amendment);

// What has to be known about the other files of the configuration.
struct Elsewhere {
    // Called for a session of this file when its last device in this file has gone. True: the
    // session is taken out, too.
    std::function<bool(const std::string& session)> may_leave = [](const auto&) { return true; };
    // Whether another file has the session: a second one of its name would be an error.
    std::function<bool(const std::string& session)> has_session = [](const auto&) { return false; };
    // Whether another file amends the "session" or "export". Such an amendment would override what
    // the object itself says.
    std::function<bool(const std::string& kind, const std::string& name)> amends =
        [](const auto&, const auto&) { return false; };
};

// The text of the file with the piece. text: the present content. The error is a sentence.
std::expected<std::string, std::string> with_piece(const std::string& text, const SavedPiece& piece,
                                                   const Elsewhere& elsewhere = {});

// amends(): whether the file amends the "session" or "export". has_session(): whether it has the
// session. names_session(): whether a device or an amendment in the file names the session. All are
// true for a file that cannot be parsed.
bool amends(const ConfigSource& file, const std::string& kind, const std::string& name);
bool has_session(const ConfigSource& file, const std::string& session);
bool names_session(const ConfigSource& file, const std::string& session);

}  // namespace rnbd
