// SPDX-License-Identifier: Apache-2.0
#include "cost/slimpipe_memory.hpp"

#include "cost/stage_sizes.hpp"
#include "model/parameters.hpp"

namespace penstock {
namespace {

/// Parameters of the model by the devices that share them within a pipeline.
double parameters_of_device(const CostShape& shape) {
  const double experts = double{1} * shape.model.layers * parameter_counts(shape.model).layer_experts;
  const double dense = static_cast<double>(parameter_count(shape.model)) - experts;
  return (dense + experts / shape.expert) / shape.tensor / shape.pipeline;
}

}  // namespace

double whole_activation_bytes(const CostShape& shape, Recompute recompute) {
  return double{1} * shape.micro_batch * shape.sequence * shape.model.layers *
         activation_bytes_per_token(shape.model, recompute) / shape.devices();
}

double slimpipe_activation_bytes(const CostShape& shape, std::int32_t virtual_stages, Recompute recompute) {
  const double in_flight = 1 + 2.0 * (shape.pipeline - 1) / shape.slices / virtual_stages;
  return whole_activation_bytes(shape, recompute) / shape.pipeline * in_flight;
}

double interleaved_activation_bytes(const CostShape& shape, std::int32_t virtual_stages, Recompute recompute) {
  const double in_flight = 1 + double{1} * (shape.pipeline - 1) / shape.pipeline / virtual_stages;
  return whole_activation_bytes(shape, recompute) * in_flight;
}

double slimpipe_kv_gradient_bytes(const CostShape& shape, std::int32_t virtual_stages) {
  const double p = shape.pipeline;
  const double slices = (p - 1) + p * (virtual_stages + 1) * (shape.slices / p - 1) / 2;
  return slices / shape.slices * 8 * shape.model.hidden * shape.micro_batch * shape.sequence / shape.devices();
}

double slimpipe_logits_bytes(const CostShape& shape) {
  return 4.0 * shape.micro_batch * shape.sequence * shape.model.vocabulary / shape.devices() / shape.pipeline;
}

double slimpipe_weight_bytes(const CostShape& shape) {
  return 6 * parameters_of_device(shape);
}

double slimpipe_optimizer_bytes(const CostShape& shape) {
  return 12 * parameters_of_device(shape) / shape.data;
}

}  // namespace penstock
