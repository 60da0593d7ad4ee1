// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <fmt/format.h>

#include "app/commands.hpp"
#include "app/text_file.hpp"
#include "base/counted.hpp"
#include "trace/chrome.hpp"
#include "trace/draw.hpp"
#include "trace/summary.hpp"
#include "trace/trace_file.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// A run's folder stands for the trace in it.
std::string trace_file(const std::string& path) {
  return fs::is_directory(path) ? (fs::path{path} / "trace.h5").string() : path;
}

std::int32_t step_to_draw(const Timeline& timeline, const TraceCommand& command) {
  const auto steps = steps_of(timeline);
  if (steps.empty()) fail(ExitCode::damaged_input, "{} holds no spans", command.file);
  if (command.step < 0) return steps.back();
  for (const auto step : steps) {
    if (step == command.step) return step;
  }
  fail(ExitCode::bad_input, "--step {}: {} holds steps {} to {}", command.step, command.file, steps.front(),
       steps.back());
}

}  // namespace

ExitCode trace(const TraceCommand& command) {
  const auto timeline = read_trace(trace_file(command.file));
  const auto step = step_to_draw(timeline, command);
  if (!command.chrome.empty()) write_text(command.chrome, chrome_trace(timeline));
  if (!command.svg.empty()) write_text(command.svg, draw_svg(only_step(timeline, step)));
  if (command.chrome == "-" || command.svg == "-") return ExitCode::finished;
  fmt::print("{}: schedule {}, {}\n{}\n\nstep {}:\n{}\n", command.file, timeline.schedule,
             counted(timeline.ranks, "rank"), to_text(summarize(timeline)), step,
             draw_text(only_step(timeline, step), command.columns));
  if (!command.against.empty()) {
    fmt::print("\nagainst {}:\n{}\n", command.against,
               to_text(compare(read_trace(trace_file(command.against)), timeline)));
  }
  return ExitCode::finished;
}

}  // namespace penstock
