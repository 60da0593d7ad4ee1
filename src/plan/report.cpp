// SPDX-License-Identifier: Apache-2.0
#include "plan/report.hpp"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/counted.hpp"
#include "schedule/kinds.hpp"

namespace penstock {
namespace {

/// A device count that is 1 says nothing.
void add_factor(std::vector<std::string>& parts, const char* name, std::int32_t count) {
  if (count > 1) parts.push_back(fmt::format("{} {}", name, count));
}

double percent_of(Seconds part, Seconds whole) {
  return 100 * part.value / whole.value;
}

Seconds waits_of(const PlannedLayout& layout) {
  return layout.step - layout.most_compute - layout.exposed_optimizer;
}

std::string row_text(const PlannedLayout& best, const PlannedLayout& layout) {
  return fmt::format("{:>9.4g} s  {:>5.1f} %  {:>8.3g} s  {:>5.1f} %  {:>10}  {:<28} {:<44} {:<22} {}\n",
                     layout.step.value, 100 * layout.bubble_makespan, layout.exposed_optimizer.value,
                     100 * layout.utilization, to_text(layout.peak_device), schedule_text(layout.run),
                     layout_text(layout.run), memory_text(layout.run), reason_text(best, layout));
}

std::string counts_text(const SearchCounts& counts) {
  return fmt::format(
      "{}: {} need too much memory by their closed forms, {} by their lists, {} on the host; {} behind "
      "by their closed forms; {} simulated\n",
      counted(counts.candidates, "candidate"), counts.over_memory_bound, counts.over_memory, counts.over_host_memory,
      counts.over_time_bound, counts.simulated);
}

}  // namespace

std::string schedule_text(const ModelledRun& run) {
  const ScheduleOptions& schedule = run.schedule;
  std::string text{deck_name(schedule.kind)};
  if (entry_of(schedule.kind).limits.two_partitions) {
    text += fmt::format(" {}/{}", schedule.forward_virtual, schedule.backward_virtual);
  } else if (schedule.virtual_stages > 1) {
    text += fmt::format(" v={}", schedule.virtual_stages);
  }
  if (schedule.slices > 1) text += fmt::format(" n={}", schedule.slices);
  if (schedule.forwards_first) text += fmt::format(" f={}", *schedule.forwards_first);
  if (run.schedule.weight_gradients != WeightGradients::whole) {
    text += fmt::format(" W {}", deck_name(run.schedule.weight_gradients));
    const bool by_product = run.schedule.weight_grain == WeightGrain::product;
    if (by_product && run.schedule.weight_gradients == WeightGradients::placed) text += " by product";
  }
  if (run.cost.exchange != Exchange::none) text += fmt::format(" {} exchange", deck_name(run.cost.exchange));
  return text;
}

std::string layout_text(const ModelledRun& run) {
  std::vector<std::string> parts{fmt::format("pipeline {}", run.cost.pipeline)};
  add_factor(parts, "tensor", run.cost.tensor);
  add_factor(parts, "context", run.cost.context);
  add_factor(parts, "expert", run.cost.expert);
  add_factor(parts, "data", run.cost.data);
  const bool has_both = run.cost.pipeline > 1 && run.cost.data > 1;
  const bool replicas_first = has_both && run.cost.neighbours == Neighbours::replicas;
  return fmt::format("{}{}, micro-batch {}", fmt::join(parts, " x "), replicas_first ? " (replicas side by side)" : "",
                     run.cost.micro_batch);
}

std::string memory_text(const ModelledRun& run) {
  std::string text = fmt::format("recompute {}", deck_name(run.recompute));
  if (run.cost.offload_ratio > 0) text += fmt::format(", offload {:.0f} %", 100 * run.cost.offload_ratio);
  return text;
}

std::string reason_text(const PlannedLayout& best, const PlannedLayout& layout) {
  if (layout.step == best.step) return "the best";
  std::vector<std::string> parts;
  const auto add = [&](const char* what, Seconds own, Seconds of_best) {
    const double percent = percent_of(own - of_best, best.step);
    constexpr double visible = 0.05;
    if (percent > visible || percent < -visible) parts.push_back(fmt::format("{} {:+.1f} %", what, percent));
  };
  add("work", layout.most_compute, best.most_compute);
  add("waits", waits_of(layout), waits_of(best));
  add("optimizer", layout.exposed_optimizer, best.exposed_optimizer);
  const double behind = percent_of(layout.step - best.step, best.step);
  if (parts.empty()) return fmt::format("{:+.2f} %", behind);
  return fmt::format("{:+.1f} %: {}", behind, fmt::join(parts, ", "));
}

std::string to_text(const PlanResult& result) {
  std::string text = fmt::format("{:>11}  {:>7}  {:>10}  {:>7}  {:>10}  {:<28} {:<44} {:<22} {}\n", "step", "bubble",
                                 "optimizer", "MFU", "peak", "schedule", "layout", "activations", "why it lost");
  for (const PlannedLayout& layout : result.best) text += row_text(result.best.front(), layout);
  return text + counts_text(result.counts);
}

std::string no_fit_text(const PlanRequest& request, const PlanResult& result, const std::string& would_fit) {
  std::string text = fmt::format("none of {} fits into the {} of a device",
                                 counted(result.counts.candidates, "candidate"), to_text(request.capacity));
  if (result.closest) {
    const ModelledRun& run = result.closest->run;
    text += fmt::format("; the closest needs at least {}: {}, {}, {}", to_text(result.closest->peak_device),
                        schedule_text(run), layout_text(run), memory_text(run));
  }
  return text + (would_fit.empty() ? ". Even 16 times the devices are not enough: cut the sequence or the model"
                                   : ". What would fit: " + would_fit);
}

}  // namespace penstock
