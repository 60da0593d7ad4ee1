// SPDX-License-Identifier: Apache-2.0
//
// The folder of a run's checkpoints: names, order, and what makes a change of it permanent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace penstock {

/// "step_00000050.h5"; steps above 99999999 get more digits.
std::string checkpoint_name(std::int64_t step);

struct CheckpointFile {
  std::int64_t step = 0;
  std::string path;
};

/// The finished checkpoints in `folder`, the newest step first; none if it does not exist. Unfinished ones (`.partial`)
/// and other files are not listed. @throws Error bad_input if the folder cannot be read.
std::vector<CheckpointFile> list_checkpoints(const std::string& folder);

/// Makes `folder`, in one that exists: a run's folder that somebody has removed is not made anew, without the run's
/// other files. Several processes may do so at once. @throws Error cannot_write.
void make_folder(const std::string& folder);

/// Renames `partial` to `path` so that it stays after a power failure. @throws Error cannot_write.
void publish(const std::string& partial, const std::string& path);

/// Removes all checkpoints up to the one of `step`, which was written just now, but it and the `keep` - 1 before it,
/// and what unfinished writes have left. Those of later steps, which are another run's, stay. What cannot be removed is
/// a warning.
void prune(const std::string& folder, std::int64_t step, std::int32_t keep);

/// Lets the system begin to write the file's data to the disk, and does not wait for it. What is on the disk already
/// leaves the system's file cache: memory that serves the parts to come, and that training may need itself.
void begin_to_synchronize(const std::string& path);

/// Waits until the file's data is on the disk, and lets them leave the system's file cache. @throws Error cannot_write,
/// with the system's reason.
void synchronize(const std::string& path);

/// Grows a file to `bytes` with room on the disk for all of them, where the file system can. @throws Error cannot_write
/// if the disk is full (or a quota or a size limit is met), with the bytes needed and the bytes free.
void reserve(const std::string& path, Bytes bytes);

}  // namespace penstock
