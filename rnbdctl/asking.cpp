#include "rnbdctl/asking.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <thread>
#include <vector>

#include "daemon/control/client.h"
#include "daemon/version.h"
#include "rnbdctl/colour.h"
#include "rnbdctl/members.h"
#include "rnbdctl/rates.h"
#include "rnbdctl/saving.h"
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

std::string hint_for(const Wish& wish, const ControlCallFailure& failure) {
    const CtlExit exit = exit_for(failure);
    if (!failure.advice.empty()) return failure.advice;
    if (exit == CtlExit::not_found) return wish.absent_hint;
    if (exit == CtlExit::conflict) return wish.in_use_hint;
    return hint_for(exit);
}

// A command that the daemon behind the socket has not because it is the other daemon's.
std::optional<ControlCallFailure> asked_the_other(const Wish& wish, const std::string& socket,
                                                  const ControlCallFailure& failure) {
    if (failure.code != ControlError::unknown_command || wish.of == Daemon::both)
        return std::nullopt;
    const Answer answer =
        control_call({.socket_path = socket, .timeout = wish.timeout}, "version", json::object());
    const char* const owner = wish.of == Daemon::server ? "rnbd-server" : "rnbd-client";
    const std::string there = answer ? members::word(*answer, "daemon") : "";
    if (there.empty() || there == owner) return std::nullopt;
    ControlCallFailure other = failure;
    other.message = fmt::format("{} (at {}) has no {}: that is a command of {}", there, socket,
                                wish.words, owner);
    other.advice = fmt::format("leave --socket out, or name the socket of {}", owner);
    return other;
}

