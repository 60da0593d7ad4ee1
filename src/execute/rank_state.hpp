// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/transport.hpp"
#include "device/arena.hpp"
#include "device/device.hpp"
#include "device/options.hpp"
#include "execute/executor.hpp"
#include "execute/host_stages.hpp"
#include "execute/parameter_fetch.hpp"
#include "execute/run_plan.hpp"
#include "execute/training_work.hpp"
#include "execute/vocabulary_peers.hpp"
#include "kernels/kernels.hpp"
#include "kernels/workers.hpp"
#include "optimizer/host_stage.hpp"

namespace penstock {

/// What a rank holds for a whole run: the device with its planned memory, lanes, transport, kernels, host stages.
class RankState {
 public:
  /// Collective over `world`, which has pipeline x replicas ranks. Reserves the rank's planned device bytes, and no
  /// more.
  RankState(const RunPlan& plan, const Communicator& world, const DeviceOptions& device, const DelayOptions& delays,
            const StoreOptions& sharing = {});
  ~RankState();

  const RankPlace& place() const { return place_; }
  Kernels& kernels() { return *kernels_; }
  Workers& cpu_workers() { return cpu_workers_; }
  OptimizerGroups& groups() { return groups_; }
  /// For the work of schedules whose ranks share the vocabulary.
  PipelinePeers& vocabulary_peers() { return vocabulary_peers_; }
  /// By stage of the backward pass, then this rank's share of the vocabulary; null for those of other ranks.
  PerStage<std::unique_ptr<HostStage>>& stages() { return stages_; }
  const ParameterFetch& parameter_fetch() const { return *parameter_fetch_; }
  /// The host stages hold what training has made of them in `step` steps: at the start and after a load.
  void publish_parameters(std::int64_t step);
  /// Runs that begin from now on read the parameters after `step` steps.
  void expect_parameters(std::int64_t step) { parameter_fetch_->expect(step); }
  /// Between the ranks of the pipeline; null where there is one.
  Transport* transport() { return transport_.get(); }
  Bytes peak_device_bytes() const { return arena_->peak(); }
  std::string device_description() const { return device_->description(); }

  ExecutorResources resources(StageWork& work);
  /// Copies all working copies to the device, unless the schedule fetches them for each stay: at the start and after a
  /// load. Blocks.
  void upload_parameters();
  /// Copies a step's tokens (pack_tokens) to the stage's tokens buffer. Blocks.
  void upload_tokens(Stage stage, std::span<const std::int32_t> tokens);
  /// Copies from the rank's workspace, at `offset`. Blocks.
  void read_workspace(Bytes offset, std::span<std::byte> out);

 private:
  std::byte* persistent_address(BufferKind kind, Stage stage) const;

  RankPlace place_;
  const RunPlan* plan_;
  Workers compute_workers_;
  Workers cpu_workers_;
  std::unique_ptr<Kernels> kernels_;
  OptimizerGroups groups_;
  PipelinePeers vocabulary_peers_;
  std::unique_ptr<ParameterStore> store_;  // null where parameters stay on the device
  PerStage<std::unique_ptr<HostStage>> stages_;
  std::unique_ptr<ParameterFetch> parameter_fetch_;
  std::unique_ptr<Device> device_;
  std::byte* base_ = nullptr;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<LaneQueues> lanes_;  // last: their threads use everything above
};

}  // namespace penstock
