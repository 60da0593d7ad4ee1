// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "execute/compute_work.hpp"
#include "execute/rank_state.hpp"
#include "execute/run_plan.hpp"

namespace penstock {

/// Reads this replica's share of a batch (`sequences` rows of inputs and targets) and copies what the rank's stages
/// need to the device. `read` is called only on ranks whose stages need tokens. Blocks until the tokens are there.
template <class Read>
void upload_batch(RankState& state, const ComputeWork& work, const PlannedSchedule& planned, std::int64_t sequences,
                  const Read& read) {
  const std::vector<Stage> stages = work.token_stages();
  if (stages.empty()) return;
  const auto& any = planned.stages[Stage{0}];
  const auto size = static_cast<std::size_t>(sequences * any.tokens);
  std::vector<std::int32_t> inputs(size);
  std::vector<std::int32_t> targets(size);
  read(std::span{inputs}, std::span{targets});
  for (const Stage stage : stages) {
    state.upload_tokens(stage, pack_tokens(inputs, targets, any, planned.tokens_of(stage)));
  }
}

}  // namespace penstock
