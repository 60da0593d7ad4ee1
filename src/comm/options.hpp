// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/describe.hpp"
#include "schedule/place.hpp"

namespace penstock {

/// The section `parallel` of a deck: pipeline x data ranks.
struct ParallelOptions {
  std::int32_t pipeline = 1;  ///< ranks of one pipeline
  std::int32_t tensor = 1;    ///< devices that share each layer of a rank
  std::int32_t context = 1;   ///< devices that share each sequence of a rank
  std::int32_t expert = 1;    ///< devices that share the experts of a layer
  std::int32_t data = 1;      ///< pipelines (replicas), each with its share of the global batch
  Neighbours neighbours = Neighbours::pipeline;
  std::optional<std::int32_t> ranks_per_node;  ///< pretended nodes: who reads parameters in memory, who by messages
  std::optional<std::vector<std::int32_t>> layers_per_stage;
  friend bool operator==(const ParallelOptions&, const ParallelOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, ParallelOptions& options) {
  visit("pipeline", options.pipeline, {.help = "ranks of one pipeline", .unit = "ranks", .range = between(1, 65536)});
  visit("tensor", options.tensor,
        {.help = "devices that share each layer of a rank; simulate and plan alone, train refuses more than 1",
         .unit = "devices",
         .range = between(1, 65536)});
  visit("context", options.context,
        {.help = "devices that share each sequence of a rank; simulate and plan alone, train refuses more than 1",
         .unit = "devices",
         .range = between(1, 65536)});
  visit(
      "expert", options.expert,
      {.help = "devices, of the context x data that hold the same layers, that share the experts of a layer; simulate "
               "and plan alone, train refuses more than 1",
       .unit = "devices",
       .range = between(1, 65536)});
  visit(
      "data", options.data,
      {.help = "replicas of the pipeline, each with its share of the global batch; mpirun starts pipeline x data ranks",
       .unit = "replicas",
       .range = between(1, 65536)});
  visit("neighbours", options.neighbours,
        {.help =
             "who stands side by side, and so shares nodes: the ranks of a pipeline, or the replicas of a rank, as in "
             "Megatron-LM. simulate and plan alone"});
  visit(
      "ranks_per_node", options.ranks_per_node,
      {.help = "for tests: so many ranks, in their order, pass for a node of their own, even on one machine, and share "
               "parameters in memory with each other alone",
       .unit = "ranks",
       .range = at_least(1),
       .when_absent = "nodes are machines"});
  visit("layers_per_stage", options.layers_per_stage,
        {.help = "layers of each stage, in the order of the model",
         .unit = "layers",
         .range = at_least(1),
         .when_absent = "as even as possible, the earlier stages get the larger ones"});
}

}  // namespace penstock
