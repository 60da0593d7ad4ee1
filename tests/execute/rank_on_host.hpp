// SPDX-License-Identifier: Apache-2.0
//
// One rank of a schedule on the host device, in one process: what the tests of the executor run on. Messages to other
// ranks leave at once, and messages from them are always there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "device/host/host_device.hpp"
#include "execute/executor.hpp"
#include "memory/plan.hpp"
#include "schedule/generators.hpp"
#include "schedule/passes.hpp"

namespace penstock::test {

/// Records what it is asked to run, and does `on_compute` and `on_cpu`, if they are set.
class RecordingWork : public MemoryWork {
 public:
  RecordingWork(std::int32_t stages, std::int64_t host_bytes)
      : gradients_{stages, std::vector<std::byte>(static_cast<std::size_t>(host_bytes))}, parameters_{gradients_} {}

  Seconds compute(const Action& action, const StageBuffers& buffers) override {
    computed.push_back(action);
    if (on_compute) on_compute(action, buffers);
    return waited;
  }
  void cpu(const Action& action) override {
    on_host.push_back(action);
    if (on_cpu) on_cpu(action);
  }
  std::span<std::byte> host_gradients(Stage stage) override { return gradients_[stage]; }
  std::byte* host_activations() override { return nullptr; }
  Event fetch(const Action& action, const CopyPlace& place, std::vector<Event> after) override {
    return place.device->copy_to_device(*place.queue, std::move(after), place.data, parameters_[action.stage].data(),
                                        Bytes{static_cast<std::int64_t>(parameters_[action.stage].size())});
  }

  std::span<std::byte> host_parameters(Stage stage) { return parameters_[stage]; }

  std::function<void(const Action&, const StageBuffers&)> on_compute;
  std::function<void(const Action&)> on_cpu;
  Seconds waited{0};             ///< by each compute action, as it says
  std::vector<Action> computed;  ///< written by the compute lane
  std::vector<Action> on_host;   ///< written by the CPU lane

 private:
  PerStage<std::vector<std::byte>> gradients_;
  PerStage<std::vector<std::byte>> parameters_;
};

/// A queue for each channel; sends do nothing, receives write zeros.
class LonelyTransport : public Transport {
 public:
  explicit LonelyTransport(Device& device) : device_{device} {}
  std::function<void(int peer, Kind kind)> on_receive;  ///< before a message is there
  Event send(int peer, Kind kind, std::vector<Event> after, const std::byte* /*data*/, Bytes /*bytes*/) override {
    return channel(peer, kind, 0).submit(std::move(after), [] {});
  }
  Event receive(int peer, Kind kind, std::vector<Event> after, std::byte* data, Bytes bytes) override {
    return channel(peer, kind, 1).submit(std::move(after), [this, peer, kind, data, bytes] {
      if (on_receive) on_receive(peer, kind);
      std::fill_n(data, bytes.value, std::byte{0});
    });
  }

 private:
  Queue& channel(int peer, Kind kind, int direction) {
    auto& queue = queues_[{peer, kind, direction}];
    if (!queue) queue = device_.make_queue("channel");
    return *queue;
  }
  Device& device_;
  std::map<std::tuple<int, Kind, int>, std::unique_ptr<Queue>> queues_;
};

inline constexpr std::int64_t test_buffer_bytes = 2 * buffer_alignment;

/// `test_buffer_bytes` for every kind of every stage.
inline RankPlan plan_of(const Schedule& schedule, Rank rank) {
  StageBytes bytes;
  bytes.fill(Bytes{test_buffer_bytes});
  const PerStage<StageBytes> all_stages(schedule.shape.stages, bytes);
  return plan_rank(schedule, rank, all_stages, lay_out_persistent({&schedule}, rank, {all_stages}));
}

struct RankOnHost {
  explicit RankOnHost(const Schedule& schedule_of_all, Rank rank = Rank{0}, DelayOptions delays = {})
      : RankOnHost{schedule_of_all, plan_of(schedule_of_all, rank), delays} {}

  RankOnHost(Schedule schedule_of_all, RankPlan plan_of_rank, DelayOptions delays = {},
             std::optional<Bytes> capacity = std::nullopt)
      : schedule{std::move(schedule_of_all)},
        plan{std::move(plan_of_rank)},
        work{schedule.shape.stages, test_buffer_bytes},
        device{make_host_device(capacity.value_or(plan.peak), delays)},
        base{device->reserve(capacity.value_or(plan.peak))},
        arena{base, capacity.value_or(plan.peak)},
        transport{*device},
        lanes{*device} {
    for (const auto& buffer : plan.persistent) arena.take(buffer.offset, buffer.bytes, "persistent");
    executor.emplace(schedule, plan, ExecutorResources{&lanes, device.get(), &arena, base, &transport, &work});
  }

  Timeline traced_run(std::int32_t step = 1) {
    Timeline trace;
    executor->run(step, &trace);
    return trace;
  }
  std::vector<Action> actions_of(Lane lane) const {
    std::vector<Action> result;
    for (const auto& action : schedule.actions[plan.rank]) {
      if (lane_of(action.op) == lane) result.push_back(action);
    }
    return result;
  }

  const Schedule schedule;
  const RankPlan plan;
  RecordingWork work;
  std::unique_ptr<Device> device;
  std::byte* base;
  Arena arena;
  LonelyTransport transport;
  LaneQueues lanes;
  std::optional<Executor> executor;  ///< last: waits for the lanes
};

/// A complete schedule by its kind ("1f1b", ...).
struct ScheduleCase {
  std::string kind = "1f1b";
  GeneratorOptions generator;
  bool recompute = false;
  bool split = false;
  bool tied = false;
  StepsWait wait = StepsWait::for_norm;
};

inline Schedule schedule_of(const ScheduleCase& of) {
  const auto compute = generate(of.kind, of.generator);
  return complete(compute, {PerStage<bool>{compute.shape.stages, of.recompute}, of.split, of.tied, of.wait});
}

/// Ranks x kinds x virtual stages x passes, small.
inline std::vector<ScheduleCase> schedule_cases() {
  std::vector<ScheduleCase> cases;
  for (const GeneratorOptions& generator :
       {GeneratorOptions{1, 1, 3}, GeneratorOptions{2, 1, 4}, GeneratorOptions{3, 1, 5}, GeneratorOptions{4, 1, 2},
        GeneratorOptions{1, 3, 4}, GeneratorOptions{2, 2, 4}, GeneratorOptions{3, 2, 3}}) {
    for (const char* kind : {"gpipe", "1f1b", "interleaved"}) {
      if (generator.virtual_stages > 1 && std::string{kind} == "1f1b") continue;
      cases.push_back({kind, generator});
      cases.push_back({kind, generator, true, false, true});
      cases.push_back({kind, generator, false, true, false, StepsWait::for_reduction});
      cases.push_back({kind, generator, true, true, true, StepsWait::for_reduction});
      cases.push_back({kind, generator, false, false, true, StepsWait::speculative});
    }
  }
  return cases;
}

}  // namespace penstock::test
