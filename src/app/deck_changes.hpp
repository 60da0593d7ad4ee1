// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/deck.hpp"

namespace penstock {

/// What a change asks of the user beside the deck.
enum class ChangeCost : std::uint8_t {
  nothing,      ///< other time, the same training
  ranks,        ///< other devices too
  other_model,  ///< what is trained is another thing
};

/// A change of a deck that may take less memory.
struct DeckChange {
  std::vector<std::string> settings;  ///< "memory.recompute=full", as behind --set
  ChangeCost cost = ChangeCost::nothing;
  std::string shown;  ///< in place of the settings, where users say it otherwise
};

/// Changes worth planning for a run that does not fit, each alone: of what is kept, where it lies, how the work is cut,
/// and over how many ranks. Whether a deck with one of them is valid, and what it then needs, its plan says.
std::vector<DeckChange> changes_for_memory(const Deck& deck);

/// Those of a checkpoint from which text is made: more ranks, and shorter sequences.
std::vector<DeckChange> changes_for_generation(const Deck& deck);

}  // namespace penstock
