// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/index.hpp"

namespace penstock {

/// The layers of one stage: [begin, end). Stage 0 has the embedding too, the last stage the final norm and the head.
struct LayerRange {
  Layer begin;
  Layer end;
  std::int32_t size() const { return end.value() - begin.value(); }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

/// A cutting of a model's layers into stages, in order, without gap or overlap.
struct Partition {
  PerStage<LayerRange> stages;
  friend bool operator==(const Partition&, const Partition&) = default;
};

/// Cuts `layers` into `stages` parts whose sizes differ by at most one; the earlier stages get the larger ones.
/// @throws Error bad_input if layers < stages (an empty stage would only pass its input on), with both numbers.
Partition even_partition(std::int32_t layers, std::int32_t stages);

/// Cuts by an explicit list of layers per stage.
/// @throws Error bad_input if a stage is empty or the sum is not `layers`, with the numbers.
Partition listed_partition(std::int32_t layers, const std::vector<std::int32_t>& per_stage);

/// The forward stage that holds the first layer of each backward stage, and so makes its input (Schedule::backward).
/// With uneven stages the borders decide, not the numbers of stages alone. @pre both cut the same layers
PerStage<Stage> feeding_stages(const Partition& forward, const Partition& backward);

}  // namespace penstock
