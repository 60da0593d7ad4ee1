// SPDX-License-Identifier: Apache-2.0
#include "schedule/generators.hpp"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/units.hpp"
#include "schedule/generators_common.hpp"

namespace penstock {

namespace {

Stage stage_of(const GeneratorOptions& options, Rank rank, std::int32_t chunk) {
  return stage_of_chunk(Placement::round_robin, rank, chunk, options.pipeline);
}

/// The k-th forward or backward of a rank in interleaved order: p micro-batches through a chunk, then the next chunk.
Action interleaved_action(const GeneratorOptions& options, Op op, Rank rank, std::int32_t k) {
  const std::int32_t p = options.pipeline;
  const std::int32_t v = options.virtual_stages;
  const std::int32_t forward_chunk = k / p % v;
  const std::int32_t chunk = op == Op::forward ? forward_chunk : v - 1 - forward_chunk;
  return action_of(op, stage_of(options, rank, chunk), k / (p * v) * p + k % p);
}

/// The rank's actions for options.micro_batches, a multiple of the ranks.
std::vector<Action> interleaved_actions(const GeneratorOptions& options, Rank rank) {
  const std::int32_t p = options.pipeline;
  const std::int32_t total = options.virtual_stages * options.micro_batches;
  std::vector<Action> forwards;
  std::vector<Action> backwards;
  for (std::int32_t k = 0; k < total; ++k) {
    forwards.push_back(interleaved_action(options, Op::forward, rank, k));
    backwards.push_back(interleaved_action(options, Op::backward, rank, k));
  }
  const std::int32_t warm_up = std::min(total, (options.virtual_stages - 1) * p + 2 * (p - 1 - rank.value()));
  return one_in_turn(forwards, backwards, static_cast<std::size_t>(warm_up));
}

/// The options with micro-batches rounded up to a multiple of the ranks.
GeneratorOptions rounded_up(GeneratorOptions options) {
  options.micro_batches = static_cast<std::int32_t>(round_up(options.micro_batches, options.pipeline));
  return options;
}

/// Runs forwards of one unit each, at each moment on each rank the deepest stage that is ready.
class ForwardsInTime {
 public:
  explicit ForwardsInTime(const Schedule& schedule)
      : schedule_{schedule},
        ready_(schedule.shape.ranks),
        slices_done_(schedule.shape.stages,
                     std::vector<std::int32_t>(static_cast<std::size_t>(schedule.shape.micro_batches), 0)) {
    for (const MicroBatch micro_batch : all<MicroBatch>(schedule.shape.micro_batches)) {
      make_ready({Op::forward, Stage{0}, micro_batch, Slice{0}});
    }
  }

  PerRank<std::vector<Action>> run() {
    PerRank<std::vector<Action>> actions(schedule_.shape.ranks);
    const auto& shape = schedule_.shape;
    std::int64_t left = std::int64_t{shape.stages} * shape.micro_batches * shape.slices;
    while (left > 0) {
      std::vector<Action> done;
      for (const Rank rank : all<Rank>(schedule_.shape.ranks)) {
        if (ready_[rank].empty()) continue;
        done.push_back(ready_[rank].top());
        ready_[rank].pop();
        actions[rank].push_back(done.back());
      }
      left -= static_cast<std::int64_t>(done.size());
      for (const Action& action : done) complete(action);
    }
    return actions;
  }

 private:
  struct RunsLater {
    bool operator()(const Action& a, const Action& b) const {
      if (a.stage != b.stage) return a.stage < b.stage;
      return std::tie(a.micro_batch, a.slice) > std::tie(b.micro_batch, b.slice);
    }
  };
  std::int32_t& slices_done(Stage stage, MicroBatch micro_batch) {
    return slices_done_[stage][static_cast<std::size_t>(micro_batch.value())];
  }
  /// What waited for this action alone becomes ready: the next stage's, and the stage's next slice.
  void complete(const Action& action) {
    const std::int32_t slice = action.slice.value();
    slices_done(action.stage, action.micro_batch) = slice + 1;
    Action deeper = action;
    deeper.stage = action.stage.next();
    if (deeper.stage.value() < schedule_.shape.stages && slices_done(deeper.stage, action.micro_batch) == slice) {
      make_ready(deeper);
    }
    Action later = action;
    later.slice = action.slice.next();
    if (later.slice.value() == schedule_.shape.slices) return;
    const bool has_input =
        action.stage == Stage{0} || slices_done(action.stage.previous(), action.micro_batch) > later.slice.value();
    if (has_input) make_ready(later);
  }
  void make_ready(const Action& action) { ready_[schedule_.rank_of[action.stage]].push(action); }

