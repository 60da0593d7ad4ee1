// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/describe.hpp"

namespace penstock {

/// When checkpoints are written, and how many stay: keys of the section `output` of a deck.
struct CheckpointOptions {
  std::int32_t checkpoint_every = 0;  ///< steps; 0: never
  std::int32_t keep = 2;              ///< latest checkpoints that stay
  friend bool operator==(const CheckpointOptions&, const CheckpointOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, CheckpointOptions& options) {
  visit("checkpoint_every", options.checkpoint_every,
        {.help = "steps between checkpoints, and one at the end; 0: none, but the one of a run that is stopped early",
         .unit = "steps",
         .range = at_least(0)});
  visit("keep", options.keep, {.help = "latest checkpoints that stay", .unit = "checkpoints", .range = at_least(1)});
}

}  // namespace penstock
