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
//
// What is added is noted as it is now. To make text of it takes many times as long, and may be done
// a piece at a time while what was noted changes or goes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <variant>
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

    // Its texts stay where they are. ASSUMES: none of this name came before.
    void family(const MetricFamily& family);

    // Of the newest family. ASSUMES: it has as many labels, and is a gauge, counter or info.
    void sample(Labels labels, std::uint64_t value);
    void sample(Labels labels, double value);
    void histogram(Labels labels, const rtrs::LatencyHistogram& histogram);

    // Appends what comes next of it, at least so many bytes, and no more than a sample beyond.
    // False: that was the end. Nothing may be added from the first call on, and it stays in place.
    bool write(std::string& to, std::size_t bytes);
    // No less than all of it.
    std::size_t bytes_max() const noexcept { return bytes_max_; }
    // All of it. Nothing may be added afterwards.
    std::string finish();

  private:
    struct Family {
        MetricFamily what;
        std::size_t first_sample = 0;
    };
    enum class HistogramIndex : std::size_t {};
    struct Sample {
        std::size_t labels_end = 0;  // in labels_, from the end of those before
        std::variant<std::uint64_t, double, HistogramIndex> value;
    };

    void note(Labels labels, decltype(Sample::value) value);
    void write_head(std::string& to);
    void write_sample(std::string& to);
    void line(std::string& to, std::string_view labels, std::string_view suffix,
              std::string_view more_labels, std::string_view value) const;
    void write_histogram(std::string& to, std::string_view labels,
                         const rtrs::LatencyHistogram& histogram) const;

    std::vector<Family> families_;
    std::vector<Sample> samples_;
    std::vector<rtrs::LatencyHistogram> histograms_;
    std::string labels_;  // of all samples, escaped
    static constexpr std::string_view last_line = "# EOF\n";
    std::set<std::string> seen_names_;
    std::size_t bytes_max_ = last_line.size();
    // How far it is written.
    std::size_t families_written_ = 0;
    std::size_t samples_written_ = 0;
    std::size_t labels_written_ = 0;
    std::string name_;  // of the family that is being written, with its unit
    std::unordered_set<std::string_view> seen_labels_;  // of it
};

}  // namespace rnbd
