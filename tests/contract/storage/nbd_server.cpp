#include "tests/contract/storage/nbd_server.h"

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <thread>

extern char** environ;

namespace rnbd::testing {
namespace {

bool listens(const std::string& path) {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    REQUIRE(path.size() < sizeof address.sun_path);
    path.copy(address.sun_path, path.size());
    const bool yes =
        ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(socket);
    return yes;
}

}  // namespace

NbdServer::NbdServer(std::vector<std::string> command, std::string socket)
    : command_(std::move(command)), socket_(std::move(socket)) {
    for (std::string& word : command_) {
        if (word == "SOCKET") word = socket_;
    }
}

NbdServer::~NbdServer() { kill(); }

void NbdServer::start() {
    std::vector<char*> words;
    for (std::string& word : command_) words.push_back(word.data());
    words.push_back(nullptr);
    std::filesystem::remove(socket_);
    if (::posix_spawnp(&process_, words[0], nullptr, nullptr, words.data(), environ) != 0) {
        process_ = 0;
        throw Unavailable{command_[0] + " is not installed"};
    }
    for (int i = 0; i < 3000; ++i) {
        if (listens(socket_)) return;
        int status = 0;
        if (::waitpid(process_, &status, WNOHANG) == process_) {
            process_ = 0;
            throw Unavailable{command_[0] + " cannot do this here"};
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL(command_[0] << " does not listen");
}

void NbdServer::kill() {
    if (process_ == 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
}

void NbdServer::tell_to_end() {
    REQUIRE(process_ != 0);
    ::kill(process_, SIGTERM);
}

bool NbdServer::has_ended() {
    if (process_ != 0 && ::waitpid(process_, nullptr, WNOHANG) == process_) process_ = 0;
    return process_ == 0;
}

ServedFile::ServedFile(std::vector<std::string> words) {
    const std::string image = folder.file("image");
    std::ofstream(image).close();
    std::filesystem::resize_file(image, case_size_bytes);
    for (std::string& word : words) {
        if (word == "IMAGE") word = image;
    }
    server = std::make_unique<NbdServer>(std::move(words), folder.file("nbd"));
    server->start();
}

StorageOptions on(const NbdServer& server) {
    return {.kind = StorageOptions::Kind::nbd, .path = {}, .uri = server.uri()};
}

void wait_until_lost(Bench& bench) {
    while (bench.storage->trouble().empty()) {
        bench.reactor->run_once(std::chrono::milliseconds(10));
    }
}

void finish_in_time(Bench& bench, const TestRequest& request) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!request.finished && std::chrono::steady_clock::now() < deadline) {
        bench.reactor->run_once(std::chrono::milliseconds(10));
    }
    REQUIRE(request.finished);
}

}  // namespace rnbd::testing
