// SPDX-License-Identifier: Apache-2.0
#include "execute/rank_state.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "comm/agreement.hpp"
#include "device/factory.hpp"
#include "model/parameters.hpp"

namespace penstock {
namespace {

OptimizerGroups make_groups(const RankPlace& place, const Communicator& world) {
  return {world.duplicate(), world.split(place.replica, place.coordinate.value()),
          world.split(place.coordinate.value(), place.replica)};
}

/// What one pipeline refuses, all do: its machines may be short of memory, and those of the others not.
std::unique_ptr<ParameterStore> make_store(const RunPlan& plan, const Communicator& world, const Communicator& pipeline,
                                           const StoreOptions& sharing) {
  if (!plan.training.schedule.streams_parameters) return nullptr;
  return jointly(world, [&] { return std::make_unique<ParameterStore>(pipeline, shared_stages(plan), sharing); });
}

}  // namespace

RankState::RankState(const RunPlan& plan, const Communicator& world, const DeviceOptions& device,
                     const DelayOptions& delays, const StoreOptions& sharing)
    : place_{RankPlace::of(world.rank(), plan.shape.pipeline)},
      plan_{&plan},
      compute_workers_{device.threads},
      cpu_workers_{device.threads},
      kernels_{make_host_kernels(compute_workers_)},
      groups_{make_groups(place_, world)},
      vocabulary_peers_{groups_.pipeline.duplicate()},
      store_{make_store(plan, world, groups_.pipeline, sharing)},
      stages_{
          std::vector<std::unique_ptr<HostStage>>(static_cast<std::size_t>(plan.training.schedule.stepped_stages()))} {
  const auto planned = plan.planned_device_bytes(place_.coordinate);
  device_ = make_device(deck_name(device.kind), plan.shape.device_capacity, delays);
  base_ = device_->reserve(planned);
  arena_ = std::make_unique<Arena>(base_, planned);
  for (const auto& buffer : plan.persistent[place_.coordinate].buffers) {
    arena_->take(buffer.offset, buffer.bytes, std::string{name_of(buffer.buffer.kind)});
  }
  transport_ = make_mpi_transport(groups_.pipeline, delays);
  for (const Stage stage : all<Stage>(stages_.size())) {
    if (plan.training.schedule.rank_with(Pass::backward, stage) != place_.coordinate) continue;
    stages_[stage] = std::make_unique<HostStage>(host_stage_shape(plan, stage, place_.replica),
                                                 store_ ? store_->own(stage) : std::span<std::byte>{});
  }
  parameter_fetch_ = std::make_unique<ParameterFetch>(plan, place_.coordinate, stages_, store_.get());
  lanes_ = std::make_unique<LaneQueues>(*device_);
}

/// Fetches that an unfinished step has left in the lanes end, and the lanes with them.
RankState::~RankState() {
  if (store_) store_->stop();
}

ExecutorResources RankState::resources(StageWork& work) {
  return {lanes_.get(), device_.get(), arena_.get(), base_, transport_.get(), &work};
}

std::byte* RankState::persistent_address(BufferKind kind, Stage stage) const {
  const auto& buffers = plan_->persistent[place_.coordinate].buffers;
  const auto found = std::find_if(buffers.begin(), buffers.end(), [&](const PlannedBuffer& planned) {
    return planned.buffer.kind == kind && planned.buffer.stage == stage;
  });
  require(found != buffers.end(), "rank {} has no {} of stage {}", place_.coordinate, name_of(kind), stage);
  return base_ + found->offset.value;
}

void RankState::publish_parameters(std::int64_t step) {
  for (const Stage stage : all<Stage>(stages_.size())) {
    if (stages_[stage]) parameter_fetch_->publish(stage, step);
  }
  expect_parameters(step);
}

void RankState::upload_parameters() {
  if (plan_->training.schedule.streams_parameters) return;
  for (const Stage stage : all<Stage>(stages_.size())) {
    if (!stages_[stage]) continue;
    const auto copy = stages_[stage]->working_copy();
    device_
        ->copy_to_device(*lanes_->to_device, {}, persistent_address(BufferKind::parameters, stage), copy.data(),
                         {static_cast<std::int64_t>(copy.size())})
        .wait();
  }
}

void RankState::upload_tokens(Stage stage, std::span<const std::int32_t> tokens) {
  const auto bytes = std::as_bytes(tokens);
  device_
      ->copy_to_device(*lanes_->to_device, {}, persistent_address(BufferKind::tokens, stage), bytes.data(),
                       {static_cast<std::int64_t>(bytes.size())})
      .wait();
}

void RankState::read_workspace(Bytes offset, std::span<std::byte> out) {
  const std::byte* from = persistent_address(BufferKind::workspace, Stage{0}) + offset.value;
  device_->copy_to_host(*lanes_->to_host, {}, out.data(), from, {static_cast<std::int64_t>(out.size())}).wait();
}

}  // namespace penstock
