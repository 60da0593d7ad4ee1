// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "config/deck.hpp"

namespace penstock {

/// What a resume under another deck means.
struct ResumeFindings {
  std::vector<std::string> refusals;  ///< the checkpoint cannot be used with the new deck
  std::vector<std::string> notes;     ///< it can, but the run is not the uninterrupted one, or not to the bit
};

/// Compares the deck of a checkpoint with the one that asks to resume from it, key by key, in sentences that name the
/// key, both values and the consequence. Keys that change nothing of the result (layout of the pipeline, schedule,
/// memory, threads, output, validation) are silent.
ResumeFindings resume_compatibility(const Deck& checkpoint, const Deck& now);

}  // namespace penstock
