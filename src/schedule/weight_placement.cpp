// SPDX-License-Identifier: Apache-2.0
#include "schedule/weight_placement.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "schedule/passes.hpp"
#include "schedule/semantics.hpp"
#include "schedule/text.hpp"

namespace penstock {

namespace {

/// The schedule with I in the place of B, and no W.
Schedule without_weight_gradients(const Schedule& schedule) {
  Schedule result = schedule;
  for (auto& list : result.actions) {
    for (Action& action : list) {
      if (action.op == Op::backward) action.op = Op::backward_input;
    }
  }
  return result;
}

/// The nodes and gates, each behind all that it waits for; empty if the graph has a cycle.
std::optional<std::vector<std::int32_t>> in_order(const DependenceGraph& graph) {
  // If all last as long, what waits for another starts later than that one.
  const auto starts = earliest_starts(graph, [](std::int32_t) { return Seconds{1}; });
  if (!starts) return std::nullopt;
  std::vector<std::int32_t> nodes;
  for (std::int32_t node = 0; node < graph.size(); ++node) {
    if (graph.is_node(node) || graph.is_gate(node)) nodes.push_back(node);
  }
  // A gate takes no time: it goes before what starts with it.
  const auto key = [&](std::int32_t node) {
    return std::pair{(*starts)[static_cast<std::size_t>(node)], graph.is_node(node)};
  };
  std::stable_sort(nodes.begin(), nodes.end(), [&](std::int32_t a, std::int32_t b) { return key(a) < key(b); });
  return nodes;
}

/// What bounds the weight gradients that wait on a rank: their number, or the bytes that they and forwards keep.
class Bound {
 public:
  explicit Bound(std::int32_t limit) : limit_{static_cast<std::size_t>(limit)} {}
  Bound(const WeightRoom& room, const Schedule& schedule) : room_{&room}, schedule_{&schedule} {}

  /// Whether `next` may follow while so many weight gradients wait and so many bytes are in use.
  bool allows(const ActionOnRank& next, std::size_t waiting, Bytes in_use) const {
    const bool fits = room_ == nullptr || in_use + taken_by(next.action) <= room_->of_rank[next.rank];
    return fits && (next.action.op != Op::backward_input || waiting < limit_);
  }

  /// What the action adds to the bytes in use; negative for the W, or the last part of one, that frees them.
  Bytes change_by(const Action& action, bool completes_weight) const {
    if (room_ == nullptr) return Bytes{0};
    if (action.op != Op::backward_weight) return taken_by(action);
    if (!completes_weight) return Bytes{0};
    return Bytes{0} - room_->kept[action.stage] - room_->operands[action.stage];
  }

 private:
  Bytes taken_by(const Action& action) const {
    if (action.op == Op::backward_input) return room_->operands[action.stage];
    const bool fills = action.op == (recomputes(*schedule_, action.stage) ? Op::recompute : Op::forward);
    return fills ? room_->kept[action.stage] : Bytes{0};
  }

  std::size_t limit_ = std::numeric_limits<std::size_t>::max();
  const WeightRoom* room_ = nullptr;
  const Schedule* schedule_ = nullptr;
};

/// What is put into a gap at once: one part of a W, or all that is left of it.
enum class Grain : std::uint8_t { part, whole };

/// How gaps are filled: one way to place the Ws of a schedule.
struct Way {
  WeightOrder order = WeightOrder::shortest;
  Grain grain = Grain::whole;
  double overhang = 0;  // shortest: by how much of its length a W may be longer than its gap
};

/// Runs a schedule without Ws in time and puts them in on the way. When the inputs of an action are there and its rank
/// is free are both known before it is placed, so each gap is known in full when it is filled.
class Filling {
 public:
  Filling(const DependenceGraph& graph, const Schedule& schedule, const Prices& durations, const Bound& bound,
          const Way& way)
      : way_{way},
        graph_{graph},
        schedule_{schedule},
        durations_{durations},
        bound_{bound},
        ready_(static_cast<std::size_t>(graph.size())),
        ranks_(schedule.shape.ranks) {}

  /// Takes the nodes in `order`.
  void run(const std::vector<std::int32_t>& order) {
    for (const std::int32_t node : order) {
      const Seconds end = graph_.is_gate(node) ? ready_[static_cast<std::size_t>(node)] : end_of(node);
      for (const Successor& successor : graph_.successors(node)) {
        auto& start = ready_[static_cast<std::size_t>(successor.node)];
        start = std::max(start, end);
      }
    }
    for (const Rank rank : all<Rank>(ranks_.size())) {
      while (!ranks_[rank].kept.empty()) append_weight_gradient(rank);
    }
  }

  Seconds step() const {
    Seconds end{0};
    for (const auto& rank : ranks_) end = std::max(end, rank.free);
    return end;
  }

  const std::vector<Action>& list(Rank rank) const { return ranks_[rank].list; }

 private:
  struct OneRank {
    std::vector<Action> list;
    std::deque<Action> kept;  // Ws whose I is in the list, each with the part of it that is next
    Seconds free;             // when the last action of the list ends
    Bytes in_use;
  };

  /// Runs an action behind the Ws that fill the gap before it.
  Seconds end_of(std::int32_t node) {
    const ActionOnRank action = graph_.action_of(node);
    const Seconds ready = ready_[static_cast<std::size_t>(node)];
    if (lane_of(action.action.op) != Lane::compute) return ready + durations_(action);
    fill_gap(action, ready);
    return append(action, ready);
  }

