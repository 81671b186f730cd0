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

std::string name_of(const MetricFamily& family) {
    return family.unit.empty() ? std::string(family.name)
                               : fmt::format("{}_{}", family.name, family.unit);
}

// By bucket: its label.
const std::vector<std::string>& bucket_labels() {
    static const std::vector<std::string> labels = [] {
        std::vector<std::string> made;
        for (std::size_t i = 0; i < rtrs::LatencyHistogram::bucket_count; ++i) {
            const rtrs::Duration bound = rtrs::LatencyHistogram::upper_bound(i);
            made.push_back(bound == rtrs::Duration::max()
                               ? std::string("le=\"+Inf\"")
                               : fmt::format("le=\"{}\"", in_seconds(bound)));
        }
        return made;
    }();
    return labels;
}

std::string_view as_text(const fmt::format_int& number) noexcept {
    return {number.data(), number.size()};
}

// Of a line, beside the family's name and the labels: suffix, a bucket's label, marks, value.
constexpr std::size_t line_bytes_max = 80;
constexpr std::size_t histogram_lines = rtrs::LatencyHistogram::bucket_count + 2;

}  // namespace

void MetricsText::family(const MetricFamily& family) {
    RTRS_ASSERT(seen_names_.insert(name_of(family)).second);
    bytes_max_ += 4 * (family.name.size() + family.unit.size() + 16) + family.help.size();
    families_.push_back({family, samples_.size()});
}

void MetricsText::note(Labels labels, decltype(Sample::value) value) {
    const MetricFamily& family = families_.back().what;
    const auto count = static_cast<std::size_t>(std::ranges::count_if(
        family.labels, [](std::string_view label) { return !label.empty(); }));
    RTRS_ASSERT(labels.size() == count);
    const std::size_t before = labels_.size();
    for (std::size_t i = 0; i < count; ++i) {
        if (i > 0) labels_ += ',';
        labels_ += family.labels[i];
        labels_ += "=\"";
        append_escaped(labels_, std::data(labels)[i]);
        labels_ += '"';
    }
    samples_.push_back({labels_.size(), value});
    const std::size_t lines = family.type == MetricType::histogram ? histogram_lines : 1;
    bytes_max_ += lines * (family.name.size() + family.unit.size() + labels_.size() - before +
                           line_bytes_max);
}

void MetricsText::sample(Labels labels, std::uint64_t value) {
    RTRS_ASSERT(families_.back().what.type != MetricType::histogram);
    note(labels, value);
}

void MetricsText::sample(Labels labels, double value) {
    RTRS_ASSERT(families_.back().what.type != MetricType::histogram);
    note(labels, value);
}

void MetricsText::histogram(Labels labels, const rtrs::LatencyHistogram& histogram) {
    RTRS_ASSERT(families_.back().what.type == MetricType::histogram);
    note(labels, HistogramIndex{histograms_.size()});
    histograms_.push_back(histogram);
}

// --- Its text.

bool MetricsText::write(std::string& to, std::size_t bytes) {
    const std::size_t enough = to.size() + bytes;
    while (to.size() < enough) {
        if (families_written_ < families_.size() &&
            families_[families_written_].first_sample == samples_written_) {
            write_head(to);
        } else if (samples_written_ < samples_.size()) {
            write_sample(to);
        } else {
            to += last_line;
            return false;
        }
    }
    return true;
}

void MetricsText::write_head(std::string& to) {
    const MetricFamily& family = families_[families_written_++].what;
    name_ = name_of(family);
    seen_labels_.clear();
    auto out = std::back_inserter(to);
    fmt::format_to(out, "# TYPE {} {}\n", name_, to_word(family.type));
    if (!family.unit.empty()) fmt::format_to(out, "# UNIT {} {}\n", name_, family.unit);
    fmt::format_to(out, "# HELP {} {}\n", name_, family.help);
}

void MetricsText::write_sample(std::string& to) {
    const Sample& sample = samples_[samples_written_++];
    const std::size_t begin = std::exchange(labels_written_, sample.labels_end);
    const auto labels = std::string_view(labels_).substr(begin, sample.labels_end - begin);
    if (!seen_labels_.insert(labels).second) return;
    const std::string_view suffix = suffix_of(families_[families_written_ - 1].what.type);
    if (const auto* whole = std::get_if<std::uint64_t>(&sample.value)) {
        line(to, labels, suffix, "", as_text(fmt::format_int(*whole)));
    } else if (const auto* number = std::get_if<double>(&sample.value)) {
        line(to, labels, suffix, "", fmt::format("{}", *number));
    } else {
        const auto index = static_cast<std::size_t>(std::get<HistogramIndex>(sample.value));
        write_histogram(to, labels, histograms_[index]);
    }
}

void MetricsText::write_histogram(std::string& to, std::string_view labels,
                                  const rtrs::LatencyHistogram& histogram) const {
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < rtrs::LatencyHistogram::bucket_count; ++i) {
        below += histogram.buckets()[i];
        line(to, labels, "_bucket", bucket_labels()[i], as_text(fmt::format_int(below)));
    }
    line(to, labels, "_count", "", as_text(fmt::format_int(histogram.count())));
    line(to, labels, "_sum", "", fmt::format("{}", in_seconds(histogram.sum())));
}

void MetricsText::line(std::string& to, std::string_view labels, std::string_view suffix,
                       std::string_view more_labels, std::string_view value) const {
    to += name_;
    to += suffix;
    if (!labels.empty() || !more_labels.empty()) {
        to += '{';
        to += labels;
        if (!labels.empty() && !more_labels.empty()) to += ',';
        to += more_labels;
        to += '}';
    }
    to += ' ';
    to += value;
    to += '\n';
}

std::string MetricsText::finish() {
    std::string text;
    while (write(text, bytes_max())) {
    }
    return text;
}

}  // namespace rnbd
