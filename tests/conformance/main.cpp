// conformance: drives a server or a client of RTRS and RNBD and says which of the checklist's
// statements it keeps. docs/reference/conformance.md
//
// Exit status: 0 no statement is not ok; 1 at least one; 2 wrong usage, or it could not begin.

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>

#include "tests/conformance/client_task.h"
#include "tests/conformance/server_task.h"

namespace conformance {
namespace {

struct Common {
    LabOptions lab;
    std::string json;
    std::vector<std::string> only;
    std::vector<std::string> skip;
    std::string peer;
};

int tell(Report& report, const Common& common, std::string_view role, std::string_view reason) {
    report.complete(reason);
    std::map<std::string, std::string> facts{{"under test", std::string(role)},
                                             {"fabric", common.lab.fabric}};
    if (!common.peer.empty()) facts["peer"] = common.peer;
    std::cout << report.text(facts);
    if (!common.json.empty()) {
        std::ofstream out(common.json);
        out << report.json(facts);
        if (!out) {
            std::cerr << "cannot write " << common.json << '\n';
            return 2;
        }
    }
    return report.passed() ? 0 : 1;
}

int test_server(const Common& common, const ServerOptions& options) {
    Lab lab(common.lab);
    Report report(Subject::server);
    ServerTask task{lab, report, options};
    std::vector<Scenario<ServerTask>> all = server_connect_scenarios();
    for (const auto& more : {server_request_scenarios(), server_life_scenarios()}) {
        all.insert(all.end(), more.begin(), more.end());
    }
    run_scenarios(task, std::span<const Scenario<ServerTask>>(all), common.only, common.skip);
    report.not_applicable(
        "C19", lab.tcp() ? "TCP has no such resources" : "the fabric asks for what its device has");
    return tell(report, common, "server", "not looked at in this run");
}

int test_client(const Common& common, ClientOptions options) {
    Lab lab(common.lab);
    Report report(Subject::client);
    Driver driver(lab, options.driver);
    if (options.addresses.empty()) options.addresses = {"127.0.0.1:0", "127.0.0.1:0"};
    ClientTask task{lab, report, driver, options};
    std::vector<Scenario<ClientTask>> all = client_session_scenarios();
    for (const auto& more : client_life_scenarios()) all.push_back(more);
    run_scenarios(task, std::span<const Scenario<ClientTask>>(all), common.only, common.skip);
    report.not_applicable("C7", lab.tcp() ? "TCP has no such parameters"
                                          : "the fabric does not show what the peer asked for");
    return tell(report, common, "client", "not looked at in this run");
}

void add_common(CLI::App& app, Common& common) {
    app.add_option("--fabric", common.lab.fabric, "tcp or verbs")
        ->check(CLI::IsMember({"tcp", "verbs"}));
    app.add_option("--local-host", common.lab.local_host, "verbs: the address of the device");
    app.add_option_function<unsigned>(
        "--patience",
        [&common](const unsigned& value) { common.lab.patience = std::chrono::seconds(value); },
        "s within which happens what has to; default 20");
    app.add_option("--json", common.json, "write the report to this file, too");
    app.add_option("--only", common.only, "only these scenarios");
    app.add_option("--skip", common.skip, "not these scenarios");
    app.add_option("--peer", common.peer, "what is under test, for the report");
}

Duration from_milliseconds(unsigned value) { return std::chrono::milliseconds(value); }

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
    using namespace conformance;
    CLI::App app{"Says which statements of the RTRS and RNBD checklist a program keeps."};
    app.require_subcommand(1);
    Common common;
    ServerOptions server_options;
    unsigned interval = 5000, timeout = 30000;

    auto* server = app.add_subcommand("server", "a server is under test");
    add_common(*server, common);
    server->add_option("address", server_options.address, "HOST:PORT")->required();
    server->add_option("volume", server_options.volume, "overwritten; at least 1 MiB")->required();
    server->add_option("--slow-volume", server_options.slow_volume,
                       "one whose writes take half a second or more");
    server->add_option("--second-address", server_options.second_address,
                       "[SOURCE@]HOST:PORT for second paths");
    server->add_option("--other-family", server_options.other_family, "IPv6, or IPv4");
    server->add_option("--session", server_options.session, "its name");
    server->add_option("--other-session", server_options.other_session, "another's");
    server->add_option("--restart", server_options.restart, "a command that restarts the server");
    server->add_option("--heartbeat-interval", interval, "the server's, in ms");
    server->add_option("--heartbeat-timeout", timeout, "the server's, in ms");
    server->add_flag("--gentle", server_options.gentle,
                     "leave out what is known to hurt a kernel server");

    ClientOptions client_options;
    unsigned reconnect = 60;
    auto* client = app.add_subcommand("client", "a client is under test");
    add_common(*client, common);
    client->add_option("driver", client_options.driver, "the program that drives the client")
        ->required();
    client->add_option("--listen", client_options.addresses,
                       "[SOURCE@]HOST:PORT; twice for two paths; default 127.0.0.1, any port");
    client->add_option("--session", client_options.session, "the session's name");
    client->add_option("--volume", client_options.volume, "the volume's name");
    client->add_option("--heartbeat-interval", interval, "the client's, in ms");
    client->add_option("--heartbeat-timeout", timeout, "the client's, in ms");
    client->add_option("--reconnect", reconnect, "s until a lost path is dialled again, at most");
    client->add_option("--depth-min", client_options.depth_min,
                       "a declared limit: the least queue depth that the client takes");
    client->add_flag("--extensions", client_options.extensions,
                     "this project's extensions (docs/reference/wire-*.md) are no breach");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;  // prints help, or what is wrong
    }
    server_options.heartbeat_interval = from_milliseconds(interval);
    server_options.heartbeat_timeout = from_milliseconds(timeout);
    client_options.heartbeat_interval = server_options.heartbeat_interval;
    client_options.heartbeat_timeout = server_options.heartbeat_timeout;
    client_options.reconnect = std::chrono::seconds(reconnect);
    try {
        if (client->parsed()) return test_client(common, client_options);
        return test_server(common, server_options);
    } catch (const Stop& stop) {
        std::cerr << "conformance: " << stop.why << '\n';
        return 2;
    }
}
