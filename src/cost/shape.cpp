// SPDX-License-Identifier: Apache-2.0
#include "cost/shape.hpp"

#include <string_view>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/size_check.hpp"

namespace penstock {
namespace {

void check_share(std::string_view name, double value) {
  if (!(value >= 0 && value <= 1)) fail(ExitCode::bad_input, "{} is {}; it must be from 0 to 1", name, value);
}

void check_sizes(const CostShape& shape) {
  check_at_least_one("sequence", shape.sequence);
  check_at_least_one("micro_batch", shape.micro_batch);
  check_at_least_one("slices", shape.slices);
  check_at_least_one("parallel.pipeline", shape.pipeline);
  check_at_least_one("parallel.tensor", shape.tensor);
  check_at_least_one("parallel.context", shape.context);
  check_at_least_one("parallel.expert", shape.expert);
  check_at_least_one("parallel.data", shape.data);
}

void check_shares(const CostShape& shape) {
  check_share("the share of activations to offload", shape.offload_ratio);
  const Exposure& exposure = shape.exposure;
  for (const double share : {exposure.tensor, exposure.context, exposure.expert, exposure.vocabulary, exposure.replicas,
                             exposure.exchange}) {
    check_share("an exposed share of communication", share);
  }
}

void check_divisions(const CostShape& shape) {
  const ModelSpec& model = shape.model;
  if (model.heads % shape.tensor != 0) {
    fail(ExitCode::bad_input, "parallel.tensor {} does not divide the {} attention heads of the model", shape.tensor,
         model.heads);
  }
  if (shape.sequence % shape.context != 0) {
    fail(ExitCode::bad_input, "parallel.context {} does not divide the {} tokens of a sequence", shape.context,
         shape.sequence);
  }
  if (std::int64_t{shape.slices} * shape.context > shape.sequence) {
    fail(ExitCode::bad_input, "{} slices x parallel.context {} are more than the {} tokens of a sequence", shape.slices,
         shape.context, shape.sequence);
  }
  if (shape.expert > 1 && !model.is_mixture()) {
    fail(ExitCode::bad_input, "parallel.expert is {}, but the model has no experts", shape.expert);
  }
  if (model.is_mixture() && model.experts % shape.expert != 0) {
    fail(ExitCode::bad_input, "parallel.expert {} does not divide the {} experts of the model", shape.expert,
         model.experts);
  }
  if (std::int64_t{shape.context} * shape.data % shape.expert != 0) {
    fail(ExitCode::bad_input, "parallel.expert {} does not divide parallel.context {} x parallel.data {}", shape.expert,
         shape.context, shape.data);
  }
}

void check_stages(const CostShape& shape) {
  const auto layers_of = [](const PerStage<LayerRange>& stages) {
    std::int32_t layers = 0;
    for (const LayerRange& range : stages) layers += range.size();
    return layers;
  };
  require(layers_of(shape.forward_stages) == shape.model.layers && layers_of(shape.backward()) == shape.model.layers,
          "cost: stages of {} and {} layers, the model has {}", layers_of(shape.forward_stages),
          layers_of(shape.backward()), shape.model.layers);
  require(shape.recompute.empty() || shape.recompute.size() == shape.backward().size(),
          "cost: recomputation of {} stages, there are {}", shape.recompute.size(), shape.backward().size());
}

/// The exchange is one of a lockstep: stage s on rank s mod p, slices in groups of p.
void check_exchange(const CostShape& shape) {
  if (shape.exchange == Exchange::none) return;
  if (shape.slices % shape.pipeline != 0) {
    fail(ExitCode::bad_input, "{} no multiple of parallel.pipeline {}; the attention exchange needs that",
         counted(shape.slices, "slice is", "slices are"), shape.pipeline);
  }
  if (shape.key_cost != 0) {
    fail(ExitCode::bad_input,
         "the {} slices are of equal work; the attention exchange levels the work itself and needs slices of equal "
         "length: choose schedule.cutting even",
         shape.slices);
  }
  if (shape.forward_stages.size() % shape.pipeline != 0 || !shape.backward_stages.empty()) {
    fail(ExitCode::bad_input,
         "{} over {}; the attention exchange needs as many stages on each rank, and the same in both "
         "passes",
         counted(shape.forward_stages.size(), "stage"), counted(shape.pipeline, "rank"));
  }
}

}  // namespace

CostShape CostShape::of_length(std::int64_t tokens) const {
  CostShape one = *this;
  one.slice_tokens = tokens;
  return one;
}

double CostShape::tokens_of_sequence() const {
  return slice_tokens > 0 ? static_cast<double>(slice_tokens) : double{1} * sequence / slices;
}

double CostShape::tokens() const {
  return micro_batch * tokens_of_sequence() / context;
}

void check(const CostShape& shape) {
  check(shape.model);
  check_sizes(shape);
  check_shares(shape);
  check_divisions(shape);
  check_stages(shape);
  check_exchange(shape);
}

bool keeps_keys_and_values(const CostShape& shape, Recompute recompute) {
  return recompute != Recompute::layers || shape.slices > 1;
}

double storage_bytes(Precision precision) {
  return precision == Precision::fp32 ? 4 : 2;
}

}  // namespace penstock
