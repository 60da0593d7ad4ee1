// SPDX-License-Identifier: Apache-2.0
//
// From a deck to what the models of cost make of it.
#pragma once

#include <string>
#include <vector>

#include "config/checks.hpp"
#include "config/deck.hpp"
#include "cost/hardware.hpp"
#include "plan/modelled_run.hpp"
#include "schedule/weight_placement.hpp"

namespace penstock {

/// A deck and the machine that its run is counted on.
struct ModelledDeck {
  Deck deck;
  HardwareOptions hardware;        ///< unit hardware if the deck names none
  std::vector<std::string> notes;  ///< as of NotedDeck
};

/// Reads a deck, and the hardware file that it names; overrides `hardware.node.devices=4` are of keys of that file.
/// @throws Error bad_input with a line for every fault of the one or the other file
ModelledDeck read_modelled_deck(const std::string& path, const std::vector<std::string>& overrides = {},
                                DeckUse use = DeckUse::model);

/// The hardware that a deck names: a file relative to the working directory, or else to the folder of the deck. Unit
/// hardware if it names none. `overrides` as of SplitOverrides::hardware.
/// @throws Error bad_input for a file that breaks a rule, and for overrides without a file that they could be of
HardwareOptions hardware_of(const Deck& deck, const std::string& deck_path, const std::vector<std::string>& overrides);

/// What a device may hold. Unit hardware has no memory: that of the deck counts.
Bytes device_capacity(const Deck& deck, const HardwareOptions& hardware);
/// Where that is said, for messages: "memory.device", or the keys of the hardware file.
std::string capacity_name(const Deck& deck, const HardwareOptions& hardware);

/// The plan that needs most: what is enough for it is enough for every rank.
const RankPlan& largest_of(const PerRank<RankPlan>& plans);

/// The same file for any working directory and any deck that names it; empty if the deck names none.
std::string absolute_hardware_path(const Deck& deck, const std::string& deck_path);

/// What the deck asks of the models of cost. Reads schedule.file.
/// @throws Error damaged_input if that cannot be read
ModelledRun modelled_run(const Deck& deck, const HardwareOptions& hardware = unit_hardware());

/// How long the actions of a run that trains should take, for the place of its weight gradients: by the hardware file
/// that the deck names, else by their FLOPs.
/// @throws Error bad_input for a hardware file that breaks a rule, and as price
Prices expected_durations(const Deck& deck, const std::string& deck_path);

/// price(run), and the proof that a hand-written schedule can run.
/// @throws Error bad_input for what the schedule or the models of cost do not allow; damaged_input with all findings of
/// the validator
Priced price_valid(const ModelledRun& run);

}  // namespace penstock
