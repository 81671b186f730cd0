// --save: what rnbdctl changed at run time is kept in a file of the daemon's configuration.
#pragma once

#include <expected>
#include <iosfwd>
#include <string>
#include <vector>

#include "rnbdctl/exit_codes.h"
#include "rnbdctl/saved_piece.h"

namespace rnbd {

struct Request;

// The file's name in the folder of the configuration.
constexpr const char* saved_file_name = "90-rnbdctl.yaml";

struct Kept {
    // The file.
    std::string path;
    // Whether it says something else than before.
    bool changed = false;
    // That have left it because nothing in the files uses them any more.
    std::vector<std::string> sessions_gone{};
};

// Into the file of the daemon that has carried out the request: whole, or not at all. If the daemon
// finds the configuration wrong with it, the file is as it was. What only is taken out and is not
// there is no reason to write. The error is a sentence.
std::expected<Kept, std::string> keep(const Request& request, const SavedPiece& piece);
// Whether the files have an object that the daemon does not have; false if it does not answer.
bool only_files_have(const Request& request, const std::string& kind, const std::string& name);
// Says where it is.
void say_kept(const Request& request, const SavedPiece& piece, const Kept& kept, std::ostream& out,
              std::ostream& err);
// That what was done is not kept, and why: a sentence.
std::string say_not_kept(const SavedPiece& piece, const std::string& why);
// Both, or says what is wrong.
CtlExit save(const Request& request, const SavedPiece& piece, std::ostream& out, std::ostream& err);

}  // namespace rnbd
