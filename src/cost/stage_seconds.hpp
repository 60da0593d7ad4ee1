// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cost/collectives.hpp"
#include "cost/exchange.hpp"
#include "cost/hardware.hpp"
#include "cost/links.hpp"
#include "cost/model_cost.hpp"
#include "cost/shape.hpp"

namespace penstock {

/// Seconds of the parts of a stage's work on one slice. What layers, and without an exchange stages, have in common is
/// computed once: a planner makes thousands of these.
class StageSeconds {
 public:
  StageSeconds(const CostShape& shape, const HardwareOptions& hardware, const Links& links);

  /// `stages` is one of the shape's two cuttings, in which `stage` counts.
  Seconds of(WorkPart part, const PerStage<LayerRange>& stages, Stage stage, Slice slice) const;
  Seconds seconds_of(const Product& product) const;

 private:
  /// Of slices of one length; by part, attention and collectives of layers not included.
  struct OfLength {
    CostShape shape;
    std::array<Seconds, 3> layer;
    std::array<Seconds, 3> embedding;  ///< of the first stage, or of the share of each rank
    std::array<Seconds, 3> head;
    std::array<Seconds, enum_names(Recompute{}).size()> again;  ///< by mode
  };
  OfLength of_length(std::int64_t tokens) const;
  const OfLength& length_of(Slice slice) const;
  /// A slice over all keys before it and its own, shared with no rank.
  BalancedAttention alone(Slice slice) const;
  Seconds seconds_of(const Work& work) const;
  Seconds layer_seconds(WorkPart part, Slice slice, const BalancedAttention& attention) const;
  Seconds attention_seconds(const CostShape& shape, WorkPart part, double length) const;
  LockstepUnit unit_of(Stage stage, Slice slice) const;
  Seconds ends_seconds(WorkPart part, Stage stage, std::int32_t stages, Slice slice) const;

  const CostShape& shape_;
  const HardwareOptions& hardware_;
  const Links& links_;
  std::vector<TokenRange> ranges_;                ///< by slice
  std::map<std::int64_t, OfLength> lengths_;      ///< by tokens
  std::array<std::vector<Seconds>, 3> by_slice_;  ///< all of a layer, where no exchange tells stages apart
  std::optional<BalancedLockstep> lockstep_;      ///< with an exchange
};

}  // namespace penstock
