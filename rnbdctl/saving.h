// --save: keeps what rnbdctl has changed at run time in a file of the daemon's configuration.
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
    // The path of the file.
    std::string path;
    // Whether the content of the file has changed.
    bool changed = false;
    // Sessions that were taken out because nothing in the files uses them any more.
    std::vector<std::string> sessions_gone{};
};

// Writes the piece into the file of the daemon that has carried out the request: completely, or not
// at all. If the daemon then finds an error in the configuration, the file is restored. The file is
// not written if the piece only takes out objects that are not in it. The error is a sentence.
std::expected<Kept, std::string> keep(const Request& request, const SavedPiece& piece);
// Whether the files have an object that the daemon does not have; false if it does not answer.
bool only_files_have(const Request& request, const std::string& kind, const std::string& name);
// Says in which file the piece is kept.
void say_kept(const Request& request, const SavedPiece& piece, const Kept& kept, std::ostream& out,
              std::ostream& err);
// A sentence that says that what was done is not kept, and why.
std::string say_not_kept(const SavedPiece& piece, const std::string& why);
// Does keep() and say_kept(), or says what is wrong.
CtlExit save(const Request& request, const SavedPiece& piece, std::ostream& out, std::ostream& err);

}  // namespace rnbd
