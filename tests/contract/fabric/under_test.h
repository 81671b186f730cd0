// What the fabric contract suite needs from an implementation: two fabrics that can reach each
// other, and a way to let time pass. Each program links the suite with one make_under_test().
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "rtrs/fabric.h"

namespace rtrs::contract {

// What was asked for; the test fails with the text of the error otherwise, which value() has not.
template <class T>
T got(std::expected<T, std::error_code> result) {
    if (!result) throw std::system_error(result.error());
    return std::move(*result);
}

class FabricUnderTest {
  public:
    virtual ~FabricUnderTest() = default;
    virtual Fabric& client() = 0;
    virtual Fabric& server() = 0;
    // "HOST:0" of the server, and "HOST" of the client.
    virtual std::string server_address() const = 0;
    virtual std::string client_host() const = 0;
    // An address of the server's host on which nobody listens.
    virtual std::string deserted_address() const = 0;
    // Runs turns until done(), or a generous deadline; returns done().
    virtual bool pump_until(const std::function<bool()>& done) = 0;
    // Runs turns for long enough that what was on its way has arrived.
    virtual void settle() = 0;
    // Ends the server's process without a word to it. False: cannot be done here.
    virtual bool kill_server() { return false; }
    // What some devices cannot: their tests are skipped aloud.
    // A window's key reaches nothing of its region outside of the window.
    virtual bool enforces_window_bounds() const { return true; }
    // A peer may kill a window's key.
    virtual bool has_remote_invalidation() const { return true; }
    // Endpoint::disconnect(why).
    virtual bool tells_why() const { return true; }
};

std::unique_ptr<FabricUnderTest> make_under_test();

}  // namespace rtrs::contract
