// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "checkpoint/contents.hpp"
#include "comm/communicator.hpp"

namespace penstock {

/// Makes whole chunks of pieces that begin or end inside one, as those of a shared vocabulary do: a chunk of which
/// several ranks hold parts goes to the rank that has its first element.
class ChunkAssembly {
 public:
  /// The pieces of this rank in whole chunks, as write_checkpoint takes them. Those that were not whole lie in memory
  /// of this object until the next call. Collective over `group`, whose pieces together hold each element once.
  /// @throws Error internal if parts of a chunk are missing or overlap
  std::vector<SavedPiece> whole_chunks(const Communicator& group, const std::vector<CheckpointDataset>& datasets,
                                       const std::vector<SavedPiece>& pieces);

 private:
  std::vector<std::vector<float>> chunks_;
};

}  // namespace penstock
