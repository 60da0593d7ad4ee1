// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <future>
#include <optional>
#include <vector>

#include "checkpoint/contents.hpp"
#include "checkpoint/io_thread.hpp"
#include "checkpoint/pacer.hpp"
#include "checkpoint/snapshot.hpp"
#include "checkpoint/write.hpp"
#include "comm/communicator.hpp"

namespace penstock {

/// Writes checkpoints in the background, one at a time: training goes on while the I/O thread writes a snapshot.
class CheckpointWriter {
 public:
  /// Collective over `group`, which is duplicated. `io` must outlive the writer. `before_rename` is called on its
  /// thread.
  CheckpointWriter(IoThread& io, const Communicator& group, CheckpointFolder folder, BeforeRename before_rename = {});
  /// Waits for the write in flight; its failure, which nobody can be told any more, is a warning.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Collective: waits for the write in flight (throwing its error), copies `pieces` and returns; the copy is written
  /// in the background (write_checkpoint). `for_each` may copy on several threads.
  ///
  /// The data are written at an even pace over about `spread` (see Pace), and at full speed as soon as somebody waits.
  void start(const CheckpointContents& contents, const std::vector<SavedPiece>& pieces,
             const ForEach& for_each = for_each_in_order, Seconds spread = Seconds{0});
  bool is_writing() const;
  /// Waits for the write in flight. @throws its Error, the same on all ranks. Returns what was written by the last
  /// start that has not been reported yet.
  std::optional<CheckpointReport> wait();

 private:
  IoThread& io_;
  Communicator group_;
  CheckpointFolder folder_;
  BeforeRename before_rename_;
  Snapshot snapshot_;
  CheckpointContents contents_;
  Pacer pacer_;
  std::optional<CheckpointReport> report_;
  std::future<void> write_;
};

}  // namespace penstock
