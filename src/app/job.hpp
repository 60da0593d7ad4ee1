// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "config/deck.hpp"
#include "execute/run_plan.hpp"
#include "kernels/kernels.hpp"
#include "store/parameter_store.hpp"

namespace penstock {

/// What the optimizer's steps wait for: the norm of the whole step's gradients where it may clip them or skip the step,
/// unless training.clip_mode is speculative.
StepsWait steps_wait(const Deck& deck);

/// How ranks share the parameters on the host.
StoreOptions store_options(const Deck& deck);

/// What a deck asks of the plan of its run. Reads schedule.file, and to place weight gradients the hardware file.
/// @throws Error damaged_input if the schedule cannot be read; as expected_durations
RunShape run_shape(const Deck& deck, const std::string& deck_path);

/// Refuses overrides of keys of a hardware file, which a run that trains does not look at. @throws Error bad_input
void refuse_hardware_overrides(const std::vector<std::string>& overrides);

/// Refuses a number of started ranks that does not match the deck, with the sum. @throws Error bad_input
void check_ranks(const Deck& deck, int started);

/// The layout for people: layers, parameters, planned bytes of each rank.
std::string layout_text(const RunPlan& plan);

}  // namespace penstock
