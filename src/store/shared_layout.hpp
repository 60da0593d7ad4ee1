// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/index.hpp"
#include "base/units.hpp"

namespace penstock {

/// Who owns which stage's working copy, and how many bytes it has. Stages of the backward partition.
struct SharedStages {
  PerStage<Rank> owner;
  PerStage<Bytes> bytes;
};

/// Where the copies lie in the blocks that their owners share: a page (or more) of versions, one for each stage of the
/// owner, then its copies in the order of their stages, each from a page on.
class SharedLayout {
 public:
  /// @throws Error unless both tables have as many stages
  explicit SharedLayout(SharedStages stages);

  const SharedStages& stages() const { return stages_; }
  /// Of the block of `rank`; 0 if it owns no stage.
  Bytes block(Rank rank) const;
  /// From the start of its owner's block.
  Bytes version_offset(Stage stage) const;
  Bytes copy_offset(Stage stage) const { return copy_offset_[stage]; }

 private:
  SharedStages stages_;
  PerStage<std::int32_t> place_;  // among the stages of its owner
  PerStage<Bytes> copy_offset_;
  PerRank<Bytes> block_;
};

}  // namespace penstock
