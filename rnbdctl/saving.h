// --save: what rnbdctl changed at run time is kept in a file of the daemon's configuration.
#pragma once

#include <expected>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>

#include "rnbdctl/exit_codes.h"

namespace rnbd {

struct Request;

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

// The file's name in the folder of the configuration.
constexpr const char* saved_file_name = "90-rnbdctl.yaml";

// text: what the file has by now. The error is a sentence.
std::expected<std::string, std::string> with_piece(const std::string& text,
                                                   const SavedPiece& piece);

struct Kept {
    // The file.
    std::string path;
    // Whether it says something else than before.
    bool changed = false;
};

// Into the file of the daemon that has carried out the request: whole, or not at all. If the daemon
// finds the configuration wrong with it, the file is as it was. What only is taken out and is not
// there is no reason to write. The error is a sentence.
std::expected<Kept, std::string> keep(const Request& request, const SavedPiece& piece);
// Says where it is.
void say_kept(const Request& request, const SavedPiece& piece, const Kept& kept, std::ostream& out,
              std::ostream& err);
// Both, or says what is wrong.
CtlExit save(const Request& request, const SavedPiece& piece, std::ostream& out, std::ostream& err);

}  // namespace rnbd
