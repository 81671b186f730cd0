// What a command line asks for, once it is understood.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rnbdctl/exit_codes.h"
#include "rnbdctl/saving.h"

namespace rnbd {

enum class Output : std::uint8_t { text, json };
// Whose command it is.
enum class Daemon : std::uint8_t { both, server, client };

struct Request {
    using View = std::string (*)(const nlohmann::json&);
    // What happens with the answers.
    enum class Course : std::uint8_t {
        once,   // ask, show, end
        drain,  // ask until nothing is left to drain
        watch,  // ask again and again, show what came in between
        top,    // the same, on one screen, the busiest first
        local,  // `text` is the answer, no daemon is asked
    };

    // As it was typed, written out ("paths add"), and whose it is.
    std::string words;
    Daemon of = Daemon::both;
    std::string command;
    // Of these arguments a message of the daemon calls the first, this rnbdctl the second.
    std::vector<std::pair<std::string, std::string>> options;
    nlohmann::json arguments = nlohmann::json::object();
    View view = nullptr;
    // What an answer means for the exit code; null: success.
    using Judge = CtlExit (*)(const nlohmann::json&);
    Judge judge = nullptr;
    // What it names is of one of the daemons, whichever: that the other has not got it is no error.
    bool of_one = false;
    // What the user may look at if something that was named is not there, or is in use. Empty: the
    // daemon's message says all.
    std::string absent_hint = "rnbdctl status shows what there is";
    std::string in_use_hint = "rnbdctl status shows what is in use";
    // The same if it failed, and if no answer came in time.
    std::string failed_hint = "the daemon's log says more";
    std::string late_hint = "rnbdctl status shows how far it is";
    // --save: what of the configuration an answer stands for; null: nothing is kept.
    std::function<SavedPiece(const nlohmann::json& answer)> saved;
    // The same if the daemon answers that it goes on with what could not be done in time.
    std::optional<SavedPiece> saved_while_it_goes_on{};
    // --save of a removal: what it takes out is forgotten, too, if it is gone in another way.
    struct Forgetting {
        SavedPiece piece;
        // What the daemon answers to a removal that succeeds.
        nlohmann::json gone;
        // A question that it refuses with not_found if it does not have the object; empty: none.
        std::string command;
        nlohmann::json arguments;
        // Of a piece that amends: kind and name of what the files have to have.
        std::string kind{};
        std::string name{};
    };
    std::optional<Forgetting> forgetting{};
    Course course = Course::once;
    std::string text;
    // watch, top: between two questions; rounds: none is for ever.
    std::chrono::nanoseconds interval{};
    std::optional<std::uint32_t> rounds;
    // Sockets to ask, in order.
    std::vector<std::string> sockets;
    // Whether a socket that does not exist is passed over, if another one answers. watch, top: and
    // a daemon that is away, until it is there again.
    enum class Absent : std::uint8_t { is_an_error, is_skipped };
    Absent absent = Absent::is_an_error;
    Output output = Output::text;
    std::chrono::nanoseconds timeout{};
};

}  // namespace rnbd
