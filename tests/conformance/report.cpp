#include "tests/conformance/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace conformance {
namespace {

constexpr std::string_view name_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::ok:
            return "ok";
        case Verdict::not_ok:
            return "not ok";
        case Verdict::not_applicable:
            return "not applicable";
    }
    return "";
}

// Adds what is new, and not without end.
void append(std::string& to, std::string_view more) {
    if (more.empty() || to.find(more) != std::string::npos || to.size() > 400) return;
    if (!to.empty()) to += "; ";
    to += more;
}

}  // namespace

Finding& Report::at(std::string_view id) { return findings_[std::string(statement(id).id)]; }

void Report::ok(std::string_view id, std::string_view seen) {
    Finding& finding = at(id);
    if (finding.verdict == Verdict::not_ok) return;
    finding.verdict = Verdict::ok;
    append(finding.seen, seen);
}

void Report::not_ok(std::string_view id, std::string_view seen, std::string_view expected) {
    Finding& finding = at(id);
    if (finding.verdict != Verdict::not_ok) finding = {.verdict = Verdict::not_ok};
    append(finding.seen, seen);
    append(finding.expected, expected);
}

void Report::not_applicable(std::string_view id, std::string_view reason) {
    append(at(id).reason, reason);
}

bool Report::check(std::string_view id, bool kept, std::string_view seen,
                   std::string_view expected) {
    if (kept) {
        ok(id);
    } else {
        not_ok(id, seen, expected);
    }
    return kept;
}

void Report::extension(std::string_view id, std::string_view seen) {
    ok(id);
    auto& known = extensions_[std::string(id)];
    if (std::find(known.begin(), known.end(), seen) == known.end()) known.emplace_back(seen);
}

void Report::complete(std::string_view reason) {
    for (const Statement& each : statements()) {
        if (judged(each.id)) continue;
        if (each.subject == Subject::run) {
            not_applicable(each.id, "a run of two programs under load, not of one alone");
        } else if (each.subject != Subject::both && each.subject != subject_) {
            not_applicable(each.id, each.subject == Subject::client ? "speaks of a client"
                                                                    : "speaks of a server");
        } else {
            not_applicable(each.id, reason);
        }
    }
}

int Report::count(Verdict verdict) const {
    int count = 0;
    for (const auto& [id, finding] : findings_) count += finding.verdict == verdict ? 1 : 0;
    return count;
}

std::string Report::text(const std::map<std::string, std::string>& facts) const {
    std::string out;
    for (const auto& [name, value] : facts) out += fmt::format("# {}: {}\n", name, value);
    for (const Statement& each : statements()) {
        const auto found = findings_.find(std::string(each.id));
        if (found == findings_.end()) continue;
        const Finding& finding = found->second;
        out += fmt::format("{:<4} {:<14}  {}\n", each.id, name_of(finding.verdict), each.name);
        const auto line = [&](std::string_view label, std::string_view text) {
            if (!text.empty()) out += fmt::format("       {}: {}\n", label, text);
        };
        line("seen", finding.seen);
        line("expected", finding.expected);
        if (finding.verdict == Verdict::not_applicable) line("why", finding.reason);
        if (finding.verdict != Verdict::not_applicable) line("not tried", finding.reason);
        const auto known = extensions_.find(std::string(each.id));
        if (known == extensions_.end()) continue;
        for (const std::string& one : known->second) line("extension", one);
    }
    out += fmt::format("# {} ok, {} not ok, {} not applicable\n", count(Verdict::ok),
                       count(Verdict::not_ok), count(Verdict::not_applicable));
    return out;
}

std::string Report::json(const std::map<std::string, std::string>& facts) const {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const Statement& each : statements()) {
        const auto found = findings_.find(std::string(each.id));
        if (found == findings_.end()) continue;
        const Finding& finding = found->second;
        nlohmann::ordered_json one{
            {"id", each.id}, {"name", each.name}, {"verdict", name_of(finding.verdict)}};
        if (!finding.seen.empty()) one["seen"] = finding.seen;
        if (!finding.expected.empty()) one["expected"] = finding.expected;
        if (!finding.reason.empty()) one["reason"] = finding.reason;
        const auto known = extensions_.find(std::string(each.id));
        if (known != extensions_.end()) one["extensions"] = known->second;
        all.push_back(one);
    }
    const nlohmann::ordered_json document{{"schema", "rnbd-conformance"},
                                          {"version", report_schema_version},
                                          {"facts", facts},
                                          {"ok", count(Verdict::ok)},
                                          {"not_ok", count(Verdict::not_ok)},
                                          {"not_applicable", count(Verdict::not_applicable)},
                                          {"statements", all}};
    return document.dump(1) + "\n";
}

}  // namespace conformance
