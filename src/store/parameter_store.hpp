// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/index.hpp"
#include "base/units.hpp"
#include "comm/node_memory.hpp"
#include "comm/nodes.hpp"
#include "comm/remote_memory.hpp"
#include "comm/version.hpp"
#include "memory/options.hpp"
#include "store/shared_layout.hpp"

namespace penstock {

struct StoreOptions {
  Fetch fetch = Fetch::message;                ///< memory.fetch
  std::optional<std::int32_t> ranks_per_node;  ///< parallel.ranks_per_node
};

/// The working copies of the parameters on the host: each backward stage's lies, in the layout of its buffer on a
/// device, in memory that the ranks of a node share. The rank that steps the stage owns it and writes it; forward ranks
/// read it: in place on its node, by messages or gets from another (methods, section 1.3).
///
/// A copy has a version: the number of the step whose validated update it holds, 0 for the initial weights. The owner
/// publishes it when the copy is written; a reader waits for the version that it wants. Who writes the next version
/// knows that nobody reads the last one any more: a stage is stepped after all its backward passes, which come after
/// its forward passes, which come after their fetches.
class ParameterStore {
 public:
  /// Collective over `pipeline`, the replica's ranks by coordinate, which outlives the store. So is the destructor:
  /// others may read until all have come to it; one that an exception calls waits for nobody.
  /// @throws AgreedError as NodeMemory and, with Fetch::get, as make_get_memory
  ParameterStore(const Communicator& pipeline, SharedStages stages, const StoreOptions& options);
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  /// The copy of a stage of this rank, to write; starts at a page. Zeroes at first.
  std::span<std::byte> own(Stage stage);
  /// The copy holds `version`, which is above the last one: from now on others may read it. By the owner, one thread at
  /// a time.
  void publish(Stage stage, std::int64_t version);

  // Any thread, while others use the store or MPI:
  /// Sleeps until the copy holds `version` or a later one. @throws Error after stop()
  void wait_for(Stage stage, std::int64_t version) const;
  /// The copy, if this node has it; else null. After wait_for.
  const std::byte* direct(Stage stage) const;
  /// Reads the bytes of the copy from `offset` on, from whatever node, straight into `out`. After wait_for.
  /// @throws Error after stop(): MPI may then still write to `out`
  void read(Stage stage, Bytes offset, std::span<std::byte> out) const;
  /// For a run that fails: waits and reads of this rank, those of now and later, throw.
  void stop() { is_stopped_.store(true); }

  /// Host memory that the store takes of `rank`: copies and versions. Reads need no memory of their own.
  static Bytes host_bytes(const SharedStages& stages, Rank rank);

 private:
  std::byte* own_block(Stage stage);
  const std::byte* block(Stage stage) const;
  void check_not_stopped(bool is_done, Stage stage) const;

  SharedLayout layout_;
  Rank rank_;
  Nodes nodes_;
  NodeMemory memory_;
  std::atomic<bool> is_stopped_{false};
  std::unique_ptr<RemoteMemory> remote_;  // where there are several nodes
};

}  // namespace penstock
