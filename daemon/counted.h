// A count with its noun: "1 session", "2 sessions".
#pragma once

#include <cstdint>
#include <string>

namespace rnbd {

inline std::string counted(const std::string& count, const char* one) {
    return count + " " + one + (count == "1" ? "" : "s");
}
inline std::string counted(std::uint64_t count, const char* one) {
    return counted(std::to_string(count), one);
}

}  // namespace rnbd
