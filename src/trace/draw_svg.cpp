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
#include "schedule/text.hpp"
#include "trace/draw.hpp"
#include "trace/label.hpp"
#include "trace/summary.hpp"

namespace penstock {
namespace {

// The picture in pixels.
constexpr double left = 120;   // names of ranks and lanes
constexpr double plot = 1060;  // the time axis
constexpr double right = 20;
constexpr double top = 44;  // title
constexpr double compute_height = 24;
constexpr double lane_height = 11;
constexpr double rank_gap = 9;
constexpr double axis_height = 42;
constexpr double legend_row = 22;
constexpr double digit_width = 6.8;  // of the box labels, 11 px sans

struct Color {
  int red, green, blue;
};

/// One colour family per kind of work: forwards blue, backwards green, weight gradients amber, recompute violet;
/// messages and copies pale; CPU work red and grey.
Color color_of(Op op) {
  switch (op) {
    case Op::forward:
      return {66, 113, 174};
    case Op::backward:
      return {62, 145, 82};
    case Op::backward_input:
      return {72, 165, 155};
    case Op::backward_weight:
      return {222, 150, 40};
    case Op::recompute:
      return {150, 104, 170};
    case Op::send_forward:
      return {140, 178, 222};
    case Op::receive_forward:
      return {178, 206, 235};
    case Op::send_backward:
      return {140, 200, 150};
    case Op::receive_backward:
      return {180, 222, 186};
    case Op::send_checkpoint:
      return {196, 160, 214};
    case Op::receive_checkpoint:
      return {214, 190, 228};
    case Op::offload_activations:
      return {236, 208, 160};
    case Op::reload_activations:
      return {222, 186, 208};
    case Op::fetch_forward:
    case Op::fetch_backward:
      return {226, 160, 196};
    case Op::evict_forward:
    case Op::evict_backward:
      return {200, 200, 200};
    case Op::offload_gradients:
      return {240, 196, 130};
    case Op::reduce:
      return {206, 120, 110};
    case Op::validate:
      return {120, 120, 120};
    case Op::step:
      return {190, 66, 62};
  }
  return {0, 0, 0};
}

/// Later slices, and later stages of one rank, are lighter: up to three fifths of the way to white.
Color lightened(Color color, double fraction) {
  const auto mix = [fraction](int part) { return static_cast<int>(std::lround(part + (255 - part) * 0.6 * fraction)); };
  return {mix(color.red), mix(color.green), mix(color.blue)};
}

std::string hex(Color color) {
  return fmt::format("#{:02x}{:02x}{:02x}", color.red, color.green, color.blue);
}

const char* text_color_on(Color color) {
  const double luminance = 0.299 * color.red + 0.587 * color.green + 0.114 * color.blue;
  return luminance > 145 ? "#111" : "#fff";
}

std::string xml_escaped(std::string_view text) {
  std::string result;
  for (const char character : text) {
    switch (character) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += static_cast<unsigned char>(character) < 0x20 ? ' ' : character;
    }
  }
  return result;
}

struct Unit {
  const char* name;
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
    lay_out_rows();
  }

  std::string draw() {
    open();
    draw_axis();
    draw_names();
    for (const auto& span : timeline_.spans) draw_span(span);
    draw_legend();
    text_ += "</svg>\n";
    return std::move(text_);
  }

 private:
  void measure() {
    double start = std::numeric_limits<double>::infinity();
    double end = -start;
    for (const auto& span : timeline_.spans) {
      start = std::min(start, span.start.value);
      end = std::max(end, span.end.value);
      last_slice_ = std::max(last_slice_, span.action.slice.value());
      ops_.insert(span.action.op);
      // VALIDATE has no stage: its 0 would make another rank's stage look like the second of two.
      if (is_per_micro_batch(span.action.op)) stages_[span.rank].insert(span.action.stage);
    }
    for (const auto& [rank, stages] : stages_) most_stages_ = std::max(most_stages_, stages.size());
    if (end > start) {
      start_ = start;
      length_ = end - start;
    }
  }

  void lay_out_rows() {
    std::set<std::pair<std::int32_t, Lane>> used;
    for (const auto& span : timeline_.spans) used.emplace(span.rank, span.lane);
    std::int32_t rank_before = -1;
    for (const auto& key : used) {
      if (rank_before >= 0 && key.first != rank_before) bottom_ += rank_gap;
      const double height = key.second == Lane::compute ? compute_height : lane_height;
      rows_[key] = {bottom_, height};
      bottom_ += height;
      rank_before = key.first;
    }
  }

  double x_of(Seconds time) const { return left + plot * (time.value - start_) / length_; }

  template <class... Arguments>
  void put(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }

