// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/describe.hpp"
#include "cost/shape.hpp"
#include "schedule/options.hpp"
#include "schedule/recompute.hpp"

namespace penstock {

/// What a planner may choose from; an empty list stands for a default that depends on the rest (plan/candidates).
struct SearchOptions {
  std::vector<ScheduleKind> kinds;
  std::vector<std::int32_t> pipeline;
  std::vector<std::int32_t> tensor;
  std::vector<std::int32_t> context;
  std::vector<std::int32_t> expert;
  std::vector<std::int32_t> virtual_stages;
  std::vector<std::int32_t> slices;
  std::vector<std::int32_t> micro_batch;
  std::vector<Recompute> recompute;
  std::vector<double> offload_activations;
  std::vector<Exchange> exchange;
  std::vector<WeightGradients> weight_gradients;
  std::vector<Neighbours> neighbours;
  friend bool operator==(const SearchOptions&, const SearchOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, SearchOptions& options) {
  visit("kinds", options.kinds, {.help = "schedules; all kinds if left out"});
  visit("pipeline", options.pipeline,
        {.help = "ranks of a pipeline; all divisors of the devices, up to the layers, if left out",
         .unit = "ranks",
         .range = between(1, 65536)});
  visit("tensor", options.tensor,
        {.help = "tensor-parallel devices of a rank; powers of 2 up to the devices of a node that divide the heads, if "
                 "left out",
         .unit = "devices",
         .range = between(1, 65536)});
  visit("context", options.context,
        {.help = "context-parallel devices of a rank; parallel.context alone if left out",
         .unit = "devices",
         .range = between(1, 65536)});
  visit("expert", options.expert,
        {.help = "devices that share the experts; parallel.expert alone if left out",
         .unit = "devices",
         .range = between(1, 65536)});
  visit("virtual", options.virtual_stages,
        {.help = "stages of a rank (of spipe: in the forward pass); every number up to 16 that cuts the layers evenly, "
                 "if left out",
         .unit = "stages",
         .range = between(1, 1024)});
  visit(
      "slices", options.slices,
      {.help = "slices of a sequence, for the kinds that have them; if left out, 1, 2, 4 and 8 times the ranks and 2, "
               "4, 8, 16, of at least 128 tokens",
       .unit = "slices",
       .range = between(1, 65536)});
  visit("micro_batch", options.micro_batch,
        {.help = "sequences of a micro-batch; training.micro_batch alone if left out",
         .unit = "sequences",
         .range = at_least(1)});
  visit("recompute", options.recompute, {.help = "what a forward keeps; all if left out"});
  visit("offload_activations", options.offload_activations,
        {.help = "share of the activations that go to the host; memory.offload_activations alone if left out",
         .range = between(0, 1)});
  visit("exchange", options.exchange,
        {.help = "slimpipe's exchange of attention context; schedule.exchange alone if left out"});
  visit("weight_gradients", options.weight_gradients,
        {.help = "where weight gradients stand; schedule.weight_gradients alone if left out. Kinds that place them "
                 "themselves have one place for them"});
  visit("neighbours", options.neighbours,
        {.help = "which ranks stand side by side where there are replicas; parallel.neighbours alone if left out"});
}

/// The section `plan` of a deck.
struct PlanOptions {
  std::optional<std::int32_t> devices;
  std::int32_t rows = 10;
  SearchOptions search;
  friend bool operator==(const PlanOptions&, const PlanOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, PlanOptions& options) {
  visit("devices", options.devices,
        {.help = "devices to plan for",
         .unit = "devices",
         .range = between(1, 1 << 20),
         .when_absent = "parallel.pipeline x tensor x context x data"});
  visit("rows", options.rows, {.help = "best layouts that are shown", .unit = "layouts", .range = between(1, 1000)});
  visit("search", options.search, {.help = "what may be chosen"});
}

}  // namespace penstock
