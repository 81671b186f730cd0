#include "rnbd-client/kernel_nbd/use.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <utility>

namespace rnbd {
namespace {

namespace fs = std::filesystem;

struct Part {
    std::string path;    // "/dev/nbd0p1"
    std::string number;  // "43:1"
    fs::path folder;     // in sysfs
};

std::string first_line(const fs::path& path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

std::vector<fs::path> entries(const fs::path& folder) {
    std::error_code error;
    std::vector<fs::path> found;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
        found.push_back(at->path());
    std::ranges::sort(found);
    return found;
}

// The device, then its partitions.
std::vector<Part> parts_of(std::uint32_t index, const KernelFiles& files) {
    const std::string name = fmt::format("nbd{}", index);
    const fs::path folder = fs::path(files.block) / name;
    std::vector<fs::path> folders = {folder};
    for (fs::path& entry : entries(folder)) {
        if (entry.filename().string().starts_with(name + "p")) folders.push_back(std::move(entry));
    }
    std::vector<Part> parts;
    for (const fs::path& one : folders) {
        parts.push_back({"/dev/" + one.filename().string(), first_line(one / "dev"), one});
    }
    return parts;
}

// "ID PARENT MAJOR:MINOR ROOT WHERE OPTIONS [TAG...] - TYPE SOURCE OPTIONS" (proc(5)). A file
// system that spans devices has a number of its own, and only names its source.
std::string mounted(const Part& part, const KernelFiles& files) {
    std::ifstream in(files.mountinfo);
    for (std::string line; std::getline(in, line);) {
        std::istringstream words(line);
        const std::vector<std::string> word{std::istream_iterator<std::string>(words), {}};
        const auto dash = std::ranges::find(word, "-");
        if (word.size() < 5 || word.end() - dash < 3) continue;
        if ((!part.number.empty() && word[2] == part.number) || dash[2] == part.path)
            return fmt::format("{} is mounted on {}", part.path, word[4]);
    }
    return {};
}

bool swapped_to(const Part& part, const KernelFiles& files) {
    std::ifstream in(files.swaps);
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with(part.path + ' ') || line.starts_with(part.path + '\t')) return true;
    }
    return false;
}

}  // namespace

std::string kernel_device_use(std::uint32_t index, const KernelFiles& files) {
    for (const Part& part : parts_of(index, files)) {
        if (std::string text = mounted(part, files); !text.empty()) return text;
        if (swapped_to(part, files)) return part.path + " is swapped to";
        if (const auto holders = entries(part.folder / "holders"); !holders.empty())
            return fmt::format("{} is part of {}", part.path, holders[0].filename().string());
    }
    return {};
}

std::vector<std::string> kernel_device_partitions(std::uint32_t index, const KernelFiles& files) {
    std::vector<std::string> paths;
    for (Part& part : parts_of(index, files)) paths.push_back(std::move(part.path));
    paths.erase(paths.begin());
    return paths;
}

}  // namespace rnbd
