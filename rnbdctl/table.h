// Text in aligned columns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace rnbd {

class Table {
  public:
    enum class Align : std::uint8_t { left, right };
    struct Column {
        std::string title;
        Align align = Align::left;
    };

    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

    // One cell per column; an empty one is shown as "-".
    void add(std::vector<std::string> row);
    bool empty() const noexcept { return rows_.empty(); }
    // Title line and rows, each behind `indent` spaces; no trailing spaces.
    std::string text(std::size_t indent) const;

  private:
    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace rnbd
