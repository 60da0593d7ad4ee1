// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "schedule/action.hpp"
#include "schedule/attention_exchange.hpp"

namespace penstock {

/// Sizes that every action of a schedule stays below.
struct ScheduleShape {
  std::int32_t ranks = 1;          ///< pipeline coordinates
  std::int32_t stages = 1;         ///< over all ranks, of the forward pass
  std::int32_t micro_batches = 1;  ///< of one replica and step
  std::int32_t slices = 1;         ///< of one sequence
  friend bool operator==(const ScheduleShape&, const ScheduleShape&) = default;
};

/// The stages of the backward pass where it is cut into others than the forward pass (SPipe: decoupled passes).
struct BackwardStages {
  PerStage<Rank> rank_of;  ///< the rank that runs a backward stage
  PerStage<Stage> fed_by;  ///< the forward stage that holds its first layer, and so makes its input; ascending
  friend bool operator==(const BackwardStages&, const BackwardStages&) = default;
};

/// What a stage's optimizer step waits for.
enum class StepsWait : std::uint8_t {
  for_norm,       ///< the gradients of all stages and VALIDATE: clipping by the exact global norm
  for_reduction,  ///< the stage's own REDUCE: no clipping; VALIDATE only checks, last
  speculative     ///< the stage's own REDUCE, as if the norm allowed it; behind VALIDATE an UNDO of each stage
};

/// For each rank, the list of its actions: the only place that decides order (design, section 1).
///
/// A list is also the total order of the rank's memory: an action takes its buffers at its place in the list.
struct Schedule {
  std::string name;  ///< for people: "1f1b", "interleaved v=2", a file's name
  ScheduleShape shape;
  PerStage<Rank> rank_of;  ///< the rank that runs a stage (of the forward pass)
  /// Empty: the passes share their stages. Else each backward stage recomputes its forward from a checkpoint, and the
  /// schedule streams parameters.
  std::optional<BackwardStages> backward;
  bool streams_parameters = false;  ///< parameters and gradients are on the device between fetch and eviction only
  bool recomputes_late = false;  ///< R waits for the output's gradient, as where a backward pass recomputes its forward
  bool late_checkpoints = false;      ///< SEND_C and RECV_C wait for the compute action before them in their list
  bool weights_run_early = false;     ///< the place of a W is its latest: it runs before that while its rank waits
  bool offloads_activations = false;  ///< the activations of a stage are two buffers, one of which may go to the host
  bool tied_embeddings = false;  ///< the last stage's head is the first stage's embedding: one more edge (semantics)
  bool needs_norm = false;       ///< a step holds only if the norm allows it: it waits for VALIDATE, or UNDO follows
  bool forward_only = false;     ///< evaluation: no backward, nothing kept
  /// Embedding, final norm, head and loss are not of the first and the last stage: each rank has a share of them, a
  /// stage of its own behind the last one (share_of).
  bool shares_vocabulary = false;
  PerStage<bool> recompute;  ///< stages whose forward keeps its input only; R fills the rest again
  /// By backward stage, into how many parts a W may be cut (schedule/weight_parts); 1, or no entry: only whole ones.
  PerStage<std::uint8_t> weight_parts;
  /// Ranks in lockstep share their attention: F, B and I of a slot run together (schedule/lockstep).
  ExchangeRule exchange;
  PerRank<std::vector<Action>> actions;

  Stage last_stage() const { return Stage{shape.stages - 1}; }
  /// The ranks of the stages of a pass.
  const PerStage<Rank>& ranks(Pass pass) const {
    return pass == Pass::backward && backward ? backward->rank_of : rank_of;
  }
  Stage last_stage(Pass pass) const { return Stage{ranks(pass).size() - 1}; }
  /// Into how many parts a W of the stage may be cut: at least 1.
  std::int32_t parts_of_weight(Stage stage) const {
    return weight_parts.contains(stage) ? std::max<std::int32_t>(weight_parts[stage], 1) : 1;
  }
  /// What arrays by stage that serve both passes must hold, shares of the vocabulary included.
  std::int32_t most_stages() const { return std::max(shape.stages, ranks(Pass::backward).size()) + shares(); }
  /// The stages whose parameters are stepped: those of the backward pass, then the shares of the vocabulary.
  std::int32_t stepped_stages() const { return ranks(Pass::backward).size() + shares(); }
  /// The rank's share of the vocabulary. @pre shares_vocabulary
  Stage share_of(Rank rank) const { return Stage{ranks(Pass::backward).size() + rank.value()}; }
  bool is_share(Stage stage) const { return stage > last_stage(Pass::backward) && stage.value() < stepped_stages(); }
  /// The rank of a stage of the pass, or of a share; empty if there is no such stage.
  std::optional<Rank> rank_with(Pass pass, Stage stage) const {
    if (ranks(pass).contains(stage)) return ranks(pass)[stage];
    if (is_share(stage)) return Rank{stage.value() - share_of(Rank{0}).value()};
    return std::nullopt;
  }
  friend bool operator==(const Schedule&, const Schedule&) = default;

 private:
  std::int32_t shares() const { return shares_vocabulary ? shape.ranks : 0; }
};

}  // namespace penstock
