#include "daemon/metrics/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/seconds.h"

namespace rnbd {

namespace {

std::string_view to_word(MetricType type) noexcept {
    switch (type) {
        case MetricType::gauge:
            return "gauge";
        case MetricType::counter:
            return "counter";
        case MetricType::histogram:
            return "histogram";
        case MetricType::info:
            return "info";
    }
    return "unknown";
}

std::string_view suffix_of(MetricType type) noexcept {
    if (type == MetricType::counter) return "_total";
    return type == MetricType::info ? "_info" : "";
}

using rtrs::in_seconds;

// Within the quotes of a label's value. Names come from peers: bytes that are no printable ASCII
// are written as \xNN, so that the text is UTF-8 whatever they were.
void append_escaped(std::string& to, std::string_view value) {
    for (const char c : value) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '\\' || c == '"') {
            to += '\\';
            to += c;
        } else if (byte < 0x20 || byte > 0x7e) {
            fmt::format_to(std::back_inserter(to), "\\\\x{:02x}", byte);
        } else {
            to += c;
        }
    }
}

}  // namespace

void MetricsText::family(const MetricFamily& family) {
    name_ = family.unit.empty() ? std::string(family.name)
                                : fmt::format("{}_{}", family.name, family.unit);
    labels_ = family.labels;
    type_ = family.type;
    seen_labels_.clear();
    RTRS_ASSERT(seen_names_.insert(name_).second);
    auto out = std::back_inserter(text_);
    fmt::format_to(out, "# TYPE {} {}\n", name_, to_word(type_));
    if (!family.unit.empty()) fmt::format_to(out, "# UNIT {} {}\n", name_, family.unit);
    fmt::format_to(out, "# HELP {} {}\n", name_, family.help);
}

bool MetricsText::is_new(Labels labels) {
    const auto count = static_cast<std::size_t>(
        std::ranges::count_if(labels_, [](std::string_view label) { return !label.empty(); }));
    RTRS_ASSERT(labels.size() == count);
    labels_text_.clear();
    for (std::size_t i = 0; i < count; ++i) {
        if (i > 0) labels_text_ += ',';
        fmt::format_to(std::back_inserter(labels_text_), "{}=\"", labels_[i]);
        append_escaped(labels_text_, std::data(labels)[i]);
        labels_text_ += '"';
    }
    return seen_labels_.insert(labels_text_).second;
}

void MetricsText::line(std::string_view suffix, std::string_view more_labels,
                       std::string_view value) {
    text_ += name_;
    text_ += suffix;
    if (!labels_text_.empty() || !more_labels.empty()) {
        text_ += '{';
        text_ += labels_text_;
        if (!labels_text_.empty() && !more_labels.empty()) text_ += ',';
        text_ += more_labels;
        text_ += '}';
    }
    text_ += ' ';
    text_ += value;
    text_ += '\n';
}

void MetricsText::sample(Labels labels, std::uint64_t value) {
    RTRS_ASSERT(type_ != MetricType::histogram);
    if (is_new(labels)) line(suffix_of(type_), "", fmt::format("{}", value));
}

void MetricsText::sample(Labels labels, double value) {
    RTRS_ASSERT(type_ != MetricType::histogram);
    if (is_new(labels)) line(suffix_of(type_), "", fmt::format("{}", value));
}

void MetricsText::histogram(Labels labels, const rtrs::LatencyHistogram& histogram) {
    RTRS_ASSERT(type_ == MetricType::histogram);
    if (!is_new(labels)) return;
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < rtrs::LatencyHistogram::bucket_count; ++i) {
        below += histogram.buckets()[i];
        const rtrs::Duration bound = rtrs::LatencyHistogram::upper_bound(i);
        const std::string le = bound == rtrs::Duration::max()
                                   ? std::string("le=\"+Inf\"")
                                   : fmt::format("le=\"{}\"", in_seconds(bound));
        line("_bucket", le, fmt::format("{}", below));
    }
    line("_count", "", fmt::format("{}", histogram.count()));
    line("_sum", "", fmt::format("{}", in_seconds(histogram.sum())));
}

std::string MetricsText::finish() {
    text_ += "# EOF\n";
    return std::move(text_);
}

}  // namespace rnbd