  /// Puts Ws before `next`, whose inputs are there at `ready`.
  void fill_gap(const ActionOnRank& next, Seconds ready) {
    OneRank& rank = ranks_[next.rank];
    while (!rank.kept.empty() && goes_before(next.rank, ready)) append_weight_gradient(next.rank);
    while (!rank.kept.empty() && !bound_.allows(next, rank.kept.size(), rank.in_use)) append_weight_gradient(next.rank);
  }

  /// Whether the next W of the rank goes before an action whose inputs are there at `ready`.
  bool goes_before(Rank number, Seconds ready) const {
    const OneRank& rank = ranks_[number];
    if (way_.order == WeightOrder::latest) return false;
    if (way_.order == WeightOrder::waiting) return rank.free < ready;
    const Seconds length = length_of(number, rank.kept.front());
    return rank.free.value + length.value <= ready.value + way_.overhang * length.value;
  }

  /// Of what would be put into a gap next.
  Seconds length_of(Rank rank, Action weight) const {
    Seconds length = durations_({rank, weight});
    while (way_.grain == Grain::whole && !completes_weight(weight)) {
      ++weight.part;
      length += durations_({rank, weight});
    }
    return length;
  }

  void append_weight_gradient(Rank rank) {
    auto& kept = ranks_[rank].kept;
    bool completes = false;
    do {
      const Action weight = kept.front();
      completes = completes_weight(weight);
      if (completes) {
        kept.pop_front();
      } else {
        ++kept.front().part;
      }
      append({rank, weight}, ranks_[rank].free);
    } while (way_.grain == Grain::whole && !completes);
  }

  bool completes_weight(const Action& action) const {
    return action.part == 0 || action.part == schedule_.parts_of_weight(action.stage);
  }

  /// The W of an I; where it is cut into parts, the first.
  Action weight_of(const Action& before) const {
    const bool is_whole = schedule_.parts_of_weight(before.stage) == 1;
    return {Op::backward_weight, before.stage, before.micro_batch, before.slice,
            is_whole ? std::uint8_t{0} : first_part};
  }

  /// Returns when the action ends.
  Seconds append(const ActionOnRank& node, Seconds ready) {
    OneRank& rank = ranks_[node.rank];
    rank.list.push_back(node.action);
    rank.in_use += bound_.change_by(node.action, completes_weight(node.action));
    rank.free = std::max(rank.free, ready) + durations_(node);
    if (node.action.op == Op::backward_input) rank.kept.push_back(weight_of(node.action));
    return rank.free;
  }

  static constexpr std::uint8_t first_part = 1;

  Way way_;
  const DependenceGraph& graph_;
  const Schedule& schedule_;
  const Prices& durations_;
  const Bound& bound_;
  std::vector<Seconds> ready_;  // of each node: when what it waits for has ended
  PerRank<OneRank> ranks_;
};

/// What is tried. Parts together too, so that a schedule with parts takes no longer than one without.
std::vector<Way> ways_to_place(const Schedule& schedule, WeightOrder order) {
  if (order != WeightOrder::shortest) return {{order, Grain::part}};
  const auto& parts = schedule.weight_parts;
  const bool has_parts = std::any_of(parts.begin(), parts.end(), [](std::uint8_t count) { return count > 1; });
  std::vector<Way> ways;
  for (const Grain grain : {Grain::whole, Grain::part}) {
    if (grain == Grain::part && !has_parts) continue;
    for (const double overhang : {1.0, 0.75, 0.5, 0.25, 0.0}) ways.push_back({order, grain, overhang});
  }
  return ways;
}

void refuse_placed(const Schedule& schedule) {
  for (const auto& list : schedule.actions) {
    for (const Action& action : list) {
      if (action.op == Op::forward || action.op == Op::backward || action.op == Op::recompute) continue;
      fail(ExitCode::bad_input,
           "the weight gradients of schedule '{}' cannot be placed: it lists {} already, where forwards and backwards "
           "(F, "
           "B, R) alone were expected; leave out schedule.weight_gradients: placed",
           schedule.name, to_text(action));
    }
  }
}

Schedule placed(const Schedule& schedule, const Prices& durations, const Bound& bound, WeightOrder weights) {
  refuse_placed(schedule);
  const Schedule inputs = add_communication(without_weight_gradients(schedule));
  const ScheduleIndex index{inputs};
  const DependenceGraph graph{index};
  const auto order = in_order(graph);
  if (!order) {
    fail(ExitCode::damaged_input,
         "the weight gradients of schedule '{}' cannot be placed: its actions wait for each "
         "other in a circle; penstock check shows it",
         schedule.name);
  }
  Schedule result = schedule;
  Seconds shortest{std::numeric_limits<double>::infinity()};
  for (const Way& way : ways_to_place(schedule, weights)) {
    Filling filling{graph, schedule, durations, bound, way};
    filling.run(*order);
    if (filling.step() >= shortest) continue;
    shortest = filling.step();
    for (const Rank rank : all<Rank>(schedule.shape.ranks)) result.actions[rank] = filling.list(rank);
  }
  return result;
}

}  // namespace

Schedule place_weight_gradients(const Schedule& schedule, const Prices& durations, std::int32_t limit) {
  if (limit < 1) {
    fail(ExitCode::bad_input, "at most {} weight gradients were to wait on a rank; expected at least 1", limit);
  }
  return placed(schedule, durations, Bound{limit}, WeightOrder::shortest);
}

Schedule place_weight_gradients(const Schedule& schedule, const Prices& durations, const WeightRoom& room,
                                WeightOrder order) {
  return placed(schedule, durations, Bound{room, schedule}, order);
}

}  // namespace penstock
