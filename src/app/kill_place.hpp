// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "checkpoint/write.hpp"
#include "config/deck.hpp"
#include "execute/executor.hpp"
#include "execute/run_plan.hpp"

namespace penstock {

/// Where testing.kill kills the rank of the job in its list; nowhere if it is not that rank, or at a checkpoint.
/// @throws Error bad_input, for whichever rank is asked about, if the list of the one that is killed has no such
/// action, or no checkpoint follows the step
std::optional<KillPlace> kill_place(const Deck& deck, const RunPlan& plan, int rank);

/// Kills the process of the rank where testing.kill names CHECKPOINT and the rank; empty where it does not.
BeforeRename kill_before_rename(const Deck& deck, int rank);

}  // namespace penstock
