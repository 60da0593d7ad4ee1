// SPDX-License-Identifier: Apache-2.0
#include "app/kill_place.hpp"

#include <algorithm>
#include <csignal>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "checkpoint/options.hpp"
#include "execute/rank_state.hpp"
#include "schedule/text.hpp"

namespace penstock {
namespace {

constexpr std::string_view at_checkpoint = "CHECKPOINT";

void refuse_without_checkpoint(const Deck& deck) {
  const auto step = deck.testing.kill.step;
  const auto every = deck.output.checkpoint.checkpoint_every;
  if (every > 0 && (step % every == 0 || step == deck.training.steps)) return;
  fail(ExitCode::bad_input,
       "testing.kill.action: is CHECKPOINT, but no checkpoint follows step {}: set output.checkpoint_every to a "
       "divisor of it",
       step);
}

[[noreturn]] void refuse_action(const KillOptions& kill, const std::vector<PlannedAction>& list) {
  std::vector<std::string_view> ops;
  for (const PlannedAction& planned : list) {
    const auto name = name_of(planned.action.op);
    if (std::find(ops.begin(), ops.end(), name) == ops.end()) ops.push_back(name);
  }
  fail(ExitCode::bad_input,
       "testing.kill.action: rank {} has no action {} in a step; it has {}, each with its stage and micro-batch as "
       "`penstock show --actions` lists them",
       kill.rank, kill.action, fmt::join(ops, ", "));
}

}  // namespace

std::optional<KillPlace> kill_place(const Deck& deck, const RunPlan& plan, int rank) {
  const KillOptions& kill = deck.testing.kill;
  if (kill.step == 0) return std::nullopt;
  if (kill.action == at_checkpoint) {
    refuse_without_checkpoint(deck);
    return std::nullopt;
  }
  const auto& list = plan.training.ranks[RankPlace::of(kill.rank, plan.shape.pipeline).coordinate].actions;
  const auto found = std::find_if(list.begin(), list.end(), [&](const PlannedAction& planned) {
    const Action& action = planned.action;
    return kill.action == name_of(action.op) || kill.action == to_text(action, plan.training.schedule.shape.slices);
  });
  if (found == list.end()) refuse_action(kill, list);
  if (rank != kill.rank) return std::nullopt;
  return KillPlace{kill.step, found->action};
}

BeforeRename kill_before_rename(const Deck& deck, int rank) {
  const KillOptions& kill = deck.testing.kill;
  if (kill.step == 0 || kill.action != at_checkpoint || kill.rank != rank) return {};
  return [at = kill.step](std::int64_t step) {
    if (step == at) std::raise(SIGKILL);
  };
}

}  // namespace penstock
