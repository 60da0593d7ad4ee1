// SPDX-License-Identifier: Apache-2.0
#include "schedule/generators_weights.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/error.hpp"

namespace penstock {

namespace {

class WeightFiller {
 public:
  WeightFiller(const Schedule& schedule, std::int32_t most_kept)
      : schedule_{schedule},
        most_kept_{most_kept},
        ranks_(schedule.shape.ranks),
        forwards_(schedule.shape.stages, 0),
        inputs_(schedule.shape.stages, 0) {}

  Schedule run() {
    Schedule result = schedule_;
    for (auto& list : result.actions) list.clear();
    std::vector<Action> done;
    do {
      done.clear();
      for (const Rank rank : all<Rank>(schedule_.shape.ranks)) {
        const auto action = next_of(rank);
        if (!action) continue;
        result.actions[rank].push_back(*action);
        done.push_back(*action);
      }
      for (const Action& action : done) complete(action);
    } while (!done.empty());
    require_all_ran();
    return result;
  }

 private:
  struct RankState {
    std::size_t position = 0;  // of the next F or I in the list
    std::int32_t kept = 0;     // units of activations
    std::deque<Action> weights;
  };

  /// What the rank does in the present unit.
  std::optional<Action> next_of(Rank rank) {
    RankState& state = ranks_[rank];
    const auto& list = schedule_.actions[rank];
    if (state.position < list.size() && can_run(list[state.position], state)) return list[state.position++];
    if (state.weights.empty()) return std::nullopt;
    const Action weight = state.weights.front();
    state.weights.pop_front();
    return weight;
  }

  bool can_run(const Action& action, const RankState& state) const {
    const std::int32_t micro_batch = action.micro_batch.value();
    if (action.op == Op::forward) {
      const bool has_input = action.stage == Stage{0} || forwards_[action.stage.previous()] > micro_batch;
      return has_input && state.kept < most_kept_;
    }
    if (action.stage == schedule_.last_stage()) return forwards_[action.stage] > micro_batch;
    return inputs_[action.stage.next()] > micro_batch;
  }

  void complete(const Action& action) {
    RankState& state = ranks_[schedule_.rank_of[action.stage]];
    if (action.op == Op::forward) {
      ++forwards_[action.stage];
      ++state.kept;
    } else if (action.op == Op::backward_input) {
      ++inputs_[action.stage];
      state.weights.push_back({Op::backward_weight, action.stage, action.micro_batch, action.slice});
    } else {
      --state.kept;
    }
  }

  void require_all_ran() const {
    for (const Rank rank : all<Rank>(schedule_.shape.ranks)) {
      require(ranks_[rank].position == schedule_.actions[rank].size(),
              "schedule {}: rank {} cannot run its action {} with {} units of activations kept", schedule_.name, rank,
              ranks_[rank].position, most_kept_);
    }
  }

  const Schedule& schedule_;
  std::int32_t most_kept_;
  PerRank<RankState> ranks_;
  PerStage<std::int32_t> forwards_;  // complete before the present unit
  PerStage<std::int32_t> inputs_;    // likewise
};

}  // namespace

Schedule fill_weights(const Schedule& schedule, std::int32_t most_kept) {
  return WeightFiller{schedule, most_kept}.run();
}

}  // namespace penstock
