// Any bytes as either daemon's configuration: errors, never a crash, and always printable ones.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "rnbd-client/config.h"
#include "rnbd-server/config.h"

namespace {

template <typename Config>
void read(std::string_view text) {
    const auto config = Config::parse(text, "fuzz.yaml");
    if (config) return;
    if (config.error().empty()) std::abort();
    for (const auto& error : config.error())
        for (const char c : rnbd::to_string(error))
            if (static_cast<unsigned char>(c) < 0x20) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    read<rnbd::ServerConfig>(text);
    read<rnbd::ClientConfig>(text);
    return 0;
}
