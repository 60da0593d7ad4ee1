// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "checkpoint/contents.hpp"
#include "comm/communicator.hpp"

namespace penstock {

/// Where checkpoints go, and how many stay.
struct CheckpointFolder {
  std::string path;  ///< in a folder that exists
  std::int32_t keep = 2;
};

struct CheckpointReport {
  std::string path;
  Bytes bytes;      ///< of the data, over all ranks
  Seconds seconds;  ///< from the call to the renamed file
};

using AfterPart = std::function<void(Bytes part)>;
/// What a rank does when its data of the checkpoint behind `step` are on the disk, while the file has no name yet.
using BeforeRename = std::function<void(std::int64_t step)>;

/// Collective: writes one checkpoint from the pieces of all ranks, which together hold each element of each data set
/// once, in whole chunks. `contents` is the same on all ranks (the header is rank 0's).
///
/// The file is written beside its place, made safe on the disk and renamed; older ones stay until then, and all but it
/// and the `keep` - 1 before it are removed after. Runs on the process's I/O thread (io_thread), with a communicator
/// that nothing else uses. `after_part` is called with the bytes of each part of this rank's data once they are
/// written, and may sleep. No rank renames before all ranks' `before_rename` have returned.
/// @throws AgreedError, with the previous checkpoints as they were: cannot_write if the disk is full or the folder
/// cannot be written or is gone, not_finite naming the parameter if a value is not finite, internal if the pieces do
/// not fit.
CheckpointReport write_checkpoint(const Communicator& group, const CheckpointFolder& folder,
                                  const CheckpointContents& contents, const std::vector<SavedPiece>& pieces,
                                  const AfterPart& after_part = {}, const BeforeRename& before_rename = {});

}  // namespace penstock
