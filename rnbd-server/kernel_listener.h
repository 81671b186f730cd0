// What rnbd-server.yaml says of a listener for kernel clients (listen[].kernel), and how the
// device_path= of such a client finds an export.
//
// Plain values and pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/address_range.h"
#include "daemon/config/reader.h"

namespace rnbd {

struct KernelListener {
    // kernel.allow[]: who may come in. At least one; what may be opened is the exports' to say.
    struct Client {
        std::string session;
        // Where it must come from; none: from anywhere.
        std::optional<AddressRange> address;

        bool operator==(const Client&) const = default;
    };

    std::vector<Client> allow;
    // Put before a device path, with a '/' between; "%SESSNAME%" is the session's name. May be
    // empty.
    std::string search_path;
    // Device path, without leading '/' and doubled '/', -> export. Looked at first.
    std::map<std::string, std::string> devices;

    bool operator==(const KernelListener&) const = default;

    // host: numeric, without brackets.
    bool allows(std::string_view session, const std::string& host) const;
    // The name to look for among the exports; it need not exist.
    std::string export_for(std::string_view session, std::string_view device_path) const;
};

// "//dev///sda" -> "dev/sda"
std::string plain_device_path(std::string_view device_path);

// kernel: {allow, search_path, devices}
void read_kernel_listener(ConfigMap& map, KernelListener& kernel);

}  // namespace rnbd
