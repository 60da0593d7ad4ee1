// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/index.hpp"
#include "base/units.hpp"
#include "execute/run_plan.hpp"
#include "execute/stage_work.hpp"
#include "optimizer/host_stage.hpp"

namespace penstock {

/// A run of bytes of one working copy, and where it goes in the device buffer of a stage.
struct FetchedPiece {
  Stage source;  ///< of the backward pass
  Bytes from;    ///< in its working copy
  Bytes to;
  Bytes bytes;
};

/// What a fetch of the stage brings: the whole working copy of a backward stage, or for a forward stage of another
/// cutting its parameters out of the working copies of all backward stages that share layers with it. In the order of
/// the device buffer; neighbours in both places are one piece. A tied table comes from the stage that steps it.
std::vector<FetchedPiece> fetched_pieces(const RunPlan& plan, Pass pass, Stage stage);

/// FETCH_F and FETCH_B: the parameters of this rank's stages, from the working copies on the host.
class ParameterFetch {
 public:
  /// `stages`: this rank's host stages; they outlive the object.
  ParameterFetch(const RunPlan& plan, Rank rank, const PerStage<std::unique_ptr<HostStage>>& stages);

  /// Queues the copies behind `after`; the event is that of the last one.
  Event fetch(const Action& action, const CopyPlace& place, std::vector<Event> after) const;

 private:
  using Pieces = PerStage<std::vector<FetchedPiece>>;  // empty for the stages of other ranks
  const PerStage<std::unique_ptr<HostStage>>& stages_;
  Pieces forward_;
  Pieces backward_;
};

}  // namespace penstock
