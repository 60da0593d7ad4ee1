// SPDX-License-Identifier: Apache-2.0
//
// What an executor knows of its list before it runs.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "execute/executor.hpp"
#include "schedule/semantics.hpp"
#include "schedule/text.hpp"

namespace penstock {

/// Goes through the list once, with the buffers that are live at each place.
class Executor::Preparation {
 public:
  Preparation(const Schedule& schedule, const RankPlan& plan, const ExecutorResources& resources)
      : schedule_{schedule}, index_{schedule}, plan_{plan}, resources_{resources} {
    for (const auto& planned : plan.persistent) live_[planned.buffer] = planned;
  }

  std::vector<Prepared> list() {
    std::vector<Prepared> prepared;
    prepared.reserve(plan_.actions.size());
    for (const auto& planned : plan_.actions) prepared.push_back(prepare(planned));
    mark_tail(prepared);
    return prepared;
  }

 private:
  /// From the end backwards: CPU actions behind VALIDATE that only such actions wait for.
  static void mark_tail(std::vector<Prepared>& list) {
    std::vector<bool> is_needed(list.size(), false);
    for (std::size_t position = list.size(); position-- > 0;) {
      Prepared& prepared = list[position];
      if (prepared.action.op == Op::validate) return;
      prepared.is_tail = prepared.lane == Lane::cpu && !is_needed[position];
      if (prepared.is_tail) continue;
      for (const auto before : prepared.after) is_needed[static_cast<std::size_t>(before)] = true;
    }
  }

  Prepared prepare(const PlannedAction& planned) {
    const ActionOnRank node{plan_.rank, planned.action};
    Prepared result;
    result.action = planned.action;
    result.lane = lane_of(planned.action.op);
    result.runs_early = runs_early(schedule_, planned.action);
    result.after = predecessors(planned, node);
    result.takes = planned.takes;
    result.host_offset = planned.host_offset;
    for (const auto& buffer : planned.takes) live_[buffer.buffer] = buffer;
    result.buffers.slice = node.action.slice;
    result.buffers.earlier.resize(static_cast<std::size_t>(node.action.slice.value()));
    for (const auto& buffer : uses(schedule_, node)) place(result, buffer);
    place_transfer(result);
    for (const auto& buffer : planned.frees) {
      result.frees.push_back(live_.at(buffer));
      live_.erase(buffer);
    }
    position_[planned.action] = static_cast<std::int32_t>(position_.size());
    return result;
  }

  std::vector<std::int32_t> predecessors(const PlannedAction& planned, const ActionOnRank& node) const {
    auto result = planned.waits_for;
    for (const auto& need : needs(index_, node)) {
      // What happens on other ranks arrives by message: their receives, or the exchanges of the CPU stages.
      if (need.rank != plan_.rank) continue;
      const auto found = position_.find(need.action);
      require(found != position_.end(), "{} needs {}, which is not before it in the list of rank {}",
              to_text(node.action), to_text(need.action), plan_.rank);
      result.push_back(found->second);
    }
    return without_implied(node.action, std::move(result));
  }

