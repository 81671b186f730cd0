// A command line in its parsed form: what it asks for.
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
// The daemon that a command is for.
enum class Daemon : std::uint8_t { both, server, client };

struct Request {
    using View = std::string (*)(const nlohmann::json&);
    // What is done with the answers.
    enum class Course : std::uint8_t {
        once,   // ask, show, end
        drain,  // ask until nothing is left to drain
        watch,  // ask repeatedly, show what happened in between
        top,    // the same, on one screen, the busiest first
        local,  // `text` is the answer, no daemon is asked
    };

    // The words of the command in full ("paths add"), and the daemon that it is for.
    std::string words;
    Daemon of = Daemon::both;
    std::string command;
    // Names of arguments: first as a message of the daemon calls them, second as rnbdctl does.
    std::vector<std::pair<std::string, std::string>> options;
    nlohmann::json arguments = nlohmann::json::object();
    View view = nullptr;
    // Derives the exit code from an answer; null: success.
    using Judge = CtlExit (*)(const nlohmann::json&);
    Judge judge = nullptr;
    // The object that it names belongs to either one of the daemons: it is no error if the other
    // does not have it.
    bool of_one = false;
    // What the user can look at if an object that was named does not exist, or is in use. Empty:
    // the daemon's message says everything.
    std::string absent_hint = "rnbdctl status shows what there is";
    std::string in_use_hint = "rnbdctl status shows what is in use";
    // The same for a command that has failed, and for one without an answer in time.
    std::string failed_hint = "the daemon's log says more";
    std::string late_hint = "rnbdctl status shows how far it is";
    // --save: the part of a configuration that an answer stands for; null: nothing is kept.
    std::function<SavedPiece(const nlohmann::json& answer)> saved;
    // The same if the daemon answers that it goes on with what could not be done in time.
    std::optional<SavedPiece> saved_while_it_goes_on{};
    // --save of a removal: the piece is also taken out of the file if the object has gone in
    // another way.
    struct Forgetting {
        SavedPiece piece;
        // What the daemon answers to a removal that succeeds.
        nlohmann::json gone;
        // A question that the daemon refuses with not_found if it does not have the object; empty:
        // there is no such question.
        std::string command;
        nlohmann::json arguments;
        // For a piece that amends: kind and name of the object that the files must have.
        std::string kind{};
        std::string name{};
    };
    std::optional<Forgetting> forgetting{};
    Course course = Course::once;
    std::string text;
    // watch, top: the time between two questions, and the number of rounds; none: for ever.
    std::chrono::nanoseconds interval{};
    std::optional<std::uint32_t> rounds;
    // The sockets to ask, in order.
    std::vector<std::string> sockets;
    // Whether a socket that does not exist is skipped if another one answers. With watch and top, a
    // daemon that is away is skipped, too, until it is back.
    enum class Absent : std::uint8_t { is_an_error, is_skipped };
    Absent absent = Absent::is_an_error;
    Output output = Output::text;
    std::chrono::nanoseconds timeout{};
};

}  // namespace rnbd
