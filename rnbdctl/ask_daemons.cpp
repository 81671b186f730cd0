#include "rnbdctl/ask_daemons.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <thread>
#include <vector>

#include "daemon/control/client.h"
#include "daemon/version.h"
#include "rnbdctl/colour.h"
#include "rnbdctl/member_text.h"
#include "rnbdctl/rates.h"
#include "rnbdctl/saving.h"
#include "rnbdctl/terminal_size.h"
#include "rnbdctl/units.h"

namespace rnbd {
namespace {

using nlohmann::json;
using Answer = std::expected<json, ControlCallFailure>;

// How often a drain is asked how far it is.
constexpr std::chrono::milliseconds drain_interval{250};
constexpr const char* clear_screen = "\x1b[H\x1b[2J";

std::string json_line(const json& document) {
    return document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string hint_for(const Request& request, const ControlCallFailure& failure) {
    const CtlExit exit = exit_for(failure);
    if (!failure.advice.empty()) return failure.advice;
    if (exit == CtlExit::not_found) return request.absent_hint;
    if (exit == CtlExit::conflict) return request.in_use_hint;
    if (exit == CtlExit::timed_out) return request.late_hint;
    if (exit == CtlExit::failed) return request.failed_hint;
    if (exit == CtlExit::usage && !request.words.empty())
        return fmt::format("see rnbdctl {} --help", request.words);
    return hint_for(exit);
}

// A command that the daemon behind the socket has not because it is the other daemon's.
std::optional<ControlCallFailure> asked_the_other(const Request& request, const std::string& socket,
                                                  const ControlCallFailure& failure) {
    if (failure.code != ControlError::unknown_command || request.of == Daemon::both)
        return std::nullopt;
    const Answer answer = control_call({.socket_path = socket, .timeout = request.timeout},
                                       "version", json::object());
    const char* const owner = request.of == Daemon::server ? "rnbd-server" : "rnbd-client";
    const std::string there = answer ? members::word(*answer, "daemon") : "";
    if (there.empty() || there == owner) return std::nullopt;
    ControlCallFailure other = failure;
    other.message = fmt::format("{} (at {}) has no {}: that is a command of {}", there, socket,
                                request.words, owner);
    other.advice = fmt::format("leave --socket out, or name the socket of {}", owner);
    return other;
}

// "nbd[0]: found ...; access: found ...": what the daemon does not take is called as on the command
// line. One word may stand for several arguments: what is wrong with it is said once.
ControlCallFailure in_own_words(const Request& request, ControlCallFailure failure) {
    if (failure.code != ControlError::bad_arguments) return failure;
    std::string& text = failure.message;
    std::vector<std::string> said;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t key_end = std::min(text.find(": ", begin), text.size());
        const std::string key = text.substr(begin, key_end - begin);
        const auto meant = std::ranges::find_if(request.options, [&](const auto& one) {
            const std::string& argument = one.first;
            return key == argument || key.starts_with(argument + "[") ||
                   key.starts_with(argument + ".");
        });
        if (meant != request.options.end()) text.replace(begin, key.size(), meant->second);
        const std::size_t end = std::min(text.find("; ", begin), text.size());
        const std::string piece = text.substr(begin, end - begin);
        if (std::ranges::find(said, piece) == said.end()) {
            said.push_back(piece);
            begin = std::min(end + 2, text.size());
        } else if (end == text.size()) {
            text.erase(begin - 2);
        } else {
            text.erase(begin, end + 2 - begin);
        }
    }
    return failure;
}

CtlExit report_failure(const Request& request, const ControlCallFailure& failure, std::ostream& out,
                       std::ostream& err);

CtlExit report_failure(const Request& request, const std::string& socket,
                       const ControlCallFailure& failure, std::ostream& out, std::ostream& err) {
    const auto other = asked_the_other(request, socket, failure);
    ControlCallFailure said = other ? *other : in_own_words(request, failure);
    // What is wrong with the socket names it already.
    const std::string whose = socket + ": ";
    if (request.sockets.size() > 1 && !said.message.starts_with(whose))
        said.message = whose + said.message;
    return report_failure(request, said, out, err);
}

CtlExit report_failure(const Request& request, const ControlCallFailure& failure, std::ostream& out,
                       std::ostream& err) {
    const CtlExit exit = exit_for(failure);
    if (request.output == Output::json) {
        using Kind = ControlCallFailure::Kind;
        const char* const word = failure.code ? to_string(*failure.code)
                                 : failure.kind == Kind::timed_out
                                     ? to_string(ControlError::timed_out)
                                 : failure.kind == Kind::nonsense ? "nonsense"
                                 // A newer daemon's word.
                                 : failure.kind == Kind::refused ? to_string(ControlError::failed)
                                                                 : "unreachable";
        out << failure_line(word, failure.message, failure.error_number);
        return exit;
    }
    err << "rnbdctl: " << terminal_text(failure.message) << "\n";
    if (const auto hint = hint_for(request, failure); !hint.empty())
        err << "rnbdctl: " << hint << "\n";
    return exit;
}

json success(const json& result) {
    return {
        {"schema", control_schema}, {"version", control_version}, {"ok", true}, {"result", result}};
}

void report_result(const Request& request, const json& result, std::ostream& out) {
    if (request.output == Output::json)
        out << json_line(success(result));
    else
        out << request.view(result);
    out.flush();
}

// What was done and is kept. In JSON the answer tells of both, and is a failure if one failed.
CtlExit report_saved(const Request& request, const json& result, std::ostream& out,
                     std::ostream& err) {
    const SavedPiece piece = request.saved(result);
    if (request.output == Output::text) {
        report_result(request, result, out);
        return save(request, piece, out, err);
    }
    json document = success(result);
    const auto kept = keep(request, piece);
    if (kept) {
        document["saved"] = {{"file", kept->path},
                             {"changed", kept->changed},
                             {"sessions_gone", kept->sessions_gone}};
    } else {
        document["ok"] = false;
        document["error"] = {{"code", to_string(ControlError::failed)},
                             {"message", say_not_kept(piece, kept.error())}};
    }
    out << json_line(document);
    if (!kept) return CtlExit::failed;
    say_kept(request, piece, *kept, out, err);
    return CtlExit::ok;
}

// A socket, what the daemon behind it answered, and when.
struct Heard {
    std::string socket;
    Answer answer;
    std::chrono::steady_clock::time_point at;
};

bool is_passed_over(const Request& request, const ControlCallFailure& failure) {
    using Kind = ControlCallFailure::Kind;
    if (request.absent != Request::Absent::is_skipped) return false;
    // One that is followed may be started anew meanwhile.
    const bool followed =
        request.course == Request::Course::watch || request.course == Request::Course::top;
    return failure.kind == Kind::absent || (followed && failure.kind == Kind::away);
}

// Of the sockets that count; ERRORS: none of them is there.
std::expected<std::vector<Heard>, ControlCallFailure> hear_all(const Request& request) {
    std::vector<Heard> heard;
    std::vector<ControlCallFailure> absent;
    for (const std::string& socket : request.sockets) {
        Answer answer = control_call({.socket_path = socket, .timeout = request.timeout},
                                     request.command, request.arguments);
        if (!answer && is_passed_over(request, answer.error()))
            absent.push_back(answer.error());
        else
            heard.push_back({socket, std::move(answer), std::chrono::steady_clock::now()});
    }
    if (!heard.empty()) return heard;
    ControlCallFailure none = absent.front();
    none.message = "neither daemon is here: " + absent.front().message;
    if (absent.size() > 1) none.message += "; " + absent.back().message;
    return std::unexpected(std::move(none));
}

// --save of a removal of what the daemon does not have (any more).
CtlExit forget_absent(const Request& request, const std::string& socket,
                      const ControlCallFailure& failure, std::ostream& out, std::ostream& err) {
    const Request::Forgetting& what = *request.forgetting;
    if (!what.kind.empty() && !only_files_have(request, what.kind, what.name))
        return report_failure(request, socket, failure, out, err);
    const auto kept = keep(request, what.piece);
    if (kept && kept->changed) {
        if (request.output == Output::json)
            report_result(request, what.gone, out);
        else
            out << terminal_text(failure.message) << "\n";
        say_kept(request, what.piece, *kept, out, err);
        return CtlExit::ok;
    }
    const CtlExit exit = report_failure(request, socket, failure, out, err);
    if (!kept) err << "rnbdctl: it is not forgotten: " << terminal_text(kept.error()) << "\n";
    return exit;
}

// A removal that failed: of the object's last flush, or of the removal itself?
bool is_gone(const Request& request, const std::string& socket) {
    const Answer answer = control_call({.socket_path = socket, .timeout = request.timeout},
                                       request.forgetting->command, request.forgetting->arguments);
    return !answer && answer.error().code == ControlError::not_found;
}

CtlExit end_of_failed(const Request& request, const std::string& socket,
                      const ControlCallFailure& failure, std::ostream& out, std::ostream& err) {
    if (request.forgetting && failure.code == ControlError::not_found)
        return forget_absent(request, socket, failure, out, err);
    const CtlExit exit = report_failure(request, socket, failure, out, err);
    if (request.saved_while_it_goes_on && failure.code == ControlError::timed_out)
        static_cast<void>(save(request, *request.saved_while_it_goes_on, out, err));
    if (!request.forgetting || request.forgetting->command.empty()) return exit;
    if (failure.code == ControlError::failed && is_gone(request, socket))
        static_cast<void>(save(request, request.forgetting->piece, out, err));
    // Whether it was begun, or will be refused, is not known.
    if (exit == CtlExit::timed_out)
        err << "rnbdctl: it is not forgotten yet: once it is gone, the same command takes it out "
               "of "
            << saved_file_name << "\n";
    return exit;
}

CtlExit ask_once(const Request& request, std::ostream& out, std::ostream& err) {
    const auto heard = hear_all(request);
    if (!heard) return report_failure(request, heard.error(), out, err);
    const bool somebody_has_it =
        std::ranges::any_of(*heard, [](const Heard& one) { return one.answer.has_value(); });
    CtlExit worst = CtlExit::ok;
    bool first = true;
    for (const auto& [socket, answer, at] : *heard) {
        if (request.of_one && somebody_has_it && !answer &&
            answer.error().code == ControlError::not_found)
            continue;
        if (!first && request.output == Output::text) out << "\n";
        first = false;
        CtlExit exit = CtlExit::ok;
        if (answer) {
            if (request.saved) {
                exit = report_saved(request, *answer, out, err);
            } else {
                report_result(request, *answer, out);
                if (request.judge != nullptr) exit = request.judge(*answer);
            }
        } else {
            exit = end_of_failed(request, socket, answer.error(), out, err);
        }
        if (exit != CtlExit::ok) worst = exit;
    }
    return worst;
}

// Says how far it is whenever that has changed.
CtlExit follow_drain(Request request, std::ostream& out, std::ostream& err) {
    const auto deadline = std::chrono::steady_clock::now() + request.timeout;
    std::string said;
    for (;;) {
        const Answer answer =
            control_call({.socket_path = request.sockets.front(), .timeout = request.timeout},
                         request.command, request.arguments);
        if (!answer)
            return report_failure(request, request.sockets.front(), answer.error(), out, err);
        if (members::member(*answer, "done") == true) {
            report_result(request, *answer, out);
            return CtlExit::ok;
        }
        if (members::member(*answer, "draining") == false) {
            return report_failure(request,
                                  {.kind = ControlCallFailure::Kind::refused,
                                   .message = "not drained: somebody has let sessions in again",
                                   .advice = "rnbdctl drain starts it again"},
                                  out, err);
        }
        const std::string progress = request.view(*answer);
        if (progress != said) err << progress << std::flush;
        said = progress;
        if (std::chrono::steady_clock::now() >= deadline) {
            return report_failure(request,
                                  {ControlCallFailure::Kind::timed_out,
                                   "not drained yet; nobody new comes in until rnbdctl drain --off",
                                   {}},
                                  out, err);
        }
        // The first question began it; what comes is only looked at.
        request.arguments.erase("set");
        request.arguments.erase("evict");
        std::this_thread::sleep_for(drain_interval);
    }
}

CtlExit follow_rates(const Request& request, std::ostream& out, std::ostream& err) {
    const bool top = request.course == Request::Course::top;
    const RateOrder order = top ? RateOrder::busiest_first : RateOrder::as_given;
    auto before = hear_all(request);
    for (std::uint32_t round = 0; !request.rounds || round < *request.rounds; ++round) {
        if (!before) return report_failure(request, before.error(), out, err);
        std::this_thread::sleep_for(request.interval);
        auto after = hear_all(request);
        if (!after) return report_failure(request, after.error(), out, err);
        std::size_t most = std::numeric_limits<std::size_t>::max();
        if (top && colour_is_on() && request.output == Output::text) {
            out << clear_screen;
            if (const auto rows = screen_rows()) most = rows_for_each(*rows, after->size());
        }
        for (const Heard& one : *after) {
            if (!one.answer) return report_failure(request, one.answer.error(), out, err);
            for (const Heard& earlier : *before) {
                if (earlier.socket != one.socket || !earlier.answer) continue;
                const double elapsed_s = std::chrono::duration<double>(one.at - earlier.at).count();
                if (counts_anew(*one.answer, elapsed_s)) continue;
                report_result(request, rates(*earlier.answer, *one.answer, elapsed_s, order, most),
                              out);
            }
        }
        if (!out) break;  // nobody reads it
        before = std::move(after);
    }
    return CtlExit::ok;
}

}  // namespace

std::string failure_line(const std::string& code, const std::string& message, int error_number) {
    json error{{"code", code}, {"message", message}};
    if (error_number != 0) error["errno"] = error_number;
    return json_line({{"schema", control_schema},
                      {"version", control_version},
                      {"ok", false},
                      {"error", error}});
}

CtlExit ask(const Request& request, std::ostream& out, std::ostream& err) {
    switch (request.course) {
        case Request::Course::local:
            out << request.text;
            return CtlExit::ok;
        case Request::Course::drain:
            return follow_drain(request, out, err);
        case Request::Course::watch:
        case Request::Course::top:
            return follow_rates(request, out, err);
        case Request::Course::once:
            break;
    }
    if (request.command == "version" && request.output == Output::text)
        out << "rnbdctl " << version() << "\n";
    return ask_once(request, out, err);
}

}  // namespace rnbd