  /// Ascending; of each queue's actions the last alone, since they complete in order. An action that waited for all
  /// would be woken by each, and would each time take the processor from a lane that computes.
  std::vector<std::int32_t> without_implied(const Action& action, std::vector<std::int32_t> positions) const {
    std::sort(positions.begin(), positions.end(), std::greater<>{});
    // What may run before its place is in order among itself, and complete before its place is past.
    const bool is_early = runs_early(schedule_, action);
    std::set<std::pair<Lane, bool>> seen{{lane_of(action.op), is_early}, {lane_of(action.op), true}};
    std::vector<std::int32_t> kept;
    for (const auto position : positions) {
      const Action& before = plan_.actions[static_cast<std::size_t>(position)].action;
      const Lane lane = lane_of(before.op);
      const bool is_message = lane == Lane::send || lane == Lane::receive;
      const bool is_new = is_message ? kept.empty() || kept.back() != position
                                     : seen.insert({lane, runs_early(schedule_, before)}).second;
      if (is_new) kept.push_back(position);
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

  std::byte* address(const SymbolicBuffer& buffer) const {
    const auto found = live_.find(buffer);
    require(found != live_.end(), "rank {}: {} of stage {} is used where it is not live", plan_.rank,
            name_of(buffer.kind), buffer.stage);
    return resources_.device_base + found->second.offset.value;
  }

  void place(Prepared& prepared, const SymbolicBuffer& buffer) const {
    auto& to = prepared.buffers;
    std::byte* data = address(buffer);
    const bool own = buffer.stage == prepared.action.stage;
    // Of the other slices, those before are read, and given gradients.
    const bool own_slice = buffer.slice == prepared.action.slice;
    const auto earlier = static_cast<std::size_t>(buffer.slice.value());
    switch (buffer.kind) {
      case BufferKind::parameters:
      case BufferKind::backward_parameters:
        to.parameters = data;
        break;
      case BufferKind::gradients:
        to.gradients = data;
        break;
      case BufferKind::tokens:
        to.tokens = reinterpret_cast<const std::int32_t*>(data);  // raw device memory
        break;
      case BufferKind::workspace:
        to.workspace = data;
        break;
      // Between stages of one rank the output of one is the input of the other, without a copy; gradients likewise.
      case BufferKind::input:
        own ? void(to.input = data) : void(to.output = data);
        break;
      // At the ends of a model whose vocabulary is shared, actions of shares work on what stages give and take.
      case BufferKind::output:
        own ? void(to.output = data) : void(to.input = data);
        break;
      case BufferKind::activations:
        own_slice ? void(to.activations = data) : void(to.earlier.at(earlier).keys_and_values = data);
        break;
      case BufferKind::offloadable:
        to.offloadable = data;
        break;
      case BufferKind::key_values:
        own_slice ? void(to.key_values = data) : void(to.earlier.at(earlier).keys_and_values = data);
        break;
      case BufferKind::key_value_gradients:
        own_slice ? void(to.key_value_gradients = data) : void(to.earlier.at(earlier).gradients = data);
        break;
      case BufferKind::logits:
        to.logits = data;
        break;
      case BufferKind::output_gradient:
        own ? void(to.output_gradient = data) : void(to.input_gradient = data);
        break;
      case BufferKind::input_gradient:
        own ? void(to.input_gradient = data) : void(to.output_gradient = data);
        break;
      case BufferKind::weight_operands:
        to.weight_operands = data;
        break;
      // A forward fills those of the backward stages that it feeds, ascending; the backward pass starts from its own.
      case BufferKind::checkpoint:
        prepared.action.op == Op::forward ? to.checkpoints.push_back(data) : void(to.input = data);
        break;
      case BufferKind::optimizer_states:
        break;  // of schedules whose mathematics does not run yet
    }
  }

  /// The one buffer of a message or of a copy between host and device.
  void place_transfer(Prepared& prepared) const {
    if (prepared.lane == Lane::compute || prepared.lane == Lane::cpu) return;
    const auto& action = prepared.action;
    const auto buffer = moved_by(schedule_, {plan_.rank, action});
    require(buffer.has_value(), "{} moves no buffer", to_text(action));
    prepared.device_data = address(*buffer);
    prepared.bytes = live_.at(*buffer).bytes;
    if (const auto peer = peer_of(schedule_, action)) prepared.peer = peer->value();
  }

  const Schedule& schedule_;
  ScheduleIndex index_;
  const RankPlan& plan_;
  const ExecutorResources& resources_;
  std::map<SymbolicBuffer, PlannedBuffer> live_;
  std::map<Action, std::int32_t> position_;
};

std::vector<Executor::Prepared> Executor::prepare(const Schedule& schedule, const RankPlan& plan,
                                                  const ExecutorResources& resources) {
  return Preparation{schedule, plan, resources}.list();
}

}  // namespace penstock
