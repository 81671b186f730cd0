// The commands of rnbd-server in rnbdctl's tree.

#include <fmt/format.h>

#include <chrono>

#include "daemon/config/types.h"
#include "rnbdctl/command_tree.h"
#include "rnbdctl/views.h"
#include "rtrs/base/seconds.h"

namespace rnbd {

using nlohmann::json;

namespace {

// "host-a=rw", "host-a@10.0.0.0/8=ro": a rule of `allow`.
std::optional<json> rule_of(const std::string& text) {
    const auto equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0) return std::nullopt;
    json rule{{"access", text.substr(equals + 1)}};
    const std::string who = text.substr(0, equals);
    const auto at = who.rfind('@');
    rule["session"] = who.substr(0, at);
    if (at != std::string::npos) rule["address"] = who.substr(at + 1);
    return rule;
}

}  // namespace

void CommandTree::add_exports() {
    exports_ = add(app_, "exports", "The server's exports, and changes of them (rnbd-server)",
                   Daemon::server, [this](Request& request) {
                       request.command = "exports";
                       request.view = exports_view;
                       if (!options_.exported.empty())
                           request.arguments = {{"export", options_.exported}};
                       return understood;
                   });
    option(*exports_, "export", options_.exported, "EXPORT", "Only this one");
    exports_->require_subcommand(0, 1);
    auto* added =
        add(*exports_, "add", "Export a file or block device from now on", Daemon::server,
            [this](Request& request) -> std::optional<std::string> {
                json description{{"name", options_.exported}, {"path", options_.path}};
                if (!options_.size.empty()) description["size"] = options_.size;
                if (!options_.io.empty()) description["io"] = options_.io;
                if (!options_.block_size.empty()) description["block_size"] = options_.block_size;
                if (options_.read_only) description["read_only"] = true;
                if (!options_.uuid.empty()) description["uuid"] = options_.uuid;
                description["allow"] = json::array();
                for (const std::string& text : options_.allow) {
                    const auto rule = rule_of(text);
                    if (!rule) return "--allow: expected SESSION[@ADDRESS]=ACCESS, found " + text;
                    description["allow"].push_back(*rule);
                }
                request.command = "export_add";
                request.options = {{"name", "NAME"},    {"path", "FILE"},
                                   {"size", "--size"},  {"io", "--io"},
                                   {"uuid", "--uuid"},  {"block_size", "--block-size"},
                                   {"allow", "--allow"}};
                request.view = options_.allow.empty() ? export_for_nobody_view : export_view;
                request.arguments = {{"export", description}};
                if (options_.save) {
                    request.saved = [description](const json&) {
                        return SavedPiece{.put = {{"exports", json::array({description})}}};
                    };
                }
                return understood;
            });
    option(*added, "export", options_.exported, "NAME", "What clients ask for")->required();
    option(*added, "path", options_.path, "FILE", "A file or a block device, absolute")->required();
    option(*added, "--size", options_.size, "SIZE", "Create an absent file so large, as 10GiB");
    option(*added, "--io", options_.io, "IO", "buffered (default) or direct");
    option(*added, "--block-size", options_.block_size, "BLOCK", "512 or 4096");
    added->add_flag("--ro", options_.read_only, "Nobody may write");
    option(*added, "--uuid", options_.uuid, "UUID",
           "What clients know its content by (default: made of the file)");
    option(*added, "--allow", options_.allow, "RULE",
           "SESSION[@ADDRESS]=ACCESS: who may open it, ro, rw or migration (repeatable)")
        ->allow_extra_args(false);
    added->add_flag("--save", options_.save, save_help);
    add_export_remove();
    add_export_resize();
    add_export_evict();
}

void CommandTree::add_export_remove() {
    auto* remove =
        add(*exports_, "remove", "Export it no longer; done when it is flushed", Daemon::server,
            [this](Request& request) {
                request.command = "export_remove";
                request.view = export_view;
                request.arguments = {{"export", options_.exported}, {"force", options_.force}};
                if (options_.save) {
                    const json named{{"export", options_.exported}};
                    json gone = named;
                    gone.update({{"state", "removed"}, {"reason", ""}});
                    forget(request, "exports", options_.exported,
                           {.gone = std::move(gone), .command = "exports", .arguments = named});
                }
                return understood;
            });
    option(*remove, "export", options_.exported, "EXPORT", "The export")->required();
    remove->add_flag("--force", options_.force, "Even if sessions have it open");
    remove->add_flag("--save", options_.save, forget_help);
}

void CommandTree::add_export_resize() {
    auto* resize =
        add(*exports_, "resize", "Change its size, or take over the size of its device",
            Daemon::server, [this](Request& request) -> std::optional<std::string> {
                request.command = "export_resize";
                request.view = export_resize_view;
                // The storage says why, and the log no more.
                request.failed_hint.clear();
                request.arguments = {{"export", options_.exported}};
                if (!options_.size.empty()) {
                    const auto bytes = parse_size(options_.size);
                    if (!bytes)
                        return fmt::format(
                            "size: found \"{}\", expected bytes, or a number with KiB, MiB, GiB, "
                            "TiB or PiB",
                            options_.size);
                    request.arguments["size_bytes"] = *bytes;
                }
                if (options_.shrink) request.arguments["shrink"] = true;
                if (options_.save && options_.size.empty())
                    return "--save: found no size, expected the one to keep";
                if (options_.save) request.saved = amended("export", "size", "size_bytes");
                return understood;
            });
    option(*resize, "export", options_.exported, "EXPORT", "The export")->required();
    option(*resize, "size", options_.size, "SIZE",
           "As 10GiB; none: what its file or device has by now");
    resize->add_flag("--shrink", options_.shrink, "Cut a file: what lies beyond is lost");
    resize->add_flag("--save", options_.save, save_help);
}

void CommandTree::add_export_evict() {
    auto* evict =
        add(*exports_, "evict", "Take it from a session", Daemon::server, [this](Request& request) {
            request.command = "export_evict";
            request.view = export_evict_view;
            request.arguments = {{"export", options_.exported}, {"session", options_.session}};
            if (options_.out) request.arguments["out_s"] = rtrs::in_seconds(*options_.out);
            return understood;
        });
    option(*evict, "export", options_.exported, "EXPORT", "The export")->required();
    option(*evict, "session", options_.session, "SESSION", "The session")->required();
    time_option(*evict, "--for", options_.out, {.min = {}},
                "How long it may not open it again, as 5min, or seconds (default: 60s)");
}

void CommandTree::add_drain() {
    auto* drain = add(app_, "drain", "Let nobody in, and wait until nothing is open (rnbd-server)",
                      Daemon::server, [this](Request& request) {
                          request.command = "drain";
                          request.view = drain_view;
                          request.arguments = {{"set", options_.off ? "off" : "on"}};
                          if (options_.evict) request.arguments["evict"] = true;
                          if (!options_.off && !options_.no_wait)
                              request.course = Request::Course::drain;
                          return understood;
                      });
    auto* evict = drain->add_flag("--evict", options_.evict, "Take what is open from all sessions");
    auto* off = drain->add_flag("--off", options_.off, "Let sessions in again")->excludes(evict);
    drain->add_flag("--no-wait", options_.no_wait, "Only begin, or look how far it is")
        ->excludes(off);
}

}  // namespace rnbd
