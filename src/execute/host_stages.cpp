// SPDX-License-Identifier: Apache-2.0
#include "execute/host_stages.hpp"

#include <string>
#include <utility>

#include "model/parameters.hpp"

namespace penstock {
namespace {

std::vector<Bytes> offsets_of(const BufferLayout& layout) {
  std::vector<Bytes> offsets;
  offsets.reserve(layout.tensors.size());
  for (const auto& tensor : layout.tensors) offsets.push_back(tensor.offset);
  return offsets;
}

std::vector<HostParameter> parameters_on_host(const StageShape& shape, const BufferLayout& parameters,
                                              const BufferLayout& gradients) {
  const auto list = parameters_of_stage(shape.model, shape.begin, shape.end, shape.first, shape.last);
  return host_parameters(list, canonical_index(shape.model, list.front().name), offsets_of(parameters),
                         offsets_of(gradients), shape.first);
}

std::vector<HostParameter> parameters_on_host(const VocabularyShape& shape, const BufferLayout& parameters,
                                              const BufferLayout& gradients) {
  const ModelSpec& model = shape.run.model;
  std::vector<HostParameter> entries;
  for (const Parameter& p : parameters_of_share(model, shape.rows().count, shape.is_first(), shape.is_last())) {
    const bool is_cut = p.role == ParameterRole::token_embedding || p.role == ParameterRole::head_weight;
    entries.push_back({.parameter = p,
                       .canonical = canonical_index(model, p.name),
                       .working_offset = parameters.tensors[entries.size()].offset,
                       .gradient_offset = gradients.tensors[entries.size()].offset,
                       .first = is_cut ? shape.rows().begin * p.columns : 0});
  }
  return entries;
}

template <class Math>
HostStageShape shape_on_host(const RunPlan& plan, const Math& math, std::int32_t replica, std::string name) {
  const auto parameters = math.layout(BufferKind::parameters);
  const auto gradients = math.layout(BufferKind::gradients);
  HostStageShape result;
  result.parameters = parameters_on_host(math.shape(), parameters, gradients);
  result.working_bytes = parameters.bytes;
  result.gradient_bytes = gradients.bytes;
  result.storage = plan.training.stages[Stage{0}].storage;
  result.replicas = plan.shape.replicas;
  result.replica = replica;
  result.keeps_previous = plan.keeps_previous_states();
  result.name = std::move(name);
  return result;
}

}  // namespace

HostStageShape host_stage_shape(const RunPlan& plan, Stage stage, std::int32_t replica) {
  const Schedule& schedule = plan.training.schedule;
  if (!schedule.is_share(stage)) {
    const StageMath math{plan.training.stages_of(Pass::backward)[stage]};
    return shape_on_host(plan, math, replica, fmt::format("stage {}", stage));
  }
  const Rank rank = *schedule.rank_with(Pass::backward, stage);
  return shape_on_host(plan, VocabularyMath{plan.training.shares[rank]}, replica,
                       fmt::format("rank {}'s share of the vocabulary", rank));
}

SharedStages shared_stages(const RunPlan& plan) {
  SharedStages shared;
  shared.owner = plan.training.schedule.ranks(Pass::backward);
  for (const Stage stage : all<Stage>(shared.owner.size())) {
    shared.bytes.push_back(host_stage_shape(plan, stage, 0).working_bytes);
  }
  return shared;
}

std::vector<HostStageShape> host_stage_shapes(const RunPlan& plan, const RankPlace& place) {
  std::vector<HostStageShape> shapes;
  const Schedule& schedule = plan.training.schedule;
  for (const Stage stage : all<Stage>(schedule.stepped_stages())) {
    if (schedule.rank_with(Pass::backward, stage) != place.coordinate) continue;
    shapes.push_back(host_stage_shape(plan, stage, place.replica));
  }
  return shapes;
}

}  // namespace penstock
