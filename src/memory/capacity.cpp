// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.hpp"
#include "memory/plan.hpp"

namespace penstock {

namespace {

/// What to change where a rank's plan is too large: only what this schedule can change, and what would leave less at
/// the peak.
class Advice {
 public:
  Advice(const RankPlan& plan, const Schedule& schedule) : plan_{plan}, schedule_{schedule} {}

  std::string text() {
    if (schedule_.streams_parameters && resident_stages() > 1) add("set memory.resident_stages: 1");
    if (plan_.table.empty()) {
      add("use more pipeline ranks");
    } else {
      add_for(plan_.table.front().kind);
    }
    return fmt::format("{}", fmt::join(ways_, ", or "));
  }

 private:
  void add(std::string_view way) { ways_.push_back(way); }

  void add_for(BufferKind largest) {
    switch (largest) {
      case BufferKind::parameters:
      case BufferKind::backward_parameters:
      case BufferKind::gradients:
      case BufferKind::optimizer_states:
        return add_for_stages();
      case BufferKind::activations:
      case BufferKind::offloadable:
        add_for_activations();
        return add_for_tokens();
      case BufferKind::weight_operands:
        add("let fewer weight gradients wait (schedule.weight_gradients: whole; zb_h1 rather than zb_h2)");
        return add_for_tokens();
      case BufferKind::key_values:
      case BufferKind::key_value_gradients:
        add("use more pipeline ranks, so that each keeps the keys and values of fewer layers");
        return add_for_tokens();
      case BufferKind::tokens:
      case BufferKind::workspace:
      case BufferKind::input:
      case BufferKind::output:
      case BufferKind::logits:
      case BufferKind::checkpoint:
      case BufferKind::output_gradient:
      case BufferKind::input_gradient:
        if (schedule_.shape.slices > 1) add("use more schedule.slices");
        return add_for_tokens();
    }
  }

  void add_for_stages() {
    const bool may_stream = !schedule_.streams_parameters && !schedule_.shares_vocabulary;
    // Of several stages not all need be there at once.
    if (may_stream && resident_stages() > 1) add("set memory.parameters: host");
    if (schedule_.streams_parameters) add("use more virtual stages, so that each holds fewer layers");
    add("use more pipeline ranks, so that each holds fewer layers");
  }

  void add_for_activations() {
    constexpr std::int64_t most_near = 2;  // what is used again this soon does not leave
    if (keeps_activations(schedule_)) {
      add("set memory.recompute: full");
      const bool may_leave = !schedule_.offloads_activations && count(BufferKind::activations) > most_near;
      if (may_leave) add("set memory.offload_activations: 1");
    }
    if (schedule_.shape.slices > 1) return add("use more schedule.slices");
    add("use a schedule that keeps less (1f1b rather than gpipe; slimpipe or svpp, which cut sequences into "
        "schedule.slices)");
  }

  void add_for_tokens() { add("use a smaller training.micro_batch or training.sequence"); }

  std::int64_t count(BufferKind kind) const {
    std::int64_t sum = 0;
    for (const MemoryUse& use : plan_.table) sum += use.kind == kind ? use.count : 0;
    return sum;
  }
  /// Stages whose parameters are there at the peak.
  std::int64_t resident_stages() const {
    return count(BufferKind::parameters) + count(BufferKind::backward_parameters);
  }

  const RankPlan& plan_;
  const Schedule& schedule_;
  std::vector<std::string_view> ways_;
};

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

bool keeps_activations(const Schedule& schedule) {
  if (schedule.forward_only) return false;
  for (const Stage stage : all<Stage>(schedule.ranks(Pass::backward).size())) {
    if (!recomputes(schedule, stage)) return true;
  }
  return false;
}

void check_capacity(const RankPlan& plan, const Schedule& schedule, Bytes capacity, std::string_view name,
                    std::string_view more) {
  if (plan.peak <= capacity) return;
  fail(ExitCode::does_not_fit,
       "rank {}: the plan needs {} ({} bytes) of device memory, and {} is {} ({} bytes). At the peak are in "
       "use:\n{}{}To fit, {}; or give it {} bytes.",
       plan.rank, to_text(plan.peak), plan.peak.value, name, to_text(capacity), capacity.value, memory_table(plan),
       more, Advice{plan, schedule}.text(), plan.peak.value);
}

}  // namespace penstock
