// A text in the format OpenMetrics 1.0, which monitoring systems read.
//
//   MetricsText text;
//   text.family({"rnbd_server_export_size", "bytes", MetricType::gauge, {"export"}, "Its size."});
//   text.sample({"vol1"}, 1u << 30);
//   ...
//   std::string body = text.finish();
//
// Families come one after another, each followed by its samples. Each combination of labels may
// appear once: a second sample with the same labels is left out, because readers refuse a whole
// document with two of them.
//
// Adding only notes the present values. Turning them into text takes many times as long. It may be
// done piece by piece, while the objects that the values came from change or disappear.
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
    // The name without its unit and without "_total"; both are appended where necessary.
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

    // Begins a family. Its texts must stay valid and in place.
    // ASSUMES: there was no family of this name before.
    void family(const MetricFamily& family);

    // These add a sample to the newest family.
    // ASSUMES: the family has as many labels; for sample() it is a gauge, counter or info.
    void sample(Labels labels, std::uint64_t value);
    void sample(Labels labels, double value);
    void histogram(Labels labels, const rtrs::LatencyHistogram& histogram);

    // Appends the next part of the text to `to`: at least `bytes` bytes, and at most one sample
    // more. False: that was the end. From the first call on, nothing may be added, and the object
    // must stay in place.
    bool write(std::string& to, std::size_t bytes);
    // An upper bound for the length of the whole text.
    std::size_t bytes_max() const noexcept { return bytes_max_; }
    // Returns the whole text. Nothing may be added afterwards.
    std::string finish();

  private:
    struct Family {
        MetricFamily what;
        std::size_t first_sample = 0;
    };
    enum class HistogramIndex : std::size_t {};
    struct Sample {
        std::size_t labels_end = 0;  // in labels_; they begin at the end of the sample before
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
    // How far the text is written.
    std::size_t families_written_ = 0;
    std::size_t samples_written_ = 0;
    std::size_t labels_written_ = 0;
    std::string name_;  // of the family that is being written, with its unit
    std::unordered_set<std::string_view> seen_labels_;  // of it
};

}  // namespace rnbd
