// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "checkpoint/contents.hpp"
#include "comm/communicator.hpp"

namespace penstock {

/// Collective: checks that the pieces of all ranks cover each element of each data set once, in whole chunks, and that
/// all ranks mean the same data sets.
/// @throws Error internal, the same on all ranks, naming the data set and the elements.
void check_coverage(const Communicator& group, const std::vector<CheckpointDataset>& datasets,
                    const std::vector<SavedPiece>& pieces);

}  // namespace penstock
