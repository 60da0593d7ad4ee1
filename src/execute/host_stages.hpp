// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/index.hpp"
#include "execute/run_plan.hpp"
#include "optimizer/host_stage.hpp"
#include "store/shared_layout.hpp"

namespace penstock {

/// Where a rank of the job stands: world rank = replica x pipeline + coordinate.
struct RankPlace {
  Rank coordinate;
  std::int32_t replica = 0;
  static RankPlace of(std::int32_t world_rank, std::int32_t pipeline) {
    return {Rank{world_rank % pipeline}, world_rank / pipeline};
  }
  /// The rank of the job that is the first of this replica's pipeline.
  std::int32_t first_rank(std::int32_t pipeline) const { return replica * pipeline; }
};

/// The host stage of a stage of the backward pass, or of a share of the vocabulary, laid out as its device buffers.
HostStageShape host_stage_shape(const RunPlan& plan, Stage stage, std::int32_t replica);

/// Who owns which working copy, for a store that the ranks of a pipeline share.
SharedStages shared_stages(const RunPlan& plan);

/// Those of one rank. Also without a device: for their bytes in `check`.
std::vector<HostStageShape> host_stage_shapes(const RunPlan& plan, const RankPlace& place);

}  // namespace penstock
