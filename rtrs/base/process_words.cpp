#include "rtrs/base/process_words.h"

#include <fstream>

namespace rtrs {

std::string process_name(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
    std::string name;
    std::getline(file, name);
    return name;
}

std::string process_words(pid_t pid) {
    const std::string name = process_name(pid);
    const std::string number = "pid " + std::to_string(pid);
    return name.empty() ? number : name + " (" + number + ")";
}

}  // namespace rtrs
