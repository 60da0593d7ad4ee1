// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/units.hpp"
#include "checkpoint/contents.hpp"

namespace penstock {

/// Calls body(0) .. body(count - 1), in any order and on any threads, and returns when all are done
/// (Workers::for_each).
using ForEach = std::function<void(std::int64_t count, const std::function<void(std::int64_t)>& body)>;

/// One after the other, on the calling thread.
void for_each_in_order(std::int64_t count, const std::function<void(std::int64_t)>& body);

/// A copy of pieces of state, which stays as it is while training goes on. Its memory is kept for the next.
class Snapshot {
 public:
  /// What a snapshot of these pieces takes: the bound for the plan of the host's memory.
  static Bytes bytes_of(const std::vector<SavedPiece>& pieces);

  void take(const std::vector<SavedPiece>& pieces, const ForEach& for_each);
  /// The pieces that were taken, with their data in the snapshot.
  const std::vector<SavedPiece>& pieces() const { return pieces_; }
  Bytes bytes() const { return {capacity_ * static_cast<std::int64_t>(sizeof(float))}; }

 private:
  std::unique_ptr<float[]> memory_;
  std::int64_t capacity_ = 0;  // elements
  std::vector<SavedPiece> pieces_;
};

}  // namespace penstock
