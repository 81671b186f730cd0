// Ring operations and turn tasks that end in a member function of their owner.
#pragma once

#include "rtrs/reactor.h"

namespace rtrs::tcp {

template <typename Owner, void (Owner::*method)(const Operation::Result&)>
struct MemberOperation : Operation {
    explicit MemberOperation(Owner& its_owner) noexcept : Operation(&done), owner(its_owner) {}
    static void done(Operation& operation, const Result& result) {
        (static_cast<MemberOperation&>(operation).owner.*method)(result);
    }
    Owner& owner;
};

template <typename Owner, void (Owner::*method)()>
struct MemberTask : TurnTask {
    explicit MemberTask(Owner& its_owner) noexcept : TurnTask(&run_member), owner(its_owner) {}
    static void run_member(TurnTask& task) { (static_cast<MemberTask&>(task).owner.*method)(); }
    Owner& owner;
};

}  // namespace rtrs::tcp
