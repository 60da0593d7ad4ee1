// SPDX-License-Identifier: Apache-2.0
//
// The pass that adds what the host does with gradients: OFFLOAD_G, REDUCE, VALIDATE, STEP, UNDO and FETCH_F.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/passes.hpp"
#include "schedule/semantics.hpp"

namespace penstock {

namespace {

bool works_on_gradients(Op op) {
  return gives_input_gradient(op) || op == Op::backward_weight || op == Op::send_backward ||
         op == Op::vocabulary_backward || op == Op::embed_backward;
}

/// The position after which a stage has no more work on its rank, or -1 if it has none: that of its last backward, or
/// of that one's message.
PerStage<std::int32_t> last_positions(const Schedule& schedule) {
  PerStage<std::int32_t> last(schedule.stepped_stages(), -1);
  for (const auto& list : schedule.actions) {
    for (std::size_t position = 0; position < list.size(); ++position) {
      const Action& action = list[position];
      if (works_on_gradients(action.op) && last.contains(action.stage))
        last[action.stage] = static_cast<std::int32_t>(position);
    }
  }
  return last;
}

Action host_action(Op op, Stage stage) {
  return {op, stage, MicroBatch{0}, Slice{0}};
}

bool steps_last(const Schedule& schedule, Stage stage) {
  return schedule.tied_embeddings && !schedule.shares_vocabulary && stage.value() > 0 &&
         stage == schedule.last_stage(Pass::backward);
}

/// One rank's list with the host actions of its stages.
class HostList {
 public:
  HostList(const Schedule& schedule, const PerStage<std::int32_t>& last, StepsWait wait)
      : schedule_{schedule}, last_{last}, wait_{wait} {}

  std::vector<Action> of(Rank rank) {
    list_.clear();
    stages_.clear();
    for (const Stage stage : all<Stage>(schedule_.stepped_stages())) {
      if (schedule_.rank_with(Pass::backward, stage) == rank && last_[stage] >= 0) stages_.push_back(stage);
    }
    const auto& actions = schedule_.actions[rank];
    for (std::size_t position = 0; position < actions.size(); ++position) {
      list_.push_back(actions[position]);
      const Action& action = actions[position];
      if (works_on_gradients(action.op) && last_.contains(action.stage) &&
          last_[action.stage] == static_cast<std::int32_t>(position)) {
        reduce(action.stage);
      }
    }
    finish();
    return list_;
  }

 private:
  void reduce(Stage stage) {
    list_.push_back(host_action(Op::offload_gradients, stage));
    list_.push_back(host_action(Op::reduce, stage));
    if (wait_ != StepsWait::for_norm && !steps_last(schedule_, stage)) step(stage);
  }

  void step(Stage stage) {
    list_.push_back(host_action(Op::step, stage));
    const bool is_final = wait_ == StepsWait::for_reduction;
    if (is_final && !schedule_.streams_parameters) list_.push_back(host_action(Op::fetch_forward, stage));
  }

  void finish() {
    const bool waits = wait_ == StepsWait::for_norm;
    if (!waits && !stages_.empty() && steps_last(schedule_, stages_.back())) step(stages_.back());
    list_.push_back(host_action(Op::validate, Stage{0}));
    if (wait_ == StepsWait::for_reduction) return;
    for (const Stage stage : stages_) list_.push_back(host_action(waits ? Op::step : Op::undo, stage));
    if (schedule_.streams_parameters) return;
    for (const Stage stage : stages_) list_.push_back(host_action(Op::fetch_forward, stage));
  }

  const Schedule& schedule_;
  const PerStage<std::int32_t>& last_;
  StepsWait wait_;
  std::vector<Stage> stages_;  // of the rank, ascending
  std::vector<Action> list_;
};

}  // namespace

Schedule add_host_stages(const Schedule& schedule, StepsWait wait) {
  Schedule result = schedule;
  const auto last = last_positions(schedule);
  HostList list{schedule, last, wait};
  for (const Rank rank : all<Rank>(schedule.actions.size())) result.actions[rank] = list.of(rank);
  return result;
}

}  // namespace penstock
