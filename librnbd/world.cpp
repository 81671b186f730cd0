// The fabric and the tracer of a session.
#include "librnbd/world.h"

#include "rtrs/fabrics.h"

namespace rnbd::library {
namespace {

// What a program wants to know comes as events and error texts.
class QuietTracer final : public rtrs::Tracer {
    void trace(rtrs::TraceLevel, std::string_view, std::string_view, std::string_view) override {}
};

}  // namespace

std::unique_ptr<rtrs::Fabric> make_fabric(rtrs::Reactor& reactor, const Settings& settings) {
    using Checksum = rtrs::TcpFabricOptions::DataChecksum;
    return rtrs::make_tcp_fabric(
        reactor, {.data_checksum = settings.data_checksum ? Checksum::on : Checksum::off});
}

std::unique_ptr<rtrs::Tracer> make_tracer() { return std::make_unique<QuietTracer>(); }

}  // namespace rnbd::library
