// SPDX-License-Identifier: Apache-2.0
//
// What to change where a plan does not fit: found by planning the changed decks, so that every figure is one of a plan.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "app/deck_changes.hpp"
#include "base/units.hpp"
#include "config/deck.hpp"
#include "cost/hardware.hpp"
#include "memory/plan.hpp"

namespace penstock {

/// What the plan of a deck needs of the memory in question, and how large the plan was: by this the search is bounded,
/// as all ranks must come to the same words.
struct PlannedNeed {
  Bytes bytes;
  std::int64_t actions = 0;
};

/// A deck whose plan does not fit.
struct FitQuestion {
  const Deck& deck;
  std::string deck_path;
  std::string_view who;  ///< has the memory: "the largest rank"
  Bytes capacity;
  std::function<PlannedNeed(const Deck&)> need;  ///< @throws Error for a deck that cannot run
};

/// Lines with the changes that need less than the deck, best first, each alone; where none of them fits, several that
/// fit together, or that none do.
std::string advice_to_fit(const FitQuestion& question, const std::vector<DeckChange>& changes);

/// Of a run that trains, for its devices; for the memory of its nodes. The arguments outlive what is returned.
Advice device_advice(const Deck& deck, const std::string& deck_path);
Advice node_advice(const Deck& deck, const std::string& deck_path, Bytes capacity);
/// Of text from a checkpoint, laid out as `deck`.
Advice generation_advice(const Deck& deck, const std::string& checkpoint);
/// Of a run as the models of cost see it.
Advice modelled_advice(const Deck& deck, const std::string& deck_path, const HardwareOptions& hardware);

}  // namespace penstock
