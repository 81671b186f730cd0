// The text of OpenMetrics 1.0, as monitoring systems read it.
//
//   MetricsText text;
//   text.family({"rnbd_server_export_size", "bytes", MetricType::gauge, {"export"}, "Its size."});
//   text.sample({"vol1"}, 1u << 30);
//   ...
//   std::string body = text.finish();
//
// Families come one after another, samples behind their family, each combination of labels once: a
// second one with the same labels is left out, for a document with two of them is refused whole.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rtrs/base/latency_histogram.h"

namespace rnbd {

enum class MetricType : std::uint8_t { gauge, counter, histogram, info };

struct MetricFamily {
    // Without its unit and without "_total": both are appended where they belong.
    std::string_view name;
    // "bytes", "seconds", or empty: a plain number.
    std::string_view unit;
    MetricType type = MetricType::gauge;
    // Names of the labels, in the order of their values; unused ones are empty.
    std::array<std::string_view, 4> labels{};
    // One sentence.
    std::string_view help;
};

class MetricsText {
  public:
    // One value per label of the family.
    using Labels = std::initializer_list<std::string_view>;

    // ASSUMES: none of this name came before.
    void family(const MetricFamily& family);

    // Of the newest family. ASSUMES: it has as many labels, and is a gauge, counter or info.
    void sample(Labels labels, std::uint64_t value);
    void sample(Labels labels, double value);
    void histogram(Labels labels, const rtrs::LatencyHistogram& histogram);

    // All of it. Nothing may be added afterwards.
    std::string finish();

  private:
    // True if this family has not had these labels. Leaves them, escaped, in labels_text_.
    bool is_new(Labels labels);
    void line(std::string_view suffix, std::string_view more_labels, std::string_view value);

    std::string text_;
    std::string name_;  // of the newest family, with its unit
    std::array<std::string_view, 4> labels_{};
    MetricType type_ = MetricType::gauge;
    std::string labels_text_;
    std::set<std::string> seen_labels_;
    std::set<std::string> seen_names_;
};

}  // namespace rnbd
