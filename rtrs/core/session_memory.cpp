#include "rtrs/core/session_memory.h"

#include <algorithm>
#include <string>

#include "rtrs/base/error.h"

namespace rtrs {

std::error_code SessionMemory::open() {
    control_ = LazyMemory(control_bytes);
    return control_ ? std::error_code{} : from_errno(ENOMEM);
}

std::expected<FabricMemory*, std::error_code> SessionMemory::of(Fabric& fabric) {
    const auto same = std::ranges::find_if(
        fabrics_, [&](const auto& memory) { return memory->fabric == &fabric; });
    if (same != fabrics_.end()) return same->get();
    auto memory = std::make_unique<FabricMemory>();
    memory->fabric = &fabric;
    auto domain = fabric.create_domain();
    if (!domain) return std::unexpected(domain.error());
    memory->domain = std::move(*domain);
    auto control =
        memory->domain->register_memory(control_.bytes(), Access::local | Access::remote_write);
    if (!control) return std::unexpected(control.error());
    memory->control = std::move(*control);
    if (payload_) {  // a path that was added later
        if (const auto error = register_with(*memory, {payload_, headers_})) {
            return std::unexpected(error);
        }
    }
    return fabrics_.emplace_back(std::move(memory)).get();
}

std::expected<void, Unusable> SessionMemory::make_buffers(FabricMemory& first,
                                                          const ChunkGeometry& sizes) {
    const std::size_t stride = round_to_page(sizes.io_bytes_max);
    LazyMemory payload(stride * (sizes.queue_depth - 1));
    LazyMemory headers(round_to_page(header_stride * sizes.queue_depth));
    if (!payload || !headers) {
        const std::error_code error = from_errno(ENOMEM);
        return std::unexpected(Unusable{error, error.message()});
    }
    if (const auto error = register_with(first, {payload, headers})) {
        return std::unexpected(refused_by(first, error));
    }
    payload_stride_ = stride;
    payload_ = std::move(payload);
    headers_ = std::move(headers);
    return {};
}

std::expected<void, Unusable> SessionMemory::register_buffers(FabricMemory& memory) const {
    if (memory.payload) return {};
    const auto error = register_with(memory, {payload_, headers_});
    if (error) return std::unexpected(refused_by(memory, error));
    return {};
}

std::error_code SessionMemory::register_with(FabricMemory& memory, const Buffers& buffers) {
    auto payload = memory.domain->register_memory(buffers.payload.bytes(),
                                                  Access::local | Access::remote_write);
    if (!payload) return payload.error();
    auto headers = memory.domain->register_memory(buffers.headers.bytes(), Access::local);
    if (!headers) return headers.error();
    memory.payload = std::move(*payload);
    memory.headers = std::move(*headers);
    return {};
}

Unusable SessionMemory::refused_by(const FabricMemory& memory, std::error_code error) {
    const std::string device = memory.fabric->device();
    return {error, (device.empty() ? memory.fabric->name() : device) +
                       " does not take this session's memory: " + error.message()};
}

}  // namespace rtrs
