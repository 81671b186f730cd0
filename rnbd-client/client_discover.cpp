// Client: which exports a server has for us.

#include <algorithm>
#include <utility>

#include "rnbd-client/client_session.h"
#include "rnbd/identity/session_identity.h"

namespace rnbd {
std::expected<void, ControlFailure> Client::discover(const std::string& server,
                                                     const std::string& session_name,
                                                     rtrs::Duration timeout,
                                                     Discovery::Answered answered) {
    if (stopped_) return command_failed(ControlError::stopping, "rnbd-client is stopping");
    if (const auto path = ClientConfig::Path::parse(server)) {
        if (Session* const session = session_towards(*path, session_name)) {
            session->questions.ask(timeout, std::move(answered));
            return {};
        }
        // No name of its own accord: another program of this machine may be the session of that
        // name.
        if (session_name.empty()) {
            return command_failed(
                ControlError::bad_arguments,
                "no session has a path to " + server + ": --session says under which name to ask");
        }
        if (sessions_.contains(session_name)) {
            return command_failed(ControlError::exists, "session " + session_name +
                                                            " has no path to " + server +
                                                            ": discover " + session_name +
                                                            " asks over those that it has");
        }
        return discover_apart(*path, session_name, timeout, std::move(answered));
    }
    const auto session = find_session(server);
    if (!session) {
        return command_failed(session.error().code,
                              session.error().message + " (a server is HOST:PORT, numeric)");
    }
    if (!session_name.empty() && session_name != server) {
        return command_failed(ControlError::bad_arguments, "session: found " + session_name +
                                                               " beside the session " + server +
                                                               ", expected it with HOST:PORT");
    }
    (*session)->questions.ask(timeout, std::move(answered));
    return {};
}

// session_name: empty: any. Null: none has a path there.
Client::Session* Client::session_towards(const ClientConfig::Path& server,
                                         const std::string& session_name) {
    const auto leads_there = [&](const ClientConfig::Path& path) {
        return path.fabric == server.fabric && path.destination == server.destination;
    };
    for (const auto& [name, session] : sessions_) {
        if (session->closing || (!session_name.empty() && name != session_name)) continue;
        if (std::ranges::any_of(session->paths(), leads_there)) return session.get();
    }
    return nullptr;
}

// Over a session that is made for the question.
std::expected<void, ControlFailure> Client::discover_apart(const ClientConfig::Path& server,
                                                           const std::string& name,
                                                           rtrs::Duration timeout,
                                                           Discovery::Answered answered) {
    // Of the oldest life: a session of this name that another program of this machine has is not
    // taken over for a question.
    rtrs::ClientSessionOptions options{.name = name,
                                       .identity = machine_identity(),
                                       .life = 1,
                                       .messages = rtrs::MessageOptions{}};
    auto address = address_of({.name = name}, server);
    if (!address)
        return command_failed(ControlError::failed,
                              server.to_string() + ": " + address.error().text);
    options.paths.push_back(std::move(*address));
    auto discovery = std::make_unique<Discovery>(
        rtrs::SessionEnvironment{reactor_, random_, tracer_}, std::move(options), *this);
    if (const auto error = discovery->start(timeout, std::move(answered))) {
        return error == std::errc::address_in_use
                   ? command_failed(ControlError::busy,
                                    "another rnbd-client on this machine has session " + name)
                   : command_failed(ControlError::failed,
                                    "session " + name + ": " + error.message());
    }
    discoveries_.push_back(std::move(discovery));
    return {};
}

void Client::on_discovery_over(Discovery& discovery) {
    std::erase_if(discoveries_, [&](const auto& one) { return one.get() == &discovery; });
    finish_if_done();
}

}  // namespace rnbd
