// The settings in rnbd-server.yaml of a listener for kernel clients (listen[].kernel), and the
// rules by which the device_path= of such a client leads to an export.
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
    // kernel.allow[]: a session that may connect. At least one; the exports say what it may open.
    struct Client {
        std::string session;
        // The addresses that it may come from; none: any address.
        std::optional<AddressRange> address;

        bool operator==(const Client&) const = default;
    };

    std::vector<Client> allow;
    // This is put before a device path, with a '/' between them; "%SESSNAME%" stands for the
    // session's name. May be empty.
    std::string search_path;
    // Device path, without leading '/' and doubled '/', -> export. It is looked up first.
    std::map<std::string, std::string> devices;

    bool operator==(const KernelListener&) const = default;

    // host: numeric, without brackets.
    bool allows(std::string_view session, const std::string& host) const;
    // The name of the export to look for; the export need not exist.
    std::string export_for(std::string_view session, std::string_view device_path) const;
};

// Normalizes a device path: "//dev///sda" -> "dev/sda".
std::string plain_device_path(std::string_view device_path);

// Reads the value of the key `kernel`: {allow, search_path, devices}.
void read_kernel_listener(ConfigMap& map, KernelListener& kernel);

}  // namespace rnbd
