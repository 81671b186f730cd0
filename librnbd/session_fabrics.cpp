#include "librnbd/session_fabrics.h"

#include "rtrs/fabrics.h"

namespace rnbd::library {
namespace {

std::unique_ptr<rtrs::Fabric> tcp(rtrs::Reactor& reactor, const Settings& settings) {
    using Checksum = rtrs::TcpFabricOptions::DataChecksum;
    return rtrs::make_tcp_fabric(
        reactor, {.data_checksum = settings.data_checksum ? Checksum::on : Checksum::off});
}

}  // namespace

bool rdma_is_built_in() noexcept {
#ifdef RTRS_VERBS
    return true;
#else
    return false;
#endif
}

SessionFabrics::SessionFabrics(rtrs::Reactor& reactor, const Settings& settings)
    : tcp_(tcp(reactor, settings)), rdma_(rtrs::rdma_fabrics(reactor, tracer_)) {}

std::expected<rtrs::PathAddress, rtrs::RdmaDevices::Error> SessionFabrics::address_of(
    const PathSetting& path) {
    rtrs::PathAddress address{.fabric = tcp_.get(),
                              .source = path.source,
                              .destination = path.destination,
                              .priority = path.priority,
                              .label = path.label()};
    if (path.fabric == PathSetting::Fabric::rdma) {
        const auto fabric = rdma_.towards(path.source, path.destination);
        if (!fabric) return std::unexpected(fabric.error());
        address.fabric = *fabric;
    }
    return address;
}

}  // namespace rnbd::library
