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
    // {"devices": [{"name": ..., ...}]}: put in, in the place of those of the same names.
    nlohmann::json put = nlohmann::json::object();
    // {"devices": ["vol1"]}: taken out.
    nlohmann::json take = nlohmann::json::object();
    // {"session": "host-a", "policy": ..., "add_paths": [...]} or {"export": "vol1", "size": ...}:
    // how an object of any file is now. A path that is added is removed no longer, and the other
    // way round. An object that is put in or taken out loses what was amended.
    nlohmann::json amend = nullptr;
};

// "session" or "export".
const char* kind_amended(const nlohmann::json& amendment);

// Asked of a session of the file when the last device there that was on it has gone. True: the
// session goes, too, and what was amended of it.
using MayLeave = std::function<bool(const std::string& session)>;

// text: what the file has by now. The error is a sentence.
std::expected<std::string, std::string> with_piece(
    const std::string& text, const SavedPiece& piece,
    const MayLeave& may_leave = [](const std::string&) { return true; });

// Whether a device or an amendment of this file of a configuration names the session. What cannot
// be parsed may name any.
bool names_session(const ConfigSource& file, const std::string& session);

}  // namespace rnbd
