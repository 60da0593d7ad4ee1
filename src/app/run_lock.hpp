// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/descriptor.hpp"
#include "comm/communicator.hpp"
#include "config/deck.hpp"

namespace penstock {

/// Keeps a second run out of a run's folder: the first rank makes the folder and holds an advisory lock on its file
/// `run.lock`, which names host and process. The system drops the lock when the process ends, however it ends.
class RunLock {
 public:
  /// Collective, before any file of the folder is read or moved. A file system without locks is a warning.
  /// @throws AgreedError bad_input if another run holds the folder, with its host and process; cannot_write if the
  /// folder cannot be made or written.
  RunLock(const Deck& deck, const Communicator& world);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  Descriptor file_;  // on the first rank, where the lock is held
};

}  // namespace penstock
