// The 93 statements of the conformance checklist: ids and short names, in its order.
#pragma once

#include <span>
#include <string_view>

namespace conformance {

// Of whom a statement speaks.
enum class Subject {
    client,
    server,
    both,
    run,  // two programs and a load: not one program alone
};

struct Statement {
    std::string_view id;
    Subject subject;
    std::string_view name;
};

std::span<const Statement> statements() noexcept;
// ASSUMES: it is one of the table's.
const Statement& statement(std::string_view id) noexcept;

}  // namespace conformance
