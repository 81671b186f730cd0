#include "rnbd-client/map_command.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/config/common.h"
#include "daemon/control/arguments.h"
#include "rnbd-client/not_open.h"
#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

using nlohmann::json;
using Need = ControlArguments::Need;

constexpr std::string_view a_name = "a name";
constexpr rtrs::Duration look_interval = std::chrono::milliseconds(10);
// A script that maps many devices of a server that is away is not to wait long for each.
constexpr rtrs::Duration map_timeout = std::chrono::seconds(1);

struct MapRequest {
    ClientConfig::Device device;
    ClientConfig::Session session;
    bool with_paths = false;
};

// Beside the control socket. '/' in a name is '!', as among the attributes: there are no folders.
std::string default_address(const std::string& socket_folder, std::string device) {
    std::ranges::replace(device, '/', '!');
    return "unix:" + socket_folder + "/" + device + ".sock";
}

// With the arguments' names, which are not those of the configuration everywhere.
std::string map_errors_text(std::vector<ConfigError> errors) {
    static constexpr std::pair<std::string_view, std::string_view> names[] = {
        {"devices[0].name", "device"},
        {"devices[0].device", "kernel_device"},
        {"devices[0].", ""},
        {"sessions[0].name", "session"},
        {"sessions[0].", ""}};
    for (ConfigError& error : errors) {
        const auto name = std::ranges::find_if(
            names, [&](const auto& one) { return error.key.starts_with(one.first); });
        if (name != std::end(names)) error.key.replace(0, name->first.size(), name->second);
    }
    return config_errors_text(errors);
}

// An address that nobody gave is wrong only because of the name that it was made of.
void blame_name_for_its_socket(std::vector<ConfigError>& errors) {
    const auto of_socket = [](const ConfigError& error) {
        return error.key.starts_with("devices[0].nbd");
    };
    if (!std::ranges::all_of(errors, of_socket)) {
        std::erase_if(errors, of_socket);
        return;
    }
    for (ConfigError& error : errors) {
        error.text = "the default, a socket with the name of the device, has a path of more than " +
                     std::to_string(socket_path_bytes_max) + " bytes: name another address";
    }
}

// The arguments as the configuration that they stand for: the same words, rules and messages.
std::expected<MapRequest, ControlFailure> parse_map(const json& given,
                                                    const std::string& socket_folder) {
    ControlArguments arguments(given);
    const std::string volume = arguments.text("volume", Need::required, a_name);
    const std::string session_name = arguments.text("session", Need::required, a_name);
    const std::string name =
        given.contains("device") ? arguments.text("device", Need::present, a_name) : volume;
    const std::optional<json> nbd = arguments.any("nbd");
    json device{{"name", name},
                {"session", session_name},
                {"volume", volume},
                {"access", arguments.any("access").value_or("rw")},
                {"nbd", nbd.value_or(default_address(socket_folder, name))}};
    if (auto kernel_device = arguments.any("kernel_device")) {
        device["device"] = std::move(*kernel_device);
    }
    MapRequest request;
    const std::optional<json> paths = arguments.any("paths");
    request.with_paths = paths.has_value();
    if (const auto failure = arguments.failure()) return std::unexpected(*failure);
    // Without paths, one that only satisfies the rules of a whole configuration.
    const json session{{"name", session_name},
                       {"paths", paths.value_or(json::array({{{"tcp", "127.0.0.1:1"}}}))}};
    const json config{{"sessions", {session}}, {"devices", {device}}};
    auto parsed =
        ClientConfig::parse(config.dump(-1, ' ', false, json::error_handler_t::replace), "map");
    if (!parsed) {
        auto errors = std::move(parsed.error());
        if (!nbd) blame_name_for_its_socket(errors);
        return command_failed(ControlError::bad_arguments, map_errors_text(std::move(errors)));
    }
    request.device = std::move(parsed->devices.front());
    request.session = std::move(parsed->sessions.front());
    return request;
}

// Whether waiting longer would tell more: it is open, and attached to the kernel if it is to be, or
// the server has said no.
bool is_settled(Mapping& mapping) {
    if (mapping.stopping() || mapping.volume().open_error()) return true;
    if (mapping.volume().state() != VolumeState::open) return false;
    const KernelDevice* const kernel = mapping.kernel();
    using State = KernelDevice::State;
    return kernel == nullptr ||
           (kernel->state() != State::waiting && kernel->state() != State::attaching);
}

json describe(Mapping& mapping) {
    const KernelDevice* const kernel = mapping.kernel();
    const bool attached = kernel != nullptr && kernel->state() == KernelDevice::State::attached;
    std::string reason = why_not_open(mapping.volume());
    if (reason.empty() && kernel != nullptr && !attached) reason = kernel->reason();
    return {{"device", mapping.config().name},
            {"nbd", mapping.nbd_addresses()},
            {"kernel", attached ? json{{"path", kernel->path()}} : json()},
            {"state", mapping.stopping() ? "stopping" : to_string(mapping.volume().state())},
            {"reason", reason}};
}

}  // namespace

MapCommand::MapCommand(Client& client, std::string socket_folder)
    : client_(client),
      socket_folder_(std::move(socket_folder)),
      timer_(client.clock(), this, rtrs::member_call<&MapCommand::check_all>) {}

void MapCommand::start(const json& arguments, ControlReply reply) {
    const auto request = parse_map(arguments, socket_folder_);
    if (!request) return reply.fail(request.error());
    // The reply outlives this call: what failed may take a while to be gone.
    const auto later = std::make_shared<ControlReply>(std::move(reply));
    client_.map(
        request->device, request->with_paths ? &request->session : nullptr,
        [this, later,
         name = request->device.name](const std::expected<void, ControlFailure>& mapped) {
            if (!mapped) return later->fail(mapped.error());
            wait_for(
                {.device = name, .deadline = client_.clock().now() + map_timeout, .reply = later});
        });
}

void MapCommand::wait_for(Wait wait) {
    if (check(wait)) return;
    waits_.push_back(std::move(wait));
    if (!timer_.armed()) timer_.arm(client_.clock().now() + look_interval);
}

void MapCommand::check_all() {
    std::erase_if(waits_, [this](Wait& wait) { return check(wait); });
    if (!waits_.empty()) timer_.arm(client_.clock().now() + look_interval);
}

bool MapCommand::check(Wait& wait) {
    const auto& mappings = client_.mappings();
    const auto found = std::ranges::find_if(
        mappings, [&](const auto& one) { return one->config().name == wait.device; });
    if (found == mappings.end()) {
        wait.reply->fail(ControlError::failed, wait.device + " is gone again");
        return true;
    }
    if (!is_settled(**found) && client_.clock().now() < wait.deadline) return false;
    wait.reply->succeed(describe(**found));
    return true;
}

}  // namespace rnbd
