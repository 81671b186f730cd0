// rnbdctl as it is called, with daemons that give prepared answers.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rnbdctl/exit_codes.h"
#include "rnbdctl/run.h"

namespace rnbd::testing {

using nlohmann::json;

struct Ran {
    int exit = -1;
    std::string out, err;
};

// A daemon that answers each connection's one request with the next prepared line.
class World {
  public:
    World() {
        char name[] = "/tmp/rnbd-ctl-XXXXXX";
        REQUIRE(::mkdtemp(name) != nullptr);
        directory_ = name;
        sockets.server = directory_ + "/server.ctl";
        sockets.client = directory_ + "/client.ctl";
    }
    ~World() {
        ::unlink(sockets.client.c_str());
        ::rmdir(directory_.c_str());
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    Ran run(std::vector<const char*> arguments) {
        arguments.insert(arguments.begin(), "rnbdctl");
        std::ostringstream out, err;
        Ran ran;
        ran.exit =
            run_rnbdctl(static_cast<int>(arguments.size()), arguments.data(), out, err, sockets);
        ran.out = out.str();
        ran.err = err.str();
        return ran;
    }

    // A client daemon that lets everybody connect and says nothing.
    int listen_only() { return listen_at(sockets.client); }
    static int listen_at(const std::string& path) {
        const int listening = ::socket(AF_UNIX, SOCK_STREAM, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strcpy(address.sun_path, path.c_str());
        REQUIRE(::bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        REQUIRE(::listen(listening, 8) == 0);
        return listening;
    }

    // As run(), with a client daemon that answers with this line; its request is kept.
    Ran run_answered(const std::string& answer, const std::vector<const char*>& arguments) {
        return run_answered_each({answer}, arguments);
    }

    // With one that is asked as often as there are answers.
    Ran run_answered_each(const std::vector<std::string>& answers,
                          const std::vector<const char*>& arguments) {
        const int listening = listen_only();
        std::thread daemon([&] {
            for (const std::string& answer : answers) answer_one(listening, answer);
        });
        Ran ran = run(arguments);
        daemon.join();
        ::close(listening);
        ::unlink(sockets.client.c_str());
        return ran;
    }

    // With both daemons, which are asked in turn. The server answers `server` to each question
    // (null: it is asked none), the client the next of these: "" ends before it has answered; null:
    // it is not there.
    Ran run_followed(const std::optional<std::string>& server,
                     const std::vector<std::optional<std::string>>& clients,
                     const std::vector<const char*>& arguments) {
        const int servers = listen_at(sockets.server);
        int listening = listen_only();
        std::thread daemons([&] {
            for (const auto& client : clients) {
                // The client is asked after the server: until then it can come and go.
                const int asked = server ? ::accept(servers, nullptr, nullptr) : -1;
                if (client && listening < 0) {
                    ::unlink(sockets.client.c_str());
                    listening = listen_only();
                } else if (!client && listening >= 0) {
                    ::close(std::exchange(listening, -1));  // its socket's file stays
                }
                if (server) answer_on(asked, *server);
                if (client && client->empty())
                    ::close(::accept(listening, nullptr, nullptr));
                else if (client)
                    answer_one(listening, *client);
            }
            ::close(servers);
            ::unlink(sockets.server.c_str());
            if (listening >= 0) ::close(listening);
        });
        Ran ran = run(arguments);
        daemons.join();
        ::unlink(sockets.client.c_str());
        return ran;
    }

    // With both daemons, each of which is asked once.
    Ran run_answered_by_both(const std::string& server, const std::string& client,
                             const std::vector<const char*>& arguments) {
        const int servers = listen_at(sockets.server), clients = listen_only();
        std::thread daemons([&] {
            answer_one(servers, server);
            answer_one(clients, client);
        });
        Ran ran = run(arguments);
        daemons.join();
        ::close(servers);
        ::close(clients);
        ::unlink(sockets.server.c_str());
        ::unlink(sockets.client.c_str());
        return ran;
    }

    DefaultSockets sockets;
    json request;

  private:
    void answer_one(int listening, const std::string& answer) {
        answer_on(::accept(listening, nullptr, nullptr), answer);
    }
    void answer_on(int fd, const std::string& answer) {
        std::string line;
        char c = 0;
        while (::recv(fd, &c, 1, 0) == 1 && c != '\n') line += c;
        request = json::parse(line, nullptr, false);
        const std::string text = answer + "\n";
        static_cast<void>(::send(fd, text.data(), text.size(), MSG_NOSIGNAL));
        ::close(fd);
    }

    std::string directory_;
};

inline bool has(const std::string& text, const char* part) {
    INFO(text);
    return text.find(part) != std::string::npos;
}

inline int number(CtlExit exit) { return static_cast<int>(exit); }

}  // namespace rnbd::testing
