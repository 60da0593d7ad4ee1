// SPDX-License-Identifier: Apache-2.0
#include "plan/bounds.hpp"

#include <algorithm>
#include <limits>

#include "memory/plan.hpp"
#include "schedule/kinds.hpp"
#include "schedule/semantics.hpp"

namespace penstock {
namespace {

/// The candidate with one micro-batch: the same stages on the same ranks with the same prices, in few actions.
ModelledRun with_one_micro_batch(ModelledRun run) {
  run.micro_batches = 1;
  if (run.schedule.weight_gradients == WeightGradients::placed) run.schedule.weight_gradients = WeightGradients::split;
  return run;
}

class Bounds {
 public:
  Bounds(const ModelledRun& run, const Priced& priced) : run_{run}, priced_{priced}, schedule_{priced.schedule} {}

  LeastCost result() const {
    LeastCost least;
    for (const Rank rank : all<Rank>(schedule_.shape.ranks)) {
      least.device = std::max(least.device, device_bytes(rank));
      least.step = std::max(least.step, step_of(rank));
    }
    return least;
  }

 private:
  Seconds price(Op op, Stage stage, Slice slice = Slice{0}) const {
    const Action action{op, stage, MicroBatch{0}, slice};
    return priced_.costs.price(schedule_, {holder_of(schedule_, action), action});
  }

  bool is_split() const {
    const auto& list = schedule_.actions[Rank{0}];
    return std::any_of(list.begin(), list.end(), [](const Action& action) { return action.op == Op::backward_weight; });
  }

  /// The rank's lowest stage of a pass; the number of stages if it has none.
  std::int32_t lowest_stage(Pass pass, Rank rank) const {
    const auto& ranks = schedule_.ranks(pass);
    return static_cast<std::int32_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  }

  /// Before the first forward of the rank the first slice comes through all stages below its own.
  Seconds head(Rank rank) const {
    Seconds sum{0};
    for (const Stage stage : all<Stage>(lowest_stage(Pass::forward, rank))) sum += price(Op::forward, stage);
    return sum;
  }

  /// After its last backward the first slice goes back through all stages below; a weight gradient may come last.
  Seconds tail(Rank rank) const {
    Seconds sum{0};
    if (is_split()) return sum;
    for (const Stage stage : all<Stage>(lowest_stage(Pass::backward, rank))) sum += price(Op::backward_input, stage);
    return sum;
  }

  Seconds work(Rank rank) const {
    Seconds sum{0};
    for (const Action& action : schedule_.actions[rank]) {
      if (lane_of(action.op) == Lane::compute) sum += priced_.costs.price(schedule_, {rank, action});
    }
    return sum * run_.micro_batches;
  }

  /// After the last gradients of the rank: those of one stage to the host and reduced, and the steps that wait for all.
  Seconds optimizer(Rank rank) const {
    Seconds first{std::numeric_limits<double>::infinity()};
    Seconds shortest_step = first;
    Seconds steps{0};
    const auto& ranks = schedule_.ranks(Pass::backward);
    for (const Stage stage : all<Stage>(ranks.size())) {
      if (ranks[stage] != rank) continue;
      first = std::min(first, price(Op::offload_gradients, stage) + price(Op::reduce, stage));
      shortest_step = std::min(shortest_step, price(Op::step, stage));
      steps += price(Op::step, stage);
    }
    if (steps.value == 0) return Seconds{0};
    return first + (run_.steps_wait == StepsWait::for_norm ? steps : shortest_step);
  }

  Seconds step_of(Rank rank) const { return head(rank) + work(rank) + std::max(tail(rank), optimizer(rank)); }

  Bytes device_bytes(Rank rank) const {
    Schedule whole = schedule_;
    whole.shape.micro_batches = run_.micro_batches;  // the tokens of all are there
    const Bytes persistent = lay_out_persistent({&whole}, rank, {priced_.costs.bytes()}).bytes;
    const std::int32_t units = least_activation_units(run_.schedule, schedule_.shape.ranks, run_.micro_batches, rank);
    return persistent + smallest_unit(rank) * units;
  }

  /// Bytes of the smallest unit that the rank keeps from forward to backward, as the memory plan rounds them; 0 where a
  /// stage keeps its input only.
  Bytes smallest_unit(Rank rank) const {
    Bytes smallest{std::numeric_limits<std::int64_t>::max()};
    const auto& ranks = schedule_.ranks(Pass::backward);
    for (const Stage stage : all<Stage>(ranks.size())) {
      if (ranks[stage] != rank) continue;
      if (recomputes(schedule_, stage)) return Bytes{0};
      const StageBytes& bytes = priced_.costs.bytes()[stage];
      smallest = std::min(
          smallest, Bytes{round_up(bytes[static_cast<std::size_t>(BufferKind::activations)].value, buffer_alignment)});
    }
    return smallest.value == std::numeric_limits<std::int64_t>::max() ? Bytes{0} : smallest;
  }

  const ModelledRun& run_;
  const Priced& priced_;
  const Schedule& schedule_;
};

}  // namespace

std::int32_t least_activation_units(const ScheduleOptions& schedule, std::int32_t pipeline, std::int32_t micro_batches,
                                    Rank rank) {
  const std::int64_t one = std::int64_t{schedule.virtual_stages} * schedule.slices;
  const std::int64_t all = one * micro_batches;
  const std::int64_t behind = pipeline - 1 - rank.value();
  std::int64_t units = one;
  switch (schedule.kind) {
    case ScheduleKind::gpipe:
    case ScheduleKind::breadth_first:
    case ScheduleKind::terapipe:
      units = all;
      break;
    case ScheduleKind::one_f_one_b:
      units = behind + 1;
      break;
    case ScheduleKind::seq1f1b:
      units = behind + schedule.slices;
      break;
    case ScheduleKind::slimpipe:
      units = one + 2 * behind;
      break;
    default:
      break;
  }
  return static_cast<std::int32_t>(std::min(units, all));
}

LeastCost least_cost(const ModelledRun& run) {
  const Priced priced = price(with_one_micro_batch(run));
  return Bounds{run, priced}.result();
}

}  // namespace penstock
