// SPDX-License-Identifier: Apache-2.0
//
// Reading checkpoints needs no MPI: each process opens the file by itself, read only. Every function here calls HDF5:
// use the I/O thread where there is one (io_thread).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/contents.hpp"
#include "comm/communicator.hpp"

namespace penstock {

/// The attributes of a checkpoint. @throws Error damaged_input naming the file.
CheckpointHeader read_checkpoint_header(const std::string& path);

/// The attributes, and the names and shapes of the data sets. @throws Error damaged_input naming the file.
CheckpointContents read_checkpoint_contents(const std::string& path);

/// Fills `pieces` (any ranges of elements of the data sets that they index in `datasets`) from the file, and verifies
/// the checksum of every chunk that they touch.
/// @throws Error damaged_input naming the file and the data set: missing, of another shape or type, or damaged (and the
/// chunk).
CheckpointHeader load_checkpoint(const std::string& path, const std::vector<CheckpointDataset>& datasets,
                                 const std::vector<LoadedPiece>& pieces);

/// Collective form: if it fails on one rank, all throw that rank's Error.
CheckpointHeader load_checkpoint(const Communicator& group, const std::string& path,
                                 const std::vector<CheckpointDataset>& datasets,
                                 const std::vector<LoadedPiece>& pieces);

/// Reads the whole file and verifies every checksum. @throws Error damaged_input naming the file, data set and chunk.
CheckpointContents verify_checkpoint(const std::string& path);

/// Collective: the newest checkpoint in `folder` that is whole, the same on all ranks; nothing if there is none at all.
/// Rank 0 verifies (it reads the file), and names each broken one in a warning.
/// @throws Error damaged_input on all ranks if there are checkpoints but every one is broken.
std::optional<std::string> find_latest(const Communicator& group, const std::string& folder);

}  // namespace penstock
