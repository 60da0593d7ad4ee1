// SPDX-License-Identifier: Apache-2.0
//
// Schedules that split the backward and move weight gradients into idle time. Each says the order of F and I; W is then
// filled in (generators_weights).
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedule/generators.hpp"
#include "schedule/generators_common.hpp"
#include "schedule/generators_weights.hpp"

namespace penstock {

namespace {

/// One forward, one input gradient in turn after `hops` forwards for each rank behind.
Schedule one_stage_a_rank(std::string name, const GeneratorOptions& options, std::int32_t hops,
                          std::int32_t most_kept) {
  with_full_pipeline(options);
  Schedule schedule = empty_schedule(std::move(name), options, Placement::round_robin);
  for (const Rank rank : all<Rank>(options.pipeline)) {
    std::vector<Action> forwards;
    std::vector<Action> inputs;
    for (std::int32_t m = 0; m < options.micro_batches; ++m) {
      forwards.push_back(action_of(Op::forward, Stage{rank.value()}, m));
      inputs.push_back(action_of(Op::backward_input, Stage{rank.value()}, m));
    }
    const std::int32_t warm_up = std::min(options.micro_batches, hops * (options.pipeline - 1 - rank.value()));
    schedule.actions[rank] = one_in_turn(forwards, inputs, static_cast<std::size_t>(warm_up));
  }
  return fill_weights(schedule, most_kept);
}

// --- ZB-V ---

/// F and I of one rank of ZB-V for `micro_batches`, at least 2 p: chunk 0 goes down the V, chunk 1 comes back up.
std::vector<Action> zb_v_order(Rank rank, std::int32_t p, std::int32_t micro_batches) {
  const std::int32_t r = rank.value();
  ChunkList list{Placement::wave, rank, p, micro_batches};
  constexpr Op F = Op::forward;
  constexpr Op I = Op::backward_input;
  list.add(2 * (p - r) - 1, {{F, 0}});
  list.add(r, {{F, 1}, {F, 0}});
  list.add(p - r, {{F, 1}, {I, 1}});
  list.add(micro_batches, {{F, 0}, {I, 0}, {F, 1}, {I, 1}});
  return list.take();
}

// --- V-Half, V-Min ---

/// The four passes of a micro-batch through the ranks of a V: F down and up, I down and up.
struct BlockPass {
  Op op;
  std::int32_t chunk;
  std::int32_t hop;    ///< units from one rank to the next
  std::int32_t place;  ///< on rank 0, in the six units in which the block repeats; two are left for the Ws
};
using BuildingBlock = std::array<BlockPass, 4>;

constexpr std::int32_t block_units = 6;

/// The first time from `earliest` on that leaves the given rest, divided by block_units.
std::int32_t next_time(std::int32_t earliest, std::int32_t rest) {
  const std::int32_t apart = (rest - earliest) % block_units;
  return earliest + (apart < 0 ? apart + block_units : apart);
}

struct TimedAction {
  std::int32_t time;
  Action action;
};

/// When the rank runs each pass of micro-batch 0, every pass starting as early as its place allows.
std::vector<TimedAction> times_of_block(const BuildingBlock& block, Rank rank, std::int32_t pipeline) {
  std::vector<TimedAction> timed;
  std::int32_t earliest = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const BlockPass& pass = block[i];
    const bool from_rank_0 = i % 2 == 0;
    const std::int32_t length = pass.hop * (pipeline - 1);
    const std::int32_t start = next_time(earliest, from_rank_0 ? pass.place : pass.place - length);
    const std::int32_t hops = from_rank_0 ? rank.value() : pipeline - 1 - rank.value();
    timed.push_back(
        {start + pass.hop * hops, action_of(pass.op, stage_of_chunk(Placement::wave, rank, pass.chunk, pipeline), 0)});
    earliest = start + length + 1;
  }
  return timed;
}

/// Repeats a building block every six units, a micro-batch each. Only the order matters: run as early as they can, the
/// first blocks move together.
Schedule repeated(std::string name, const GeneratorOptions& options, const BuildingBlock& block,
                  std::int32_t most_kept) {
  with_full_pipeline(options);
  Schedule schedule = empty_schedule(std::move(name), options, Placement::wave);
  for (const Rank rank : all<Rank>(options.pipeline)) {
    std::vector<TimedAction> timed;
    for (const TimedAction& first : times_of_block(block, rank, options.pipeline)) {
      for (std::int32_t m = 0; m < options.micro_batches; ++m) {
        timed.push_back({first.time + block_units * m, action_of(first.action.op, first.action.stage, m)});
      }
    }
    std::sort(timed.begin(), timed.end(), [](const TimedAction& a, const TimedAction& b) { return a.time < b.time; });
    for (const TimedAction& each : timed) schedule.actions[rank].push_back(each.action);
  }
  return fill_weights(schedule, most_kept);
}

}  // namespace

Schedule zb_h1(const GeneratorOptions& options) {
  check_options(ScheduleKind::zb_h1, options);
  return one_stage_a_rank("zb_h1", options, 1, options.pipeline);
}

Schedule zb_h2(const GeneratorOptions& options) {
  check_options(ScheduleKind::zb_h2, options);
  return one_stage_a_rank("zb_h2", options, 2, 2 * options.pipeline - 1);
}

Schedule zb_v(const GeneratorOptions& options) {
  check_options(ScheduleKind::zb_v, options);
  Schedule schedule = empty_schedule("zb_v", options, Placement::wave);
  const std::int32_t whole = with_full_pipeline(options).micro_batches;
  for (const Rank rank : all<Rank>(options.pipeline)) {
    schedule.actions[rank] = zb_v_order(rank, options.pipeline, whole);
    erase_from(schedule.actions[rank], options.micro_batches);
  }
  return fill_weights(schedule, 2 * options.pipeline);
}

Schedule v_half(const GeneratorOptions& options) {
  check_options(ScheduleKind::v_half, options);
  constexpr BuildingBlock block{
      {{Op::forward, 0, 1, 0}, {Op::forward, 1, 2, 1}, {Op::backward_input, 1, 1, 3}, {Op::backward_input, 0, 2, 5}}};
  return repeated("v_half", options, block, 2 * ((options.pipeline + 2) / 2));
}

Schedule v_min(const GeneratorOptions& options) {
  check_options(ScheduleKind::v_min, options);
  constexpr BuildingBlock block{
      {{Op::forward, 0, 1, 0}, {Op::forward, 1, 1, 1}, {Op::backward_input, 1, 1, 2}, {Op::backward_input, 0, 1, 3}}};
  return repeated("v_min", options, block, 2 * ((options.pipeline + 4) / 3));
}

}  // namespace penstock