  void open() {
    const double width = left + plot + right;
    const double height = bottom_ + axis_height + legend_rows() * legend_row + 8;
    put("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"DejaVu Sans, Verdana, sans-serif\">\n",
        width, height);
    put("<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
    const auto steps = steps_of(timeline_);
    const std::string which = steps.size() == 1 ? fmt::format("step {}", steps.front())
                                                : counted(static_cast<std::int64_t>(steps.size()), "step");
    put("<text x=\"{:.0f}\" y=\"27\" font-size=\"17\" font-weight=\"bold\">{}</text>\n", left,
        xml_escaped(fmt::format("{}, {}, {}: bubble {:.1f} %", timeline_.schedule, counted(timeline_.ranks, "rank"),
                                which, 100 * summarize(timeline_).bubble_makespan)));
  }

  void draw_axis() {
    const double distance = tick_distance(length_ / unit_.seconds);
    const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(distance))));
    for (int tick = 0; tick * distance <= length_ / unit_.seconds * (1 + 1e-9); ++tick) {
      const double x = left + plot * tick * distance * unit_.seconds / length_;
      put("<path d=\"M{0:.1f} {1:.1f}V{2:.1f}\" stroke=\"#ddd\"/>\n", x, top - 4, bottom_ + 5);
      put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"12\" text-anchor=\"middle\" fill=\"#333\">{:.{}f}</text>\n", x,
          bottom_ + 19, tick * distance, decimals);
    }
    put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"12\" text-anchor=\"middle\" fill=\"#333\">time [{}]</text>\n",
        left + plot / 2, bottom_ + 36, unit_.name);
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
        put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"9\" text-anchor=\"end\" fill=\"#555\">{}</text>\n", left - 6,
            middle + 3, name_of(key.second));
      }
      put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#000\" fill-opacity=\"{}\"/>\n",
          left, row.y + 1, plot, row.height - 2, key.second == Lane::compute ? "0.05" : "0.025");
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
    if (span.lane == Lane::compute) draw_label(span, x + width / 2, row, width, text_color_on(color));
  }

  /// From 0 (first stage of its rank, first slice) to 1 (last of both); whole-stage ops have one shade.
  double shade_of(const Span& span) const {
    const auto slices = static_cast<double>(last_slice_ + 1);
    const double shades = static_cast<double>(most_stages_) * slices;
    if (shades < 2 || !is_per_micro_batch(span.action.op)) return 0;
    const auto& stages = stages_.at(span.rank);
    const auto stage = static_cast<double>(std::distance(stages.begin(), stages.find(span.action.stage)));
    return (stage * slices + span.action.slice.value()) / (shades - 1);
  }

  void draw_label(const Span& span, double middle, const Row& row, double width, const char* color) {
    const std::string number = fmt::format("{}", span.action.micro_batch);
    const auto fits = [width](const std::string& label) {
      return static_cast<double>(label.size()) * digit_width + 3 <= width;
    };
    std::string label = last_slice_ > 0 ? fmt::format("{}.{}", number, span.action.slice) : number;
    if (!fits(label)) label = number;
    if (!fits(label)) return;
    put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"11\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n", middle,
        row.y + row.height / 2 + 4, color, label);
  }

  /// Shown by browsers when the pointer rests on a box.
  std::string description_of(const Span& span) const {
    return fmt::format("{} rank {}: {:.3f} to {:.3f} {}", to_text(span.action, last_slice_ + 1), span.rank,
                       (span.start.value - start_) / unit_.seconds, (span.end.value - start_) / unit_.seconds,
                       unit_.name);
  }

  static constexpr double legend_cell = 105;
  static constexpr int legend_cells_per_row = static_cast<int>(plot / legend_cell);

  int legend_rows() const { return (static_cast<int>(ops_.size()) + legend_cells_per_row - 1) / legend_cells_per_row; }

  void draw_legend() {
    int cell = 0;
    for (const Op op : ops_) {
      const double x = left + cell % legend_cells_per_row * legend_cell;
      const int row = cell / legend_cells_per_row;
      const double y = bottom_ + axis_height + 4 + row * legend_row;
      put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"14\" fill=\"{}\"/>", x, y, hex(color_of(op)));
      put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"12\">{}</text>\n", x + 19, y + 11.5, name_of(op));
      ++cell;
    }
  }

  const Timeline& timeline_;
  double start_ = 0;
  double length_ = 1;
  Unit unit_{};
  double bottom_ = top;
  std::int32_t last_slice_ = 0;
  std::set<Op> ops_;
  std::map<std::int32_t, std::set<Stage>> stages_;  // of each rank
  std::size_t most_stages_ = 1;
  std::map<std::pair<std::int32_t, Lane>, Row> rows_;
  std::string text_;
};

}  // namespace

std::string draw_svg(const Timeline& timeline, TimeUnit unit) {
  return SvgDrawing{timeline, unit}.draw();
}

}  // namespace penstock
