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
#include "store/parameter_store.hpp"

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
///
/// Where the schedule streams parameters, the working copies lie in a store that the ranks share, and have versions:
/// that of a step is published once its update is final, and a fetch waits for the version of the step before its own.
/// So no pass reads a stage before it is validated, and ranks need not wait for each other otherwise (methods, 1.4).
/// What another node has comes straight into the device's memory, which the host device lets anyone write.
class ParameterFetch {
 public:
  /// `stages`: this rank's host stages. `store`: null where parameters stay on the device. Both outlive the object.
  ParameterFetch(const RunPlan& plan, Rank rank, const PerStage<std::unique_ptr<HostStage>>& stages,
                 ParameterStore* store);

  /// Fetches that are queued from now on read what training has made of the parameters in its first `step` steps.
  void expect(std::int64_t step) { expected_ = step; }
  /// The working copy of a stage of this rank is that after `step` steps. By the CPU lane, or while no lane runs.
  void publish(Stage stage, std::int64_t step) const;

  /// Queues the copies behind `after`; the event begins with the first and ends with the last one.
  Event fetch(const Action& action, const CopyPlace& place, std::vector<Event> after) const;

 private:
  using Pieces = PerStage<std::vector<FetchedPiece>>;  // empty for the stages of other ranks
  void wait_for_versions(const std::vector<FetchedPiece>& pieces, const CopyPlace& place,
                         std::vector<Event>& after) const;
  Event bring(const FetchedPiece& piece, const CopyPlace& place, std::vector<Event> after) const;

  const PerStage<std::unique_ptr<HostStage>>& stages_;
  ParameterStore* store_;
  std::int64_t expected_ = 0;
  Pieces forward_;
  Pieces backward_;
};

}  // namespace penstock
