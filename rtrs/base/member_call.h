// Turns a member function into what timers and other callbacks take: a plain function of their
// context.
//
//   Timer timer{clock, this, member_call<&Watchdog::is_due>};
#pragma once

namespace rtrs {

template <typename Method>
struct OwnerOf;
template <typename Owner, typename... Arguments>
struct OwnerOf<void (Owner::*)(Arguments...)> {
    using Type = Owner;
};
template <typename Owner, typename... Arguments>
struct OwnerOf<void (Owner::*)(Arguments...) noexcept> {
    using Type = Owner;
};

// context: a pointer to an object of exactly that class.
template <auto method>
void member_call(void* context) {
    (static_cast<typename OwnerOf<decltype(method)>::Type*>(context)->*method)();
}

}  // namespace rtrs
