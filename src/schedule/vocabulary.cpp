// SPDX-License-Identifier: Apache-2.0
#include "schedule/vocabulary.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "schedule/passes.hpp"
#include "schedule/schedule_index.hpp"
#include "schedule/semantics.hpp"

namespace penstock {

namespace {

/// A place in one sequence for all ranks: the slot, and in it the turn.
using Turn = std::pair<std::int32_t, std::int32_t>;
enum SlotTurn : std::int32_t { embeds, forwards, forms_loss, starts_backward, backwards, ends_backward };

/// Puts the forwards and backwards of all ranks into slots, as early as stages and lists allow: of each rank at most
/// one forward in a slot, and behind it at most one backward. What else a list has goes with the action before it.
class Slots {
 public:
  explicit Slots(const Schedule& schedule) : schedule_{schedule}, index_{schedule}, turns_(schedule.shape.ranks) {
    bool moves = true;
    while (moves) {
      moves = false;
      for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
        while (place_next(rank)) moves = true;
      }
    }
    for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
      require(turns_[rank].size() == schedule.actions[rank].size(),
              "schedule '{}' waits in a circle before its vocabulary is shared", schedule.name);
    }
  }
  Turn turn(Rank rank, std::size_t position) const { return turns_[rank][position]; }

 private:
  bool place_next(Rank rank) {
    auto& turns = turns_[rank];
    const auto& list = schedule_.actions[rank];
    if (turns.size() == list.size()) return false;
    const Turn before = turns.empty() ? Turn{-1, backwards} : turns.back();
    const Action& action = list[turns.size()];
    const bool is_forward = action.op == Op::forward;
    if (!is_forward && !gives_input_gradient(action.op)) return turns.push_back(before), true;
    const auto arrival = slot_after_producer(action);
    if (!arrival) return false;
    const bool fits = !is_forward && before.second == forwards;
    const std::int32_t earliest = before.first + (fits ? 0 : 1);
    turns.emplace_back(std::max(earliest, *arrival), is_forward ? forwards : backwards);
    return true;
  }

  /// The slot behind that of the neighbouring stage whose result the action needs; 0 at the end of the model where its
  /// pass begins; empty if that one has no slot yet.
  std::optional<std::int32_t> slot_after_producer(Action action) const {
    const bool is_forward = action.op == Op::forward;
    if (action.stage == (is_forward ? Stage{0} : schedule_.last_stage())) return 0;
    action.stage = is_forward ? action.stage.previous() : action.stage.next();
    if (!index_.contains(action)) action.op = action.op == Op::backward ? Op::backward_input : Op::backward;
    const Rank rank = holder_of(schedule_, action);
    const auto position = index_.position_of({rank, action});
    if (!position || static_cast<std::size_t>(*position) >= turns_[rank].size()) return std::nullopt;
    return turn(rank, static_cast<std::size_t>(*position)).first + 1;
  }

  const Schedule& schedule_;
  ScheduleIndex index_;
  PerRank<std::vector<Turn>> turns_;  // by list position, as far as they are known
};

/// A collective action: of which micro-batch and slice, and when.
struct Meeting {
  Turn turn;
  Op op = Op::embed_forward;
  Action cell;
};

void append_meetings(const Schedule& schedule, const Action& action, std::int32_t slot, std::vector<Meeting>& out) {
  const bool is_first = action.stage == Stage{0};
  const bool is_last = action.stage == schedule.last_stage();
  if (action.op == Op::forward) {
    if (is_first) out.push_back({{slot, embeds}, Op::embed_forward, action});
    if (is_last) out.push_back({{slot, forms_loss}, Op::vocabulary_forward, action});
  } else if (gives_input_gradient(action.op)) {
    if (is_last) out.push_back({{slot, starts_backward}, Op::vocabulary_backward, action});
    if (is_first) out.push_back({{slot, ends_backward}, Op::embed_backward, action});
  }
}

std::vector<Meeting> meetings_of(const Schedule& schedule, const Slots& slots) {
  std::vector<Meeting> meetings;
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    std::size_t position = 0;
    for (const Action& action : schedule.actions[rank]) {
      append_meetings(schedule, action, slots.turn(rank, position++).first, meetings);
    }
  }
  std::stable_sort(meetings.begin(), meetings.end(),
                   [](const Meeting& a, const Meeting& b) { return a.turn < b.turn; });
  return meetings;
}

}  // namespace

VocabularyRows rows_of_share(std::int64_t vocabulary, std::int32_t ranks, Rank rank) {
  require(vocabulary >= ranks, "a vocabulary of {} tokens for the shares of {} ranks", vocabulary, ranks);
  const std::int64_t shortest = vocabulary / ranks;
  const std::int64_t longer = vocabulary % ranks;
  const std::int64_t before = rank.value();
  return {before * shortest + std::min(before, longer), shortest + (before < longer ? 1 : 0)};
}

Schedule share_vocabulary(const Schedule& schedule) {
  require(!schedule.backward && !schedule.streams_parameters,
          "schedule '{}' streams parameters, and is to share the vocabulary", schedule.name);
  const Slots slots{schedule};
  const auto meetings = meetings_of(schedule, slots);
  Schedule result = schedule;
  result.shares_vocabulary = true;
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    auto& list = result.actions[rank];
    list.clear();
    auto next = meetings.begin();
    const auto add_meeting = [&] {
      const Action action{next->op, Stage{0}, next->cell.micro_batch, next->cell.slice};
      list.push_back(on_rank(result, action, rank).action);
      ++next;
    };
    std::size_t position = 0;
    for (const Action& action : schedule.actions[rank]) {
      const Turn turn = slots.turn(rank, position++);
      while (next != meetings.end() && next->turn < turn) add_meeting();
      list.push_back(action);
    }
    while (next != meetings.end()) add_meeting();
  }
  return result;
}

}  // namespace penstock
