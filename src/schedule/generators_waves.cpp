// SPDX-License-Identifier: Apache-2.0
//
// Schedules over stages that go down the ranks and come back up: Hanayo's waves, and DualPipeV.
#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "schedule/generators.hpp"
#include "schedule/generators_common.hpp"

namespace penstock {

namespace {

// --- waves ---

/// An action of a rank's order, which has room for a forward and then a backward in each slot.
struct SlotAction {
  std::int64_t slot;
  Action action;
  auto key() const { return std::tuple{slot, action.op != Op::forward}; }
};

/// Appends the two passes of one micro-batch through the ranks of one wave, down in one chunk and up in the other, a
/// slot a rank. Micro-batches that enter two slots apart never meet: on a rank those on their way down take the slots
/// of one parity, those on their way up the others.
void add_wave(std::vector<SlotAction>& actions, std::int64_t enters, Rank rank, std::int32_t pipeline, Op op,
              std::int32_t chunk_down, std::int32_t chunk_up, std::int32_t micro_batch) {
  const auto add = [&](std::int64_t slot, std::int32_t chunk) {
    actions.push_back({slot, action_of(op, stage_of_chunk(Placement::wave, rank, chunk, pipeline), micro_batch)});
  };
  add(enters + rank.value(), chunk_down);
  add(enters + 2 * pipeline - 1 - rank.value(), chunk_up);
}

/// A rank's list. In groups of p, micro-batches enter wave after wave, a wave every 2 p slots; the first backward of a
/// group starts in the slot of its first last forward.
std::vector<Action> hanayo_list(const GeneratorOptions& options, Rank rank) {
  const std::int32_t p = options.pipeline;
  const std::int32_t waves = options.virtual_stages / 2;
  const std::int64_t group_slots = std::int64_t{options.virtual_stages} * p;
  std::vector<SlotAction> timed;
  for (std::int32_t m = 0; m < options.micro_batches; ++m) {
    const std::int64_t enters = m / p * group_slots + 2 * (m % p);
    for (std::int32_t wave = 0; wave < waves; ++wave) {
      const std::int32_t first = 2 * wave;
      add_wave(timed, enters + 2 * p * wave, rank, p, Op::forward, first, first + 1, m);
      const std::int64_t back = enters + group_slots - 1 + 2 * p * (waves - 1 - wave);
      add_wave(timed, back, rank, p, Op::backward, first + 1, first, m);
    }
  }
  std::sort(timed.begin(), timed.end(), [](const SlotAction& a, const SlotAction& b) { return a.key() < b.key(); });
  std::vector<Action> list;
  list.reserve(timed.size());
  for (const SlotAction& each : timed) list.push_back(each.action);
  return list;
}

// --- DualPipeV ---

/// One rank of DualPipeV for `micro_batches`, at least 2 p. The phases are those of DeepSeek's implementation.
std::vector<Action> dualpipe_v_list(Rank rank, std::int32_t p, std::int32_t micro_batches) {
  const std::int32_t r = rank.value();
  const std::int32_t behind = p - 1 - r;
  ChunkList list{Placement::wave, rank, p, micro_batches};
  constexpr Op F = Op::forward;
  constexpr Op B = Op::backward;
  constexpr Op I = Op::backward_input;
  list.add(2 * behind, {{F, 0}});
  list.add(r + 1, {{F, 0}, {F, 1}});
  for (std::int32_t i = 0; i < behind; ++i) {
    list.add({I, 1});
    list.add_oldest_weight();
    list.add({F, 1});
  }
  list.add(micro_batches - 2 * p + r + 1, {{F, 0}, {B, 1}, {F, 1}, {B, 0}});
  list.add(behind, {{B, 1}, {F, 1}, {B, 0}});
  // The later half of these leaves its weight gradients for the time when gradients arrive too slowly.
  for (std::int32_t i = 0; i < 2 * (r + 1); ++i) list.add({i <= r ? B : I, i % 2 == 0 ? 1 : 0});
  for (std::int32_t i = 0; i < behind; ++i) {
    list.add_oldest_weight();
    list.add({I, 0});
  }
  for (std::int32_t i = 0; i <= r; ++i) list.add_oldest_weight();
  return list.take();
}

}  // namespace

Schedule hanayo(const GeneratorOptions& options) {
  check_options(ScheduleKind::hanayo, options);
  Schedule schedule = empty_schedule(fmt::format("hanayo v={}", options.virtual_stages), options, Placement::wave);
  for (const Rank rank : all<Rank>(options.pipeline)) schedule.actions[rank] = hanayo_list(options, rank);
  return schedule;
}

Schedule dualpipe_v(const GeneratorOptions& options) {
  check_options(ScheduleKind::dualpipe_v, options);
  Schedule schedule = empty_schedule("dualpipe_v", options, Placement::wave);
  const std::int32_t whole = with_full_pipeline(options).micro_batches;
  for (const Rank rank : all<Rank>(options.pipeline)) {
    schedule.actions[rank] = dualpipe_v_list(rank, options.pipeline, whole);
    erase_from(schedule.actions[rank], options.micro_batches);
  }
  return schedule;
}

}  // namespace penstock