// "nbd[0]: found ...; access: found ...": what the daemon does not take is called as on the command
// line. One word may stand for several arguments: what is wrong with it is said once.
ControlCallFailure in_own_words(const Wish& wish, ControlCallFailure failure) {
    if (failure.code != ControlError::bad_arguments) return failure;
    std::string& text = failure.message;
    std::vector<std::string> said;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t key_end = std::min(text.find(": ", begin), text.size());
        const std::string key = text.substr(begin, key_end - begin);
        const auto meant = std::ranges::find_if(wish.options, [&](const auto& one) {
            const std::string& argument = one.first;
            return key == argument || key.starts_with(argument + "[") ||
                   key.starts_with(argument + ".");
        });
        if (meant != wish.options.end()) text.replace(begin, key.size(), meant->second);
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

CtlExit report_failure(const Wish& wish, const ControlCallFailure& failure, std::ostream& out,
                       std::ostream& err);

CtlExit report_failure(const Wish& wish, const std::string& socket,
                       const ControlCallFailure& failure, std::ostream& out, std::ostream& err) {
    const auto other = asked_the_other(wish, socket, failure);
    return report_failure(wish, other ? *other : in_own_words(wish, failure), out, err);
}

CtlExit report_failure(const Wish& wish, const ControlCallFailure& failure, std::ostream& out,
                       std::ostream& err) {
    const CtlExit exit = exit_for(failure);
    if (wish.output == Output::json) {
        using Kind = ControlCallFailure::Kind;
        const char* const word = failure.code ? to_string(*failure.code)
                                 : failure.kind == Kind::timed_out
                                     ? to_string(ControlError::timed_out)
                                 : failure.kind == Kind::nonsense ? "nonsense"
                                 // A newer daemon's word.
                                 : failure.kind == Kind::refused ? to_string(ControlError::failed)
                                                                 : "unreachable";
        json error{{"code", word}, {"message", failure.message}};
        if (failure.error_number != 0) error["errno"] = failure.error_number;
        out << json_line({{"schema", control_schema},
                          {"version", control_version},
                          {"ok", false},
                          {"error", error}});
        return exit;
    }
    err << "rnbdctl: " << terminal_text(failure.message) << "\n";
    if (const auto hint = hint_for(wish, failure); !hint.empty())
        err << "rnbdctl: " << hint << "\n";
    return exit;
}

void report_result(const Wish& wish, const json& result, std::ostream& out) {
    if (wish.output == Output::json)
        out << json_line({{"schema", control_schema},
                          {"version", control_version},
                          {"ok", true},
                          {"result", result}});
    else
        out << wish.view(result);
    out.flush();
}

// A socket and what the daemon behind it answered.
struct Heard {
    std::string socket;
    Answer answer;
};

// Of the sockets that count; ERRORS: none of them is there.
std::expected<std::vector<Heard>, ControlCallFailure> hear_all(const Wish& wish) {
    std::vector<Heard> heard;
    std::vector<ControlCallFailure> absent;
    for (const std::string& socket : wish.sockets) {
        Answer answer = control_call({.socket_path = socket, .timeout = wish.timeout}, wish.command,
                                     wish.arguments);
        if (!answer && answer.error().kind == ControlCallFailure::Kind::absent &&
            wish.absent == Wish::Absent::is_skipped) {
            absent.push_back(answer.error());
        } else {
            heard.push_back({socket, std::move(answer)});
        }
    }
    if (!heard.empty()) return heard;
    ControlCallFailure none = absent.front();
    none.message = "neither daemon is here: " + absent.front().message;
    if (absent.size() > 1) none.message += "; " + absent.back().message;
    return std::unexpected(std::move(none));
}

CtlExit ask_once(const Wish& wish, std::ostream& out, std::ostream& err) {
    const auto heard = hear_all(wish);
    if (!heard) return report_failure(wish, heard.error(), out, err);
    CtlExit worst = CtlExit::ok;
    for (std::size_t i = 0; i < heard->size(); ++i) {
        const Answer& answer = (*heard)[i].answer;
        if (i > 0 && wish.output == Output::text) out << "\n";
        CtlExit exit = CtlExit::ok;
        if (answer) {
            report_result(wish, *answer, out);
            if (wish.judge != nullptr) exit = wish.judge(*answer);
            if (wish.saved) exit = save(wish, wish.saved(*answer), out, err);
        } else {
            exit = report_failure(wish, (*heard)[i].socket, answer.error(), out, err);
            const bool goes_on = answer.error().code == ControlError::timed_out;
            if (goes_on && wish.saved_while_it_goes_on) {
                static_cast<void>(save(wish, *wish.saved_while_it_goes_on, out, err));
            }
        }
        if (exit != CtlExit::ok) worst = exit;
    }
    return worst;
}

// Says how far it is whenever that has changed.
CtlExit follow_drain(Wish wish, std::ostream& out, std::ostream& err) {
    const auto deadline = std::chrono::steady_clock::now() + wish.timeout;
    std::string said;
    for (;;) {
        const Answer answer =
            control_call({.socket_path = wish.sockets.front(), .timeout = wish.timeout},
                         wish.command, wish.arguments);
        if (!answer) return report_failure(wish, wish.sockets.front(), answer.error(), out, err);
        if (members::member(*answer, "done") == true) {
            report_result(wish, *answer, out);
            return CtlExit::ok;
        }
        const std::string progress = wish.view(*answer);
        if (progress != said) err << progress << std::flush;
        said = progress;
        if (std::chrono::steady_clock::now() >= deadline) {
            return report_failure(
                wish,
                {ControlCallFailure::Kind::timed_out, "not drained yet; nobody new comes in", {}},
                out, err);
        }
        // The first question began it; what comes is only looked at.
        wish.arguments.erase("set");
        wish.arguments.erase("evict");
        std::this_thread::sleep_for(drain_interval);
    }
}

CtlExit follow_rates(const Wish& wish, std::ostream& out, std::ostream& err) {
    const bool top = wish.course == Wish::Course::top;
    const RateOrder order = top ? RateOrder::busiest_first : RateOrder::as_given;
    auto before = hear_all(wish);
    auto asked = std::chrono::steady_clock::now();
    for (std::uint32_t round = 0; !wish.rounds || round < *wish.rounds; ++round) {
        if (!before) return report_failure(wish, before.error(), out, err);
        std::this_thread::sleep_for(wish.interval);
        auto after = hear_all(wish);
        const auto now = std::chrono::steady_clock::now();
        if (!after) return report_failure(wish, after.error(), out, err);
        if (top && colour_is_on() && wish.output == Output::text) out << clear_screen;
        for (const Heard& one : *after) {
            if (!one.answer) return report_failure(wish, one.answer.error(), out, err);
            for (const Heard& earlier : *before) {
                if (earlier.socket != one.socket || !earlier.answer) continue;
                report_result(wish,
                              rates(*earlier.answer, *one.answer,
                                    std::chrono::duration<double>(now - asked).count(), order),
                              out);
            }
        }
        if (!out) break;  // nobody reads it
        before = std::move(after);
        asked = now;
    }
    return CtlExit::ok;
}

}  // namespace

CtlExit ask(const Wish& wish, std::ostream& out, std::ostream& err) {
    switch (wish.course) {
        case Wish::Course::local:
            out << wish.text;
            return CtlExit::ok;
        case Wish::Course::drain:
            return follow_drain(wish, out, err);
        case Wish::Course::watch:
        case Wish::Course::top:
            return follow_rates(wish, out, err);
        case Wish::Course::once:
            break;
    }
    if (wish.command == "version" && wish.output == Output::text)
        out << "rnbdctl " << version() << "\n";
    return ask_once(wish, out, err);
}

}  // namespace rnbd
