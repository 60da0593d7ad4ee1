// SPDX-License-Identifier: Apache-2.0
#include "simulate/simulate.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "schedule/graph.hpp"
#include "schedule/semantics.hpp"

namespace penstock {

namespace {

std::vector<MemoryEdge> edges_of(const std::vector<RankPlan>& plans) {
  std::vector<MemoryEdge> edges;
  for (const RankPlan& plan : plans) {
    const auto more = memory_edges(plan);
    edges.insert(edges.end(), more.begin(), more.end());
  }
  return edges;
}

void check_plans(const Schedule& schedule, const std::vector<RankPlan>& plans) {
  if (plans.empty()) return;
  require(static_cast<std::int32_t>(plans.size()) == schedule.shape.ranks,
          "{} memory plans for the {} ranks of schedule '{}'", plans.size(), schedule.shape.ranks, schedule.name);
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    const RankPlan& plan = plans[static_cast<std::size_t>(rank.value())];
    require(plan.rank == rank && plan.actions.size() == schedule.actions[rank].size(),
            "the memory plan of rank {} is not that of schedule '{}'", rank, schedule.name);
  }
}

/// Writes the timeline once all starts are known.
class Recorder {
 public:
  Recorder(const ScheduleIndex& index, const std::vector<RankPlan>& plans, const DependenceGraph& graph,
           const ActionTimes& times)
      : index_{index}, plans_{plans}, graph_{graph}, times_{times} {}

  Timeline record() {
    const Schedule& schedule = index_.schedule();
    timeline_.schedule = schedule.name;
    timeline_.ranks = schedule.shape.ranks;
    timeline_.spans.reserve(static_cast<std::size_t>(graph_.size()));
    for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
      std::int32_t position = 0;
      for (const Action& action : schedule.actions[rank]) add_span({rank, action}, position++);
      if (!plans_.empty()) add_memory(rank);
    }
    return std::move(timeline_);
  }

 private:
  struct Change {
    Seconds time;
    std::size_t position;  // in the list
    Bytes bytes;
    auto key() const { return std::tuple{time, position}; }
  };

  void add_span(const ActionOnRank& action, std::int32_t position) {
    const auto match = match_of(index_.schedule(), action);
    const auto match_position = match ? index_.position_of(*match) : std::nullopt;
    const bool follows = lane_of(action.action.op) == Lane::receive && match_position;
    const std::int32_t node = graph_.representative(graph_.node_of(action.rank, position));
    Span span;
    span.rank = action.rank.value();
    span.lane = lane_of(action.action.op);
    span.peer = match ? match->rank.value() : -1;
    span.action = action.action;
    span.start = times_.starts[static_cast<std::size_t>(node)];
    span.end = times_.ends[static_cast<std::size_t>(node)];
    if (match_position && !plans_.empty()) span.bytes = message_bytes(follows ? action : *match);
    timeline_.spans.push_back(span);
  }

  Bytes message_bytes(const ActionOnRank& receive) const {
    const auto position = static_cast<std::size_t>(*index_.position_of(receive));
    return plans_[static_cast<std::size_t>(receive.rank.value())].actions[position].takes.at(0).bytes;
  }

  /// The rank's memory in use, from the spans that were added last.
  void add_memory(Rank rank) {
    const RankPlan& plan = plans_[static_cast<std::size_t>(rank.value())];
    const auto first_span = timeline_.spans.size() - plan.actions.size();
    std::map<SymbolicBuffer, Bytes> live;
    std::vector<Change> changes;
    for (std::size_t position = 0; position < plan.actions.size(); ++position) {
      const Span& span = timeline_.spans[first_span + position];
      for (const PlannedBuffer& taken : plan.actions[position].takes) {
        live[taken.buffer] = taken.bytes;
        changes.push_back({span.start, position, taken.bytes});
      }
      for (const SymbolicBuffer& freed : plan.actions[position].frees) {
        changes.push_back({span.end, position, Bytes{0} - live[freed]});
      }
    }
    std::stable_sort(changes.begin(), changes.end(),
                     [](const Change& a, const Change& b) { return a.key() < b.key(); });
    Bytes in_use{0};
    for (const PlannedBuffer& planned : plan.persistent) in_use += planned.bytes;
    timeline_.memory.push_back({0, rank.value(), Seconds{0}, in_use});
    for (const Change& change : changes) {
      in_use += change.bytes;
      timeline_.memory.push_back({0, rank.value(), change.time, in_use});
    }
  }

  const ScheduleIndex& index_;
  const std::vector<RankPlan>& plans_;
  const DependenceGraph& graph_;
  const ActionTimes& times_;
  Timeline timeline_;
};

}  // namespace

Timeline simulate(const Schedule& schedule, const Prices& prices, const std::vector<RankPlan>& plans,
                  const LinkUses& links, StepTimes* times) {
  check_plans(schedule, plans);
  const ScheduleIndex index{schedule};
  const DependenceGraph graph{index, edges_of(plans)};
  const auto ran = action_times(graph, prices, links);
  if (!ran) {
    fail(ExitCode::damaged_input,
         "schedule '{}' cannot be simulated: some of its actions wait for each other; validating it shows the cycle",
         schedule.name);
  }
  if (times != nullptr) *times = step_times(graph, *ran);
  return Recorder{index, plans, graph, *ran}.record();
}

}  // namespace penstock
