#include "tests/conformance/driver.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace conformance {

Driver::Driver(Lab& lab, std::string program) : lab_(lab), program_(std::move(program)) {
    std::string name = (std::filesystem::temp_directory_path() / "conformance-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw Stop{"cannot make a folder for the driver"};
    folder_ = name;
    setenv("CONFORMANCE_DIR", folder_.c_str(), 1);
}

Driver::~Driver() {
    std::error_code none;
    std::filesystem::remove_all(folder_, none);
}

std::unique_ptr<Driver::Job> Driver::start(const std::vector<std::string>& words) {
    std::vector<char*> arguments{program_.data()};
    std::vector<std::string> copies = words;
    for (std::string& word : copies) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string output = file("output");
    posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t id = 0;
    const int failed =
        posix_spawnp(&id, program_.c_str(), &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) throw Stop{fmt::format("cannot start {}", program_)};
    std::string what;
    for (const std::string& word : words) what += (what.empty() ? "" : " ") + word;
    return std::make_unique<Job>(id, what);
}

bool Driver::Job::ended() {
    if (ended_) return true;
    int status = 0;
    if (waitpid(id_, &status, WNOHANG) != id_) return false;
    ended_ = true;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return true;
}

int Driver::finish(Job& job) {
    if (!lab_.wait(patience, [&] { return job.ended(); })) {
        throw Stop{fmt::format("the driver's \"{}\" does not end", job.what())};
    }
    return job.status();
}

int Driver::run(const std::vector<std::string>& words) { return finish(*start(words)); }

void Driver::must(const std::vector<std::string>& words) {
    const auto job = start(words);
    if (const int status = finish(*job); status != 0) {
        throw Stop{
            fmt::format("the driver's \"{}\" ended with {}: {}", job->what(), status, output())};
    }
}

Octets Driver::content(const std::string& name) const {
    std::ifstream in(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void Driver::store(const std::string& name, const Octets& octets) const {
    std::ofstream out(file(name), std::ios::binary);
    out.write(reinterpret_cast<const char*>(octets.data()),
              static_cast<std::streamsize>(octets.size()));
}

std::string Driver::output() const {
    const Octets octets = content("output");
    std::string text(octets.begin(), octets.end());
    if (text.size() > 300) text = text.substr(text.size() - 300);
    for (char& letter : text) letter = letter == '\n' ? ' ' : letter;
    return text;
}

}  // namespace conformance
