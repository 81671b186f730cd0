#include "rnbd-server/config.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

namespace rnbd {

namespace {

constexpr rtrs::Duration delay_max = std::chrono::hours(1);
constexpr std::uint32_t every_max = 1'000'000'000;
// With the smallest requests; larger ones allow fewer.
constexpr std::uint32_t queue_depth_max =
    1u << (rtrs::limits::immediate_payload_bits -
           rtrs::limits::ceil_log2(rtrs::limits::chunk_bytes_min));
static_assert(rtrs::limits::geometry_possible(queue_depth_max, rtrs::limits::chunk_bytes_min));
static_assert(!rtrs::limits::geometry_possible(queue_depth_max + 1, rtrs::limits::chunk_bytes_min));

using Kind = StorageOptions::Kind;
using Io = StorageOptions::Io;
using Use = StorageOptions::Use;

// What has been seen so far, to find what is said twice.
struct Seen {
    // Each with the place where it was said first.
    std::map<std::string, std::string> listen;
    // Likewise, with the export.
    struct User {
        std::size_t index = 0;
        std::string place;
    };
    std::map<std::string, User> names;
    std::map<std::string, User> paths;  // that are exported
    std::map<Uuid, std::string> uuids;
    std::set<std::pair<Uuid, std::string>> uuids_of_paths;
};

// Of one export: whose rules there are.
using Ruled = std::set<std::pair<std::string, std::optional<AddressRange>>>;

ConfigType<Io> io_words() {
    return config_enum<Io>({{"direct", Io::direct}, {"buffered", Io::buffered}});
}

bool is_wildcard(const std::string& address) {
    return address.starts_with("0.0.0.0:") || address.starts_with("[::]:");
}

// `tcp` or `rdma`, one of them.
bool read_listen_address(ConfigMap& map, ServerConfig::Listen& listen) {
    const auto tcp = map.find("tcp");
    const auto rdma = map.find("rdma");
    if (tcp && rdma)
        return map.error("rdma", "found both tcp and rdma, expected one of them"), false;
    if (!tcp && !rdma)
        return map.error("tcp", "found no such key, expected tcp or rdma with an address"), false;
    listen.fabric = tcp ? ConfigFabric::tcp : ConfigFabric::rdma;
    if (!(tcp ? tcp : rdma)->scalar(config_address(PortZero::allowed), listen.address))
        return false;
    if (tcp || !is_wildcard(listen.address)) return true;
    map.error("rdma",
              fmt::format("found \"{}\", expected an address of one RDMA device", listen.address));
    return false;
}

void read_listen(const ConfigValue& item, ServerConfig& config, Seen& seen) {
    item.map([&](ConfigMap& map) {
        ServerConfig::Listen listen;
        const bool known = read_listen_address(map, listen);
        const char* const word = to_word(listen.fabric);
        const bool kernel = map.optional_map("kernel", [&](ConfigMap& inner) {
            read_kernel_listener(inner, listen.kernel.emplace());
        });
        if (!known) return;
        if (kernel && listen.fabric == ConfigFabric::tcp)
            map.error("kernel",
                      "found kernel beside tcp, expected rdma: kernel clients have no TCP");
        const bool any_port = listen.address.ends_with(":0");
        const auto [first, added] =
            seen.listen.emplace(word + (":" + listen.address), map.place(word));
        if (!any_port && !added)
            map.error(word, fmt::format("found \"{}\" a second time, expected each address once "
                                        "(first at {})",
                                        listen.address, first->second));
        if (added && listen.fabric == ConfigFabric::tcp) {
            for (const auto& other : config.listen) {
                if (other.fabric != ConfigFabric::tcp ||
                    !addresses_overlap(listen.address, other.address))
                    continue;
                map.error(word, fmt::format("found \"{}\" beside \"{}\", expected no address that "
                                            "another one has as well",
                                            listen.address, other.address));
                break;
            }
        }
        config.listen.push_back(std::move(listen));
    });
}

void read_allow(const ConfigValue& item, ServerConfig::Export& target, Ruled& ruled) {
    item.map([&](ConfigMap& map) {
        ServerConfig::Allow allow;
        const bool named = map.required("session", config_allowed_session(), allow.session);
        map.optional("address", config_address_range(), allow.address);
        const bool moded = map.required("access", config_access(), allow.access);
        if (moded && target.storage.only_reads() && allow.access != AccessMode::read_only)
            map.error("access",
                      fmt::format("found \"{}\" for an export that is read_only, expected ro",
                                  to_word(allow.access)));
        if (named && !ruled.emplace(allow.session, allow.address).second)
            map.error("session", fmt::format("found \"{}\" a second time, expected one rule per "
                                             "session and address",
                                             allow.session));
        target.allow.push_back(std::move(allow));
    });
}

void read_delays(ConfigMap& map, DelayOptions& delay) {
    using When = DelayOptions::When;
    using Gate = DelayOptions::Gate;
    const auto duration = config_duration(rtrs::Duration{0}, delay_max);
    map.optional("read", duration, delay.read);
    map.optional("write", duration, delay.write);
    map.optional("flush", duration, delay.flush);
    const bool every = map.optional("every", config_integer(1u, every_max), delay.every);
    const bool by = map.optional("by", duration, delay.by);
    if (every && !by) map.error("every", "found every without by, expected both");
    if (by && !every) map.error("by", "found by without every, expected both");
    map.optional("when", config_enum<When>({{"before", When::before}, {"after", When::after}}),
                 delay.when);
    const bool gate = map.optional("gate", config_path(4095), delay.gate);
    const auto gates =
        config_enum<Gate>({{"write", Gate::writes}, {"read", Gate::reads}, {"all", Gate::all}});
    if (map.optional("gate_operations", gates, delay.gate_operations) && !gate)
        map.error("gate_operations", "found gate_operations without gate, expected both");
    if (map.optional("gate_count", config_integer(1u, every_max), delay.gate_count) && !gate)
        map.error("gate_count", "found gate_count without gate, expected both");
}

// What `storage` may be; within a delay anything but a delay.
enum class StorageWord : std::uint8_t { path, memory, null, nbd, delay };

ConfigType<StorageWord> storage_words(bool with_delay) {
    using Word = StorageWord;
    std::vector<std::pair<std::string, Word>> words{
        {"path", Word::path}, {"memory", Word::memory}, {"null", Word::null}, {"nbd", Word::nbd}};
    if (with_delay) words.emplace_back("delay", Word::delay);
    return config_enum<Word>(std::move(words));
}

// As libnbd finds it, which takes & and ; between parameters.
bool names_socket(std::string_view uri) {
    constexpr std::string_view key = "socket=";
    uri = uri.substr(0, uri.find('#'));
    auto begin = uri.find('?');
    while (begin != uri.npos) {
        uri.remove_prefix(begin + 1);
        begin = uri.find_first_of("&;");
        const std::string_view parameter = uri.substr(0, begin);
        if (parameter.starts_with(key) && parameter.size() > key.size()) return true;
    }
    return false;
}

// One that libnbd will never take would be tried for ever.
ConfigType<std::string> config_nbd_uri() {
    return {
        "a URI that begins with nbd:// or nbds://, or with nbd+unix:// or nbds+unix:// and has "
        "?socket=PATH",
        [](std::string_view text) -> std::optional<std::string> {
            const bool by_host = text.starts_with("nbd://") || text.starts_with("nbds://");
            const bool by_path =
                text.starts_with("nbd+unix://") || text.starts_with("nbds+unix://");
            if ((!by_host && !by_path) || by_path != names_socket(text)) return std::nullopt;
            return std::string(text);
        }};
}

void read_storage_path(ConfigMap& map, StorageOptions& storage) {
    storage.kind = Kind::path;
    map.required("path", config_path(4095), storage.path);
    map.optional("size", config_size(512, export_bytes_max), storage.size_bytes);
    map.optional("io", io_words(), storage.io);
}

// Of a mapping whose kind is wrong or absent: what the keys beside it belong to, so that they are
// no errors, too.
std::optional<StorageWord> storage_meant_by(ConfigMap& map, bool with_delay) {
    if (map.find("path")) return StorageWord::path;
    if (map.find("uri")) return StorageWord::nbd;
    if (with_delay && map.find("of")) return StorageWord::delay;
    if (map.find("size")) return StorageWord::memory;
    return std::nullopt;
}

void read_storage(ConfigMap& map, StorageOptions& storage) {
    const bool with_delay = !storage.delay;
    auto word = StorageWord::memory;
    if (!map.required("kind", storage_words(with_delay), word)) {
        const auto meant = storage_meant_by(map, with_delay);
        if (!meant) return;
        word = *meant;
    }
    if (word == StorageWord::path) return read_storage_path(map, storage);
    if (word == StorageWord::nbd) {
        storage.kind = Kind::nbd;
        map.required("uri", config_nbd_uri(), storage.uri);
        return;
    }
    if (word == StorageWord::delay) {
        storage.delay.emplace();
        if (const auto inner = map.require("of", "a mapping as that of storage"))
            inner->map([&](ConfigMap& of) { read_storage(of, storage); });
        return read_delays(map, *storage.delay);
    }
    storage.kind = word == StorageWord::null ? Kind::null : Kind::memory;
    std::uint64_t bytes = 0;
    if (map.required("size", config_size(512, export_bytes_max), bytes)) storage.size_bytes = bytes;
}

ConfigType<Uuid> config_uuid() {
    return {"a UUID, as \"6ba7b810-9dad-11d1-80b4-00c04fd430c8\"",
            [](std::string_view text) { return parse_uuid(text); }};
}

// Where the blocks are: `path` or `storage`, one of them.
void read_backing(ConfigMap& map, StorageOptions& storage) {
    // Asked for here so that the list of known keys has them in the order of the manual.
    const auto path = map.find("path");
    const auto other = map.find("storage");
    if (path && other)
        map.error("storage", "found both path and storage, expected one of them");
    else if (!path && !other)
        map.error("path", "found no such key, expected path or storage");
    if (path) path->scalar(config_path(4095), storage.path);
    if (other) other->map([&](ConfigMap& inner) { read_storage(inner, storage); });
    const bool sized = map.optional("size", config_size(512, export_bytes_max), storage.size_bytes);
    if (sized && other && !path)
        map.error("size", "found size beside storage, expected it inside of storage");
    if (map.optional("io", io_words(), storage.io) && other && !path)
        map.error("io", "found io beside storage, expected it only with path");
}

void read_block_size(ConfigMap& map, StorageOptions& storage) {
    storage.logical_block_bytes = storage.io == Io::direct ? 4096 : 512;
    map.optional("block_size", config_enum<std::uint32_t>({{"512", 512}, {"4096", 4096}}),
                 storage.logical_block_bytes);
    if (storage.size_bytes && *storage.size_bytes % storage.logical_block_bytes != 0)
        map.error(map.find("storage") ? "storage" : "size",
                  fmt::format("found {} bytes, expected a multiple of the block size {}",
                              *storage.size_bytes, storage.logical_block_bytes));
}

// Two exports of one path would fight for its lock, unless both only read.
void check_path_once(ConfigMap& map, const ServerConfig& config, Seen& seen) {
    const ServerConfig::Export& found = config.exports.back();
    const std::string& where = found.storage.place();
    if (where.empty()) return;
    const char* const key = map.find("storage") ? "storage" : "path";
    const auto [first, inserted] =
        seen.paths.emplace(where, Seen::User{config.exports.size() - 1, map.place(key)});
    if (inserted) return;
    const ServerConfig::Export& earlier = config.exports[first->second.index];
    if (found.storage.may_share_place(earlier.storage)) return;
    // Its name may be what is wrong with it.
    const std::string who =
        earlier.name.empty() ? "another export" : fmt::format("export \"{}\"", earlier.name);
    map.error(key, fmt::format("found \"{}\" which {} has already, expected another path, or both "
                               "read_only (first at {})",
                               where, who, first->second.place));
}

// Two exports of one name for their media would pass for each other, unless they are the same.
void read_uuid(ConfigMap& map, ServerConfig& config, Seen& seen) {
    StorageOptions& storage = config.exports.back().storage;
    if (!map.optional("uuid", config_uuid(), storage.uuid) || !storage.uuid) return;
    const auto [first, added] = seen.uuids.emplace(*storage.uuid, map.place("uuid"));
    const std::string& where = storage.place();
    const bool same_path =
        !where.empty() && !seen.uuids_of_paths.emplace(*storage.uuid, where).second;
    if (added || same_path) return;
    map.error("uuid", fmt::format("found \"{}\" a second time, expected each uuid once, or for one "
                                  "path (first at {})",
                                  to_text(*storage.uuid), first->second));
}

void read_export(const ConfigValue& item, ServerConfig& config, Seen& seen) {
    item.map([&](ConfigMap& map) {
        ServerConfig::Export& found = config.exports.emplace_back();
        if (map.required("name", config_volume_name(), found.name)) {
            const auto [first, added] = seen.names.emplace(
                found.name, Seen::User{config.exports.size() - 1, map.place("name")});
            if (!added)
                map.error("name", fmt::format("found \"{}\" a second time, expected each name "
                                              "once (first at {})",
                                              found.name, first->second.place));
        }
        read_backing(map, found.storage);
        read_block_size(map, found.storage);
        bool read_only = false;
        map.optional("read_only", config_bool(), read_only);
        found.storage.use = read_only ? Use::read_only : Use::read_write;
        check_path_once(map, config, seen);
        read_uuid(map, config, seen);
        Ruled ruled;
        map.optional_list("allow", {},
                          [&](const ConfigValue& rule) { read_allow(rule, found, ruled); });
    });
}

// What another file has said of an export, as rnbdctl --save has it now.
void read_amendment(const ConfigValue& item, ServerConfig& config, const Seen& seen) {
    item.map([&](ConfigMap& map) {
        std::string name;
        std::uint64_t bytes = 0;
        const bool named = map.required("export", config_volume_name(), name);
        const bool sized = map.required("size", config_size(512, export_bytes_max), bytes);
        if (!named) return;
        const auto found = seen.names.find(name);
        if (found == seen.names.end()) {
            // As what is left of an export that was taken out by hand: no reason not to start.
            return map.warning("export",
                               fmt::format("found \"{}\", which is no export of any file: "
                                           "passed over; take it out, too",
                                           name));
        }
        if (!sized) return;
        StorageOptions& storage = config.exports[found->second.index].storage;
        if (storage.kind == Kind::nbd)
            return map.error("size", "found a size for storage that has its own, expected none");
        if (bytes % storage.logical_block_bytes != 0)
            return map.error("size",
                             fmt::format("found {} bytes, expected a multiple of the block size {}",
                                         bytes, storage.logical_block_bytes));
        // Whoever has just changed the other one has to learn why nothing comes of it.
        if (storage.size_bytes && *storage.size_bytes != bytes) {
            std::string text = fmt::format(
                "found {} bytes, which count, not the {} that \"{}\" has at {}: "
                "take one of both out",
                bytes, *storage.size_bytes, name, found->second.place);
            map.warning("size", text);
            config.overruled.push_back({name, *storage.size_bytes, std::move(text)});
        }
        storage.size_bytes = bytes;
    });
}

void read_transport(ConfigMap& map, ServerConfig& config) {
    const bool depth_is_given =
        map.optional("queue_depth", config_integer(rtrs::limits::queue_depth_min, queue_depth_max),
                     config.queue_depth);
    std::uint64_t io_bytes = config.max_io_bytes;
    const std::uint64_t io_min = rtrs::limits::chunk_bytes_min - rtrs::limits::header_bytes_default;
    const std::uint64_t io_max = (64u << 20) - rtrs::limits::header_bytes_default;
    if (map.optional("max_io_size", config_size(io_min, io_max), io_bytes)) {
        const std::uint64_t unit = rtrs::limits::chunk_alignment_bytes;
        if (io_bytes % unit != 0)
            map.error("max_io_size",
                      fmt::format("found {} bytes, expected a multiple of {}, nearest valid value "
                                  "\"{}KiB\"",
                                  io_bytes, unit, (io_bytes + unit - 1) / unit * unit >> 10));
        config.max_io_bytes = static_cast<std::uint32_t>(io_bytes);
    }
    const std::uint64_t chunk = io_bytes + rtrs::limits::header_bytes_default;
    if (rtrs::limits::geometry_possible(config.queue_depth, chunk)) return;
    if (chunk % rtrs::limits::chunk_alignment_bytes != 0) return;
    const std::uint32_t deepest =
        1u << (rtrs::limits::immediate_payload_bits - rtrs::limits::ceil_log2(chunk));
    if (depth_is_given)
        map.error("queue_depth",
                  fmt::format("found {} with requests of {} bytes, expected at most {}",
                              config.queue_depth, io_bytes, deepest));
    else
        map.error("max_io_size", fmt::format("found {} bytes with the default queue_depth of {}, "
                                             "expected queue_depth with at most {} beside it",
                                             io_bytes, config.queue_depth, deepest));
}

void read_server(ConfigMap& map, ServerConfig& config) {
    Seen seen;
    map.required_list("listen", {.min = 1, .max = 64},
                      [&](const ConfigValue& item) { read_listen(item, config, seen); });
    map.optional_list("exports", {},
                      [&](const ConfigValue& item) { read_export(item, config, seen); });
    map.optional_list("amend", {},
                      [&](const ConfigValue& item) { read_amendment(item, config, seen); });
    map.optional("control", config_socket_path(), config.control);
    read_transport(map, config);
    map.optional("always_invalidate",
                 config_enum<AlwaysInvalidate>({{"true", AlwaysInvalidate::on},
                                                {"false", AlwaysInvalidate::off},
                                                {"if-possible", AlwaysInvalidate::if_possible}}),
                 config.always_invalidate);
    map.optional("data_checksum", config_bool(), config.data_checksum);
    if (read_heartbeat(map, config.heartbeat_interval, config.heartbeat_timeout)) {
        config.kernel_heartbeat_timeout = config.heartbeat_timeout;
    }
    read_loop_settings(map, config);
    map.optional("prompt_storage", config_bool(), config.prompt_storage);
    map.optional("polled_io", config_bool(), config.polled_io);
    map.optional("zero_copy_sends", config_bool(), config.zero_copy_sends);
    map.optional("registered_io", config_bool(), config.registered_io);
    map.optional("read_portions", config_bool(), config.read_portions);
    read_process_settings(map, config);
    if (config.metrics.empty() || config.metrics.starts_with("unix:")) return;
    const ServerConfig::Listen metrics{.address = config.metrics};
    const auto taken = std::ranges::find_if(
        config.listen, [&](const auto& listen) { return collide(listen, metrics); });
    if (taken != config.listen.end())
        map.error("metrics", fmt::format("found \"{}\" beside the listener at \"{}\", expected "
                                         "another address",
                                         config.metrics, taken->address));
}

}  // namespace

bool collide(const ServerConfig::Listen& one, const ServerConfig::Listen& other) {
    if (one.fabric != other.fabric) return false;
    const bool same = one.address == other.address && !one.address.ends_with(":0");
    return same || addresses_overlap(one.address, other.address);
}

const char* to_word(ConfigFabric fabric) noexcept {
    return fabric == ConfigFabric::tcp ? "tcp" : "rdma";
}

std::expected<ServerConfig, std::vector<ConfigError>> ServerConfig::parse(
    const std::vector<ConfigSource>& sources) {
    return read_config<ServerConfig>(sources, read_server);
}

std::expected<ServerConfig, std::vector<ConfigError>> ServerConfig::parse(std::string_view text,
                                                                          std::string file) {
    return parse(std::vector{ConfigSource{std::move(file), std::string(text)}});
}

std::expected<ServerConfig::Export, std::vector<ConfigError>> ServerConfig::parse_export(
    std::string_view text, std::string file) {
    ConfigDocument document(text, std::move(file));
    ServerConfig config;
    Seen seen;
    if (document.well_formed()) read_export(document.root(), config, seen);
    if (auto errors = document.errors(); !errors.empty()) return std::unexpected(std::move(errors));
    return std::move(config.exports.front());
}

}  // namespace rnbd
