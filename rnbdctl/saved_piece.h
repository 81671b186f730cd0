// What --save keeps, and the text of the file that it is kept in.
//
// THREAD: any one.
#pragma once

#include <expected>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "daemon/config/reader.h"

namespace rnbd {

// Part of a configuration.
struct SavedPiece {
    // {"devices": [{"name": ..., ...}]}: put in, in the place of those of the same names; but a
    // session with the same paths stays as the file has it.
    nlohmann::json put = nlohmann::json::object();
    // {"devices": ["vol1"]}: taken out.
    nlohmann::json take = nlohmann::json::object();
    // {"session": "host-a", "policy": ..., "add_paths": [...]} or {"export": "vol1", "size": ...}:
    // how an object of any file is now: one of this file is changed where it stands, unless another
    // file amends it. A path that is added is removed no longer, and the other way round. An object
    // that is put in or taken out loses what was amended.
    nlohmann::json amend = nullptr;
};

// "rdma:SOURCE@HOST:PORT", as daemons name a path, however it is written: an element of `paths`, or
// of remove_paths, which is text.
std::string label_of_path(const nlohmann::json& path);

// "session" or "export".
const char* kind_amended(const nlohmann::json& amendment);

// What has to be known of the other files of the configuration.
struct Elsewhere {
    // Asked of a session of this file when the last device here that was on it has gone. True: the
    // session goes, too.
    std::function<bool(const std::string& session)> may_leave = [](const auto&) { return true; };
    // Whether another file amends the "session" or "export". That would count over what is said
    // where the object stands.
    std::function<bool(const std::string& kind, const std::string& name)> amends =
        [](const auto&, const auto&) { return false; };
};

// text: what the file has by now. The error is a sentence.
std::expected<std::string, std::string> with_piece(const std::string& text, const SavedPiece& piece,
                                                   const Elsewhere& elsewhere = {});

// Whether a file of the configuration amends the "session" or "export"; whether a device or an
// amendment there names the session. What cannot be parsed may do so.
bool amends(const ConfigSource& file, const std::string& kind, const std::string& name);
bool names_session(const ConfigSource& file, const std::string& session);

}  // namespace rnbd
