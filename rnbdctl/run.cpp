#include "rnbdctl/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string_view>
#include <vector>

#include "daemon/command_line_complaint.h"
#include "daemon/utf8.h"
#include "rnbdctl/abbreviations.h"
#include "rnbdctl/ask_daemons.h"
#include "rnbdctl/command_tree.h"
#include "rnbdctl/completion.h"
#include "rnbdctl/exit_codes.h"
#include "rnbdctl/units.h"

namespace rnbd {
namespace {

using Words = std::vector<std::string>;

// What is wrong with the words themselves, told as what is wrong with an answer.
class Complaints {
  public:
    Complaints(const Words& words, std::ostream& out, std::ostream& err)
        : out_(out), err_(err), as_json_(std::ranges::find(words, "--json") != words.end()) {}
    int usage(const std::string& text) {
        if (as_json_) {
            out_ << failure_line(to_string(ControlError::bad_arguments), text);
        } else {
            err_ << "rnbdctl: " << terminal_text(text) << "\n";
        }
        return static_cast<int>(CtlExit::usage);
    }

  private:
    std::ostream& out_;
    std::ostream& err_;
    bool as_json_;
};

// Returns an exit code if there is nothing to ask a daemon.
std::optional<int> parse(CommandTree& tree, Words words, Complaints& complaints, std::ostream& out,
                         std::ostream& err) {
    auto written_out = write_out(tree, std::move(words));
    if (!written_out) return complaints.usage(written_out.error());
    CLI::App& app = tree.app();
    try {
        app.parse(words_to_parse(std::move(*written_out)));
        if (app.get_subcommands().empty()) throw CLI::RequiredError("A command");
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() != 0) return complaints.usage(command_line_complaint(app, error));
        app.exit(error, out, err);  // prints help or version
        return static_cast<int>(CtlExit::ok);
    }
    const Options& options = tree.options();
    const Daemon daemon = tree.asked();
    if ((options.server && daemon == Daemon::client) ||
        (options.client && daemon == Daemon::server)) {
        return complaints.usage(fmt::format(
            "{}{} is a command of {}: leave --{} out", app.get_subcommands().front()->get_name(),
            options.remote ? " --remote" : "",
            daemon == Daemon::client ? "rnbd-client" : "rnbd-server",
            options.server ? "server" : "client"));
    }
    return std::nullopt;
}

// "paths add"
std::string words_of(const CLI::App& app) {
    const CLI::App* const parent = app.get_parent();
    if (parent == nullptr || parent->get_parent() == nullptr) return app.get_name();
    return words_of(*parent) + " " + app.get_name();
}

// Answers and configurations are JSON, which is UTF-8: a word that is not would become another one
// on its way, a file's path that of another file. The daemon's socket is no such word.
std::optional<std::string> not_utf8(const nlohmann::json& value) {
    if (value.is_structured()) {
        for (const auto& part : value) {
            if (auto wrong = not_utf8(part)) return wrong;
        }
    }
    if (!value.is_string()) return std::nullopt;
    const auto& text = value.get_ref<const std::string&>();
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t bytes = utf8_bytes(std::string_view(text).substr(i));
        if (bytes == 0)
            return fmt::format("found the byte 0x{:02x} behind \"{}\", expected UTF-8 text",
                               static_cast<unsigned char>(text[i]), text.substr(0, i));
        i += bytes;
    }
    return std::nullopt;
}

void find_sockets(Request& request, const Options& options, Daemon daemon,
                  const DefaultSockets& sockets) {
    if (!options.socket.empty()) {
        request.sockets = {options.socket};
    } else if (options.server || daemon == Daemon::server) {
        request.sockets = {sockets.server};
    } else if (options.client || daemon == Daemon::client) {
        request.sockets = {sockets.client};
    } else {
        request.sockets = {sockets.server, sockets.client};
        request.absent = Request::Absent::is_skipped;
    }
}

int run_words(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
              const DefaultSockets& sockets) {
    const Words words(argv + 1, argv + argc);
    if (!words.empty() && words.front() == "complete") {
        for (const std::string& word : complete({words.begin() + 1, words.end()}, sockets))
            out << word << "\n";
        return static_cast<int>(CtlExit::ok);
    }
    CommandTree tree;
    Complaints complaints(words, out, err);
    if (const auto exit = parse(tree, words, complaints, out, err)) return *exit;
    const Options& options = tree.options();
    Request request;
    request.output = options.as_json ? Output::json : Output::text;
    request.timeout = options.timeout.value_or(std::chrono::seconds(60));
    request.of = tree.asked();
    request.words = words_of(*tree.chosen()->app);
    find_sockets(request, options, request.of, sockets);
    if (const auto wrong = tree.chosen()->fill(request)) return complaints.usage(*wrong);
    if (const auto wrong = not_utf8(request.arguments)) return complaints.usage(*wrong);
    return static_cast<int>(ask(request, out, err));
}

}  // namespace

int run_rnbdctl(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
                const DefaultSockets& sockets) {
    const int exit = run_words(argc, argv, out, err, sockets);
    out.flush();
    if (out) return exit;
    // A full disk: half of an answer must not pass for all of it.
    err << "rnbdctl: the answer cannot be written\n";
    return exit != 0 ? exit : static_cast<int>(CtlExit::failed);
}

}  // namespace rnbd
