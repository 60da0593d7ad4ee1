// SPDX-License-Identifier: Apache-2.0
#include "schedule/recompute.hpp"

#include "base/counted.hpp"
#include "base/error.hpp"
#include "schedule/schedule.hpp"
#include "schedule/semantics.hpp"

namespace penstock {

PerStage<Recompute> recompute_modes(const Schedule& schedule, Recompute of_all, const RecomputeList& by_stage) {
  const std::int32_t stages = schedule.ranks(Pass::backward).size();
  if (by_stage && static_cast<std::int64_t>(by_stage->size()) != stages) {
    fail(ExitCode::bad_input, "memory.recompute_by_stage has {}, but the backward pass of schedule {} has {}",
         counted(static_cast<std::int64_t>(by_stage->size()), "entry", "entries"), schedule.name,
         counted(stages, "stage"));
  }
  PerStage<Recompute> modes(stages, of_all);
  for (const Stage stage : all<Stage>(stages)) {
    if (by_stage) modes[stage] = (*by_stage)[static_cast<std::size_t>(stage.value())];
    if (recomputes(schedule, stage)) modes[stage] = Recompute::full;
  }
  return modes;
}

PerStage<bool> fully_recomputed(const PerStage<Recompute>& modes) {
  PerStage<bool> stages;
  for (const Recompute mode : modes) stages.push_back(mode == Recompute::full);
  return stages;
}

}  // namespace penstock
