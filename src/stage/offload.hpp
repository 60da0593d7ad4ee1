// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "stage/layout.hpp"

namespace penstock {

/// What of a forward's tensors is never offloadable.
enum class StayingTensors : std::uint8_t {
  none,
  keys_and_values  ///< of slices: those behind read them
};

/// Chooses, by name, whole tensors of what a forward keeps, so that their bytes come near to `ratio` of all: from the
/// largest to the smallest, and of one size as they lie, each that still fits goes; at last the smallest that is left,
/// if the sum is nearer with it. The sum is off by no more than half of the smallest matrix that may go, unless all
/// that may have gone.
std::set<std::string> choose_offloadable(const KeptLayout& activations, double ratio, StayingTensors stay);

/// Lays the chosen tensors into a second buffer, which it returns, and the others anew into the first.
BufferLayout split_offloadable(KeptLayout& activations, const std::set<std::string>& chosen);

}  // namespace penstock
