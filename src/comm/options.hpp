// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/describe.hpp"

namespace penstock {

/// The section `parallel` of a deck: pipeline x data ranks.
struct ParallelOptions {
  std::int32_t pipeline = 1;  ///< ranks of one pipeline
  std::int32_t data = 1;      ///< pipelines (replicas), each with its share of the global batch
  std::optional<std::vector<std::int32_t>> layers_per_stage;
  friend bool operator==(const ParallelOptions&, const ParallelOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, ParallelOptions& options) {
  visit("pipeline", options.pipeline, {.help = "ranks of one pipeline", .unit = "ranks", .range = between(1, 65536)});
  visit(
      "data", options.data,
      {.help = "replicas of the pipeline, each with its share of the global batch; mpirun starts pipeline x data ranks",
       .unit = "replicas",
       .range = between(1, 65536)});
  visit("layers_per_stage", options.layers_per_stage,
        {.help = "layers of each stage, in the order of the model",
         .unit = "layers",
         .range = at_least(1),
         .when_absent = "as even as possible, the earlier stages get the larger ones"});
}

}  // namespace penstock
