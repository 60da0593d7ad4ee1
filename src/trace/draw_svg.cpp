// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/counted.hpp"
#include "base/units.hpp"
#include "schedule/text.hpp"
#include "trace/draw.hpp"
#include "trace/label.hpp"
#include "trace/summary.hpp"
#include "trace/svg_style.hpp"

namespace penstock {
namespace {

// The picture in pixels.
constexpr double room_for_ranks = 74;  // their names, left of the axis
constexpr double room_for_lanes = 60;  // likewise, where there is more than the compute lane
constexpr double least_plot = 860;     // the time axis
constexpr double most_plot = 2400;     // likewise
constexpr double readable_box = 9;     // in which one digit can be read
constexpr double box_margins = 2;      // left and right of its number
constexpr double right = 24;
constexpr double top = 44;  // title
constexpr double compute_height = 24;
constexpr double lane_height = 12;
constexpr double rank_gap = 9;
constexpr double axis_height = 46;
constexpr double legend_row = 22;
constexpr double font_size = 11;  // of the box labels, sans
constexpr double least_font_size = 8;
constexpr double digit_width = 0.62;  // of the font's size

/// What the axis counts in.
struct Unit {
  const char* name;  ///< "ms"
  double seconds;
};

Unit unit_for(double duration, TimeUnit given) {
  if (given == TimeUnit::price) return {"units", 1};
  if (duration >= 2) return {"s", 1};
  return duration >= 2e-3 ? Unit{"ms", 1e-3} : Unit{"us", 1e-6};
}

/// The distance of ticks: 1, 2 or 5 times a power of ten, giving at most about 12 ticks.
double tick_distance(double length) {
  const double rough = length / 12;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

/// Where a row of boxes lies.
struct Row {
  double y = 0;
  double height = 0;
};

class SvgDrawing {
 public:
  SvgDrawing(const Timeline& timeline, TimeUnit unit) : timeline_{timeline} {
    measure();
    unit_ = unit_for(length_, unit);
    choose_width();
    lay_out_rows();
    lay_out_legend();
  }

  std::string draw() {
    open();
    draw_axis();
    draw_names();
    for (const auto& span : timeline_.spans) {
      if (is_drawn(span)) draw_span(span);
    }
    draw_legend();
    text_ += "</svg>\n";
    return std::move(text_);
  }

 private:
  /// What takes no time has no box: messages and copies where only computation is priced, evictions, validations.
  static bool is_drawn(const Span& span) { return span.end > span.start; }

  void measure() {
    double start = std::numeric_limits<double>::infinity();
    double end = -start;
    for (const auto& span : timeline_.spans) {
      if (!is_drawn(span)) continue;
      start = std::min(start, span.start.value);
      end = std::max(end, span.end.value);
      last_slice_ = std::max(last_slice_, span.action.slice.value());
      ops_.insert(span.action.op);
      any_waited_ |= span.waited.value > 0;
      // VALIDATE has no stage: its 0 would make another rank's stage look like the second of two.
      if (is_of_layers(span.action.op)) stages_[{span.rank, pass_of(span.action.op)}].insert(span.action.stage);
    }
    for (const auto& [rank, stages] : stages_) most_stages_ = std::max(most_stages_, stages.size());
    if (end > start) {
      start_ = start;
      length_ = end - start;
    }
  }

  /// So wide that most boxes of the compute lanes hold a number: nine of ten are longer than the one that decides.
  void choose_width() {
    std::vector<double> lengths;
    for (const auto& span : timeline_.spans) {
      if (is_drawn(span) && span.lane == Lane::compute) lengths.push_back(span.end.value - span.start.value);
      last_micro_batch_ = std::max(last_micro_batch_, span.action.micro_batch.value());
    }
    if (lengths.empty()) return;
    const auto decisive = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 10);
    std::nth_element(lengths.begin(), decisive, lengths.end());
    const auto digits = static_cast<double>(std::to_string(last_micro_batch_).size());
    const double box = std::max(readable_box, box_margins + 0.1 + least_font_size * digit_width * digits);
    plot_ = std::clamp(std::ceil(box * length_ / *decisive), least_plot, most_plot);
  }

  void lay_out_rows() {
    std::set<std::pair<std::int32_t, Lane>> used;
    for (const auto& span : timeline_.spans) {
      if (is_drawn(span)) used.emplace(span.rank, span.lane);
    }
    std::int32_t rank_before = -1;
    for (const auto& key : used) {
      if (rank_before >= 0 && key.first != rank_before) bottom_ += rank_gap;
      const double height = key.second == Lane::compute ? compute_height : lane_height;
      rows_[key] = {bottom_, height};
      bottom_ += height;
      rank_before = key.first;
      if (key.second != Lane::compute) left_ = room_for_ranks + room_for_lanes;
    }
  }

  double x_of(Seconds time) const { return left_ + plot_ * (time.value - start_) / length_; }

  template <class... Arguments>
  void put(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }

  void open() {
    const double width = left_ + plot_ + right;
    const double height = bottom_ + axis_height + legend_rows_ * legend_row + 8;
    put("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"DejaVu Sans, Verdana, sans-serif\">\n",
        width, height);
    put("<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
    put("<text x=\"{:.0f}\" y=\"27\" font-size=\"17\" font-weight=\"bold\">{}</text>\n", left_, xml_escaped(title()));
  }

  std::string title() const {
    const auto steps = steps_of(timeline_);
    std::string which = ", " + counted(static_cast<std::int64_t>(steps.size()), "step");
    // A run counts its steps from 1; a simulated one is number 0.
    if (steps.size() == 1) which = steps.front() > 0 ? fmt::format(", step {}", steps.front()) : "";
    return fmt::format("{}, {}{}: bubble {:.2f} %", timeline_.schedule, counted(timeline_.ranks, "rank"), which,
                       100 * summarize(timeline_).bubble_makespan);
  }

  void draw_axis() {
    const double distance = tick_distance(length_ / unit_.seconds);
    const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(distance))));
    for (int tick = 0; tick * distance <= length_ / unit_.seconds * (1 + 1e-9); ++tick) {
      const double x = left_ + plot_ * tick * distance * unit_.seconds / length_;
      put("<path d=\"M{0:.1f} {1:.1f}V{2:.1f}\" stroke=\"#ddd\"/>\n", x, top - 4, bottom_ + 5);
      put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"12\" text-anchor=\"middle\" fill=\"#333\">{:.{}f}</text>\n", x,
          bottom_ + 19, tick * distance, decimals);
    }
    put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"12\" text-anchor=\"middle\" fill=\"#333\">time [{}]</text>\n",
        left_ + plot_ / 2, bottom_ + 36, unit_.name);
  }

  void draw_names() {
    std::int32_t rank_before = -1;
    for (const auto& [key, row] : rows_) {
      const double middle = row.y + row.height / 2;
      if (key.first != rank_before) {
        put("<text x=\"8\" y=\"{:.1f}\" font-size=\"13\" font-weight=\"bold\">rank {}</text>\n",
            row.y + std::max(row.height / 2 + 4.5, 10.0), key.first);
      }
      if (key.second != Lane::compute || key.first == rank_before) {
        put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"10\" text-anchor=\"end\" fill=\"#555\">{}</text>\n", left_ - 6,
            middle + 3.5, name_of(key.second));
      }
      put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#000\" fill-opacity=\"{}\"/>\n",
          left_, row.y + 1, plot_, row.height - 2, key.second == Lane::compute ? "0.05" : "0.025");
      rank_before = key.first;
    }
  }

  void draw_span(const Span& span) {
    const Row& row = rows_.at({span.rank, span.lane});
    const double x = x_of(span.start);
    const double width = std::max(x_of(span.end) - x, 0.4);
    const Color color = lightened(color_of(span.action.op), shade_of(span));
    // Hairlines at the edges would hide boxes that are hardly wider than a hairline.
    const double inset = width > 3 ? 0.5 : 0.0;
    put("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\"><title>{}</title></rect>\n",
        x + inset, row.y + 1, width - inset, row.height - 2, hex(color), xml_escaped(description_of(span)));
    if (span.waited.value > 0) draw_waiting(span, x_of(span.end), row);
    if (span.lane == Lane::compute) draw_label(span, x + width / 2, row, width);
  }

  /// As long as all that the action waited, whenever that was. The box below keeps the pointer.
  void draw_waiting(const Span& span, double end, const Row& row) {
    const double width = plot_ * std::min(span.waited, span.end - span.start).value / length_;
    put("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"#fff\" fill-opacity=\"0.7\" "
        "pointer-events=\"none\"/>\n",
        end - width, row.y + 1, width, row.height - 2);
  }

  /// Whether the op works on slices of a stage of layers, of which a rank may have several.
  static bool is_of_layers(Op op) { return is_per_micro_batch(op) && !is_collective(op); }

  /// From 0 (first stage of its rank, first slice) to 1 (last of both); all other ops have one shade.
  double shade_of(const Span& span) const {
    const auto slices = static_cast<double>(last_slice_ + 1);
    const double shades = static_cast<double>(most_stages_) * slices;
    if (shades < 2 || !is_of_layers(span.action.op)) return 0;
    const auto& stages = stages_.at({span.rank, pass_of(span.action.op)});
    const auto stage = static_cast<double>(std::distance(stages.begin(), stages.find(span.action.stage)));
    return (stage * slices + span.action.slice.value()) / (shades - 1);
  }

  /// The micro-batch, and its slice where there is room, in letters as large as the box allows.
  void draw_label(const Span& span, double middle, const Row& row, double width) {
    const std::string number = fmt::format("{}", span.action.micro_batch);
    const auto fitting = [width](const std::string& label) {
      return std::min(font_size, (width - box_margins) / (digit_width * static_cast<double>(label.size())));
    };
    std::string label = last_slice_ > 0 ? fmt::format("{}.{}", number, span.action.slice) : number;
    if (fitting(label) < font_size) label = number;
    const double size = fitting(label);
    if (size < least_font_size) return;
    put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:.1f}\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n", middle,
        row.y + row.height / 2 + 0.36 * size, size, hex(label_color), label);
  }

  /// Shown by browsers when the pointer rests on a box.
  std::string description_of(const Span& span) const {
    const std::string waited =
        span.waited.value > 0 ? fmt::format(", {:.3f} of it waiting", span.waited.value / unit_.seconds) : "";
    return fmt::format("{} rank {}: {:.3f} to {:.3f} {}{}", to_text(span.action, last_slice_ + 1), span.rank,
                       (span.start.value - start_) / unit_.seconds, (span.end.value - start_) / unit_.seconds,
                       unit_.name, waited);
  }

  /// What stands beside the colour of an op.
  static std::string legend_text(Op op) { return fmt::format("{} {}", name_of(op), words_for(op)); }

  std::string shades_text() const {
    const char* waiting = any_waited_ ? "; pale end: waited for other ranks, all moments together" : "";
    if (last_slice_ == 0 && most_stages_ < 2) return fmt::format("number: micro-batch{}", waiting);
    const bool both = last_slice_ > 0 && most_stages_ > 1;
    return fmt::format("number: micro-batch; lighter: later {}{}{}{}", most_stages_ > 1 ? "stages of a rank" : "",
                       both ? ", and within each later " : "", last_slice_ > 0 ? "slices" : "", waiting);
  }

  void lay_out_legend() {
    std::size_t longest = 0;
    for (const Op op : ops_) longest = std::max(longest, legend_text(op).size());
    legend_cell_ = 7.2 * static_cast<double>(longest) + 34;
    const auto ops = std::max(std::int64_t{1}, static_cast<std::int64_t>(ops_.size()));
    const auto rows = divide_up(ops, std::max(std::int64_t{1}, static_cast<std::int64_t>(plot_ / legend_cell_)));
    cells_per_row_ = static_cast<int>(divide_up(ops, rows));  // rows of equal length, not one op alone in the last
    legend_rows_ = static_cast<int>(rows) + 1;
  }

  void draw_legend() {
    int cell = 0;
    const double first = bottom_ + axis_height + 4;
    for (const Op op : ops_) {
      const int row = cell / cells_per_row_;
      const double x = left_ + cell % cells_per_row_ * legend_cell_;
      const double y = first + row * legend_row;
      put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"14\" fill=\"{}\"/>", x, y, hex(color_of(op)));
      put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"12\">{}</text>\n", x + 19, y + 11.5, legend_text(op));
      ++cell;
    }
    put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"12\" fill=\"#333\">{}</text>\n", left_,
        first + (legend_rows_ - 1) * legend_row + 11.5, shades_text());
  }

  const Timeline& timeline_;
  Unit unit_{"s", 1};
  double start_ = 0;
  double length_ = 1;
  double left_ = room_for_ranks;
  double plot_ = least_plot;
  double bottom_ = top;
  double legend_cell_ = 0;
  int cells_per_row_ = 1;
  int legend_rows_ = 1;
  std::int32_t last_slice_ = 0;
  std::int32_t last_micro_batch_ = 0;
  std::set<Op> ops_;
  bool any_waited_ = false;
  std::map<std::pair<std::int32_t, Pass>, std::set<Stage>> stages_;  // of each rank and pass
  std::size_t most_stages_ = 1;
  std::map<std::pair<std::int32_t, Lane>, Row> rows_;
  std::string text_;
};

}  // namespace

std::string draw_svg(const Timeline& timeline, TimeUnit unit) {
  return SvgDrawing{timeline, unit}.draw();
}

}  // namespace penstock
