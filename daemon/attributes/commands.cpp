#include "daemon/attributes/commands.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/control/arguments.h"
#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

using nlohmann::json;

constexpr rtrs::Duration look_interval = std::chrono::milliseconds(10);
// As sysfs: what is written is at most a page.
constexpr std::size_t value_bytes_max = 4096;

ControlError code_of(int number) noexcept {
    switch (number) {
        case ENOENT:
        case ENODEV:
            return ControlError::not_found;
        case EEXIST:
            return ControlError::exists;
        case EBUSY:
        case EALREADY:
            return ControlError::busy;
        case EINVAL:
        case ERANGE:
        case EISDIR:
        case ENOTDIR:
            return ControlError::bad_arguments;
        case EACCES:
        case EPERM:
        case EROFS:
            return ControlError::denied;
        case ETIMEDOUT:
            return ControlError::timed_out;
        case ESHUTDOWN:
            return ControlError::stopping;
        default:
            return ControlError::failed;
    }
}

int number_of(ControlError code) noexcept {
    switch (code) {
        case ControlError::bad_request:
        case ControlError::unknown_command:
        case ControlError::bad_arguments:
            return EINVAL;
        case ControlError::not_found:
            return ENOENT;
        case ControlError::exists:
            return EEXIST;
        case ControlError::busy:
            return EBUSY;
        case ControlError::denied:
            return EACCES;
        case ControlError::timed_out:
            return ETIMEDOUT;
        case ControlError::stopping:
            return ESHUTDOWN;
        case ControlError::failed:
            return EIO;
    }
    return EIO;
}

json describe(const AttributeNode& node) {
    json description{{"path", node.path},
                     {"kind", to_string(node.kind)},
                     {"mode", fmt::format("{:04o}", node.mode)}};
    if (node.kind == AttributeNode::Kind::link) description["target"] = node.target;
    return description;
}

AttributeError with_path(AttributeError error, const std::string& path) {
    if (error.message.empty()) error.message = std::strerror(error.number);
    error.message = path + ": " + error.message;
    return error;
}

void get(const AttributeTree& tree, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const std::string path = arguments.text("path");
    if (const auto failure = arguments.failure()) return reply.fail(*failure);
    const auto value = tree.read(path);
    if (!value) return reply.fail(control_failure(with_path(value.error(), path)));
    reply.succeed({{"path", path}, {"value", *value}});
}

void set(const AttributeTree& tree, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const std::string path = arguments.text("path");
    const std::string value = arguments.text("value", ControlArguments::Need::present);
    if (const auto failure = arguments.failure()) return reply.fail(*failure);
    if (value.size() > value_bytes_max) {
        return reply.fail(ControlError::bad_arguments,
                          fmt::format("value: expected at most {} bytes", value_bytes_max));
    }
    // No allow rule would change that.
    const auto node = tree.find(path);
    if (node && node->kind == AttributeNode::Kind::file && (node->mode & 0222) == 0) {
        return reply.fail({ControlError::bad_arguments,
                           path + ": found a read-only attribute, expected one that can be set",
                           EACCES});
    }
    // The reply outlives this call: it is given when the write has had its effect.
    const auto later = std::make_shared<ControlReply>(std::move(reply));
    tree.write(path, value, [later, path](const AttributeWritten& written) {
        if (written) return later->succeed({{"path", path}});
        later->fail(control_failure(with_path(written.error(), path)));
    });
}

void list(const AttributeTree& tree, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const std::string path = arguments.text("path");
    const bool recursive = arguments.flag("recursive");
    if (const auto failure = arguments.failure()) return reply.fail(*failure);
    const auto node = tree.find(path);
    if (!node) return reply.fail(control_failure(with_path(node.error(), path)));
    json document = describe(*node);
    document["entries"] = json::array();
    using Depth = AttributeTree::Depth;
    const auto children = tree.list(node->path, recursive ? Depth::all : Depth::children);
    if (children) {
        for (const AttributeNode& child : *children) {
            document["entries"].push_back(describe(child));
        }
    }
    reply.succeed(document);
}

// What docs/reference/attributes.md is made from.
void table(const AttributeTree& tree, ControlReply reply) {
    json rows = json::array();
    for (const Attribute& attribute : tree.attributes()) {
        rows.push_back({{"pattern", attribute.pattern},
                        {"mode", fmt::format("{:04o}", attribute.mode())},
                        {"read", attribute.read_format},
                        {"write", attribute.write_format},
                        {"remark", attribute.remark}});
    }
    reply.succeed({{"attributes", rows}});
}

}  // namespace

ControlFailure control_failure(const AttributeError& error) {
    return {code_of(error.number),
            error.message.empty() ? std::strerror(error.number) : error.message, error.number};
}

AttributeError attribute_error(const ControlFailure& failure) {
    return {failure.error_number != 0 ? failure.error_number : number_of(failure.code),
            failure.message};
}

void add_attribute_commands(ControlServer& control, const AttributeTree& tree) {
    control.add_command("attribute_get", [&tree](const json& arguments, ControlReply reply) {
        get(tree, arguments, std::move(reply));
    });
    control.add_command("attribute_set", [&tree](const json& arguments, ControlReply reply) {
        set(tree, arguments, std::move(reply));
    });
    control.add_command("attribute_table",
                        [&tree](ControlReply reply) { table(tree, std::move(reply)); });
    control.add_command("attribute_list", [&tree](const json& arguments, ControlReply reply) {
        list(tree, arguments, std::move(reply));
    });
}

AttributeWaits::AttributeWaits(rtrs::Clock& clock)
    : clock_(clock), timer_(clock, this, rtrs::member_call<&AttributeWaits::check>) {}

void AttributeWaits::wait(Look look, AttributeDone done) {
    if (const auto written = look()) return done(*written);
    waits_.push_back({std::move(look), std::move(done), clock_.now() + time_max});
    if (!timer_.armed()) timer_.arm(clock_.now() + look_interval);
}

void AttributeWaits::check() {
    const rtrs::Instant now = clock_.now();
    for (auto wait = waits_.begin(); wait != waits_.end();) {
        auto written = wait->look();
        if (!written && now >= wait->deadline) {
            written = std::unexpected(
                AttributeError{ETIMEDOUT, "it has not happened in time; it may still happen"});
        }
        if (!written) {
            ++wait;
            continue;
        }
        // done() may ask for another wait.
        const AttributeDone done = std::move(wait->done);
        wait = waits_.erase(wait);
        done(*written);
    }
    if (!waits_.empty()) timer_.arm(now + look_interval);
}

}  // namespace rnbd
