// SPDX-License-Identifier: Apache-2.0
#include "execute/host_stages.hpp"

#include "model/parameters.hpp"

namespace penstock {
namespace {

std::vector<Bytes> offsets_of(const BufferLayout& layout) {
  std::vector<Bytes> offsets;
  offsets.reserve(layout.tensors.size());
  for (const auto& tensor : layout.tensors) offsets.push_back(tensor.offset);
  return offsets;
}

}  // namespace

HostStageShape host_stage_shape(const RunPlan& plan, Stage stage, std::int32_t replica) {
  const StageShape& shape = plan.training.stages_of(Pass::backward)[stage];
  const StageMath math{shape};
  const auto parameters = math.layout(BufferKind::parameters);
  const auto gradients = math.layout(BufferKind::gradients);
  HostStageShape result;
  result.parameters = host_parameters(parameters_of_stage(shape.model, shape.begin, shape.end, shape.first, shape.last),
                                      canonical_begin(shape.model, shape.begin), offsets_of(parameters),
                                      offsets_of(gradients), shape.first);
  result.working_bytes = parameters.bytes;
  result.gradient_bytes = gradients.bytes;
  result.storage = shape.storage;
  result.replicas = plan.shape.replicas;
  result.replica = replica;
  result.keeps_previous = plan.keeps_previous_states();
  result.name = fmt::format("stage {}", stage);
  return result;
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
  const auto& ranks = plan.training.schedule.ranks(Pass::backward);
  for (const Stage stage : all<Stage>(ranks.size())) {
    if (ranks[stage] == place.coordinate) shapes.push_back(host_stage_shape(plan, stage, place.replica));
  }
  return shapes;
}

}  // namespace penstock