  const Schedule& schedule_;
  PerRank<std::priority_queue<Action, std::vector<Action>, RunsLater>> ready_;
  PerStage<std::vector<std::int32_t>> slices_done_;  // by micro-batch
};

/// All micro-batches forward through one stage of the rank before the next, then back in the same way.
Schedule stage_after_stage(std::string name, const GeneratorOptions& options) {
  Schedule schedule = empty_schedule(std::move(name), options, Placement::round_robin);
  for (const Rank rank : all<Rank>(options.pipeline)) {
    for (std::int32_t chunk = 0; chunk < options.virtual_stages; ++chunk) {
      for (std::int32_t m = 0; m < options.micro_batches; ++m) {
        schedule.actions[rank].push_back(action_of(Op::forward, stage_of(options, rank, chunk), m));
      }
    }
    for (std::int32_t chunk = options.virtual_stages; chunk-- > 0;) {
      for (std::int32_t m = 0; m < options.micro_batches; ++m) {
        schedule.actions[rank].push_back(action_of(Op::backward, stage_of(options, rank, chunk), m));
      }
    }
  }
  return schedule;
}

}  // namespace

Schedule gpipe(const GeneratorOptions& options) {
  check_options(ScheduleKind::gpipe, options);
  return stage_after_stage("gpipe", options);
}

Schedule breadth_first(const GeneratorOptions& options) {
  check_options(ScheduleKind::breadth_first, options);
  return stage_after_stage(fmt::format("breadth_first v={}", options.virtual_stages), options);
}

Schedule one_f_one_b(const GeneratorOptions& options) {
  check_options(ScheduleKind::one_f_one_b, options);
  Schedule schedule = empty_schedule("1f1b", options, Placement::round_robin);
  for (const Rank rank : all<Rank>(options.pipeline)) {
    std::vector<Action> forwards;
    std::vector<Action> backwards;
    for (std::int32_t m = 0; m < options.micro_batches; ++m) {
      forwards.push_back(action_of(Op::forward, Stage{rank.value()}, m));
      backwards.push_back(action_of(Op::backward, Stage{rank.value()}, m));
    }
    const std::int32_t warm_up = std::min(options.micro_batches, options.pipeline - 1 - rank.value());
    schedule.actions[rank] = one_in_turn(forwards, backwards, static_cast<std::size_t>(warm_up));
  }
  return schedule;
}

Schedule interleaved(const GeneratorOptions& options) {
  check_options(ScheduleKind::interleaved, options);
  check_sizes(rounded_up(options));
  Schedule schedule =
      options.virtual_stages == 1 ? one_f_one_b(options) : empty_schedule("", options, Placement::round_robin);
  schedule.name = fmt::format("interleaved v={}", options.virtual_stages);
  if (options.virtual_stages == 1) return schedule;
  for (const Rank rank : all<Rank>(options.pipeline)) {
    schedule.actions[rank] = interleaved_actions(rounded_up(options), rank);
    erase_from(schedule.actions[rank], options.micro_batches);
  }
  return schedule;
}

namespace {

/// All micro-batches of a stage one after the other: one stay of its parameters on the device serves them all.
PerRank<std::vector<Action>> forwards_by_stage(const Schedule& schedule) {
  PerRank<std::vector<Action>> actions(schedule.shape.ranks);
  for (const Stage stage : all<Stage>(schedule.shape.stages)) {
    for (const MicroBatch m : all<MicroBatch>(schedule.shape.micro_batches)) {
      for (const Slice slice : all<Slice>(schedule.shape.slices)) {
        actions[schedule.rank_of[stage]].push_back({Op::forward, stage, m, slice});
      }
    }
  }
  return actions;
}

}  // namespace

Schedule forward_only(const PerStage<Rank>& rank_of, std::int32_t micro_batches, std::int32_t slices,
                      ForwardOrder order) {
  check_sizes({.pipeline = rank_of.size(), .micro_batches = micro_batches, .slices = slices});
  Schedule schedule;
  schedule.name = "forward_only";
  const Rank last_rank = *std::max_element(rank_of.begin(), rank_of.end());
  schedule.shape = {last_rank.value() + 1, rank_of.size(), micro_batches, slices};
  schedule.rank_of = rank_of;
  schedule.forward_only = true;
  schedule.recompute = PerStage<bool>(rank_of.size(), false);
  schedule.actions =
      order == ForwardOrder::stage_by_stage ? forwards_by_stage(schedule) : ForwardsInTime{schedule}.run();
  return schedule;
}

}  // namespace penstock
