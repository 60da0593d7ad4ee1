// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include "base/error.hpp"
#include "memory/plan.hpp"

namespace penstock {

namespace {

/// What to change when buffers of `kind` take the most.
std::string_view advice(BufferKind kind) {
  switch (kind) {
    case BufferKind::parameters:
    case BufferKind::gradients:
    case BufferKind::optimizer_states:
      return "use more pipeline ranks, so that each holds fewer layers";
    case BufferKind::backward_parameters:
      return "use more pipeline ranks or more virtual stages, so that each stage holds fewer layers";
    case BufferKind::activations:
    case BufferKind::weight_operands:
    case BufferKind::offloadable:
    case BufferKind::key_value_gradients:
    case BufferKind::key_values:
      return "set memory.recompute: full, use a schedule that keeps less (1f1b rather than gpipe; slimpipe or svpp, "
             "which "
             "cut sequences into schedule.slices), or a smaller training.micro_batch or training.sequence";
    case BufferKind::tokens:
    case BufferKind::workspace:
    case BufferKind::input:
    case BufferKind::output:
    case BufferKind::logits:
    case BufferKind::checkpoint:
    case BufferKind::output_gradient:
    case BufferKind::input_gradient:
      return "use a smaller training.micro_batch or training.sequence";
  }
  return "";
}

}  // namespace

std::string memory_table(const RankPlan& plan) {
  std::string text;
  for (const MemoryUse& use : plan.table) {
    text += fmt::format("  {:<19} {:>5} x {:>10} = {:>10}\n", name_of(use.kind), use.count, to_text(use.each),
                        to_text(use.total()));
  }
  if (plan.unused_at_peak.value > 0)
    text += fmt::format("  {:<19} {:>31}\n", "between buffers", to_text(plan.unused_at_peak));
  return text;
}

void check_capacity(const RankPlan& plan, Bytes capacity, std::string_view name, std::string_view more) {
  if (plan.peak <= capacity) return;
  const std::string_view change = plan.table.empty() ? "use more pipeline ranks" : advice(plan.table.front().kind);
  fail(ExitCode::does_not_fit,
       "rank {}: the plan needs {} ({} bytes) of device memory, and {} is {} ({} bytes). At the peak are in "
       "use:\n{}{}To fit, {}; or give it {} bytes.",
       plan.rank, to_text(plan.peak), plan.peak.value, name, to_text(capacity), capacity.value, memory_table(plan),
       more, change, plan.peak.value);
}

}  // namespace penstock
