// What was found about each statement, and how it is told: as text and as a JSON document.
//
// A statement may be looked at several times: one "not ok" makes it not ok, whatever else was seen.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/statements.h"

namespace conformance {

// Of the JSON document. A change that a reader would notice makes it greater.
inline constexpr int report_schema_version = 1;

enum class Verdict { not_applicable, ok, not_ok };

struct Finding {
    Verdict verdict = Verdict::not_applicable;
    std::string seen;      // ok: what made it so (may be empty); not ok: what happened instead
    std::string expected;  // not ok
    std::string reason;    // not applicable: why
};

class Report {
  public:
    // subject: who is under test.
    explicit Report(Subject subject) : subject_(subject) {}

    void ok(std::string_view id, std::string_view seen = {});
    void not_ok(std::string_view id, std::string_view seen, std::string_view expected);
    void not_applicable(std::string_view id, std::string_view reason);
    // ok, or not ok with seen and expected.
    bool check(std::string_view id, bool kept, std::string_view seen, std::string_view expected);
    // Not to the letter, but by an extension that was declared: ok, and told.
    void extension(std::string_view id, std::string_view seen);
    bool judged(std::string_view id) const { return findings_.contains(std::string(id)); }

    // Every statement has a finding afterwards: those of others' and runs are not applicable, and
    // what no scenario looked at is not applicable because of `reason`.
    void complete(std::string_view reason);
    int count(Verdict verdict) const;
    bool passed() const { return count(Verdict::not_ok) == 0; }

    std::string text(const std::map<std::string, std::string>& facts) const;
    std::string json(const std::map<std::string, std::string>& facts) const;

  private:
    Finding& at(std::string_view id);
    Subject subject_;
    std::map<std::string, Finding> findings_;
    std::map<std::string, std::vector<std::string>> extensions_;
};

}  // namespace conformance
