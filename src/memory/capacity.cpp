// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "memory/plan.hpp"

namespace penstock {

std::string memory_table(const RankPlan& plan) {
  std::string text;
  for (const MemoryUse& use : plan.table) {
    text += fmt::format("  {:<19} {:>5} x {:>10} = {:>10}\n", name_of(use.kind), use.count, to_text(use.each),
                        to_text(use.total()));
  }
  const auto add_unused = [&](std::string_view name, Bytes bytes) {
    if (bytes.value > 0) text += fmt::format("  {:<32} {:>18}\n", name, to_text(bytes));
  };
  add_unused("kept for stages that come and go", plan.awaiting_stages);
  add_unused("between buffers", plan.unused_at_peak - plan.awaiting_stages);
  return text;
}

void check_capacity(const RankPlan& plan, Bytes capacity, std::string_view name, const Advice& advice) {
  if (plan.peak <= capacity) return;
  fail(ExitCode::does_not_fit,
       "rank {}: the plan needs {} ({} bytes) of device memory, and {} is {} ({} bytes). At the peak are in "
       "use:\n{}{}It would fit in {} bytes.",
       plan.rank, to_text(plan.peak), plan.peak.value, name, to_text(capacity), capacity.value, memory_table(plan),
       advice ? advice() : "", plan.peak.value);
}

}  // namespace penstock
