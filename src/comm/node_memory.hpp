// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/handle.hpp"
#include "base/units.hpp"
#include "comm/nodes.hpp"

namespace penstock {

/// A block of memory from each rank of a node, which that rank writes and all ranks of the node read. For large blocks;
/// small objects that all write are MachineMemory's.
///
/// The blocks have no name in any file system (memfd_create), so that nothing is left behind however a job ends, nor do
/// they count against the size of /dev/shm. Their pages are there, zeroed, from the start, on the memory of the
/// processor that its owner ran on: no write ends in a bus error. A block lives until the last rank that has mapped it
/// is gone, so the destructor waits for nobody.
class NodeMemory {
 public:
  /// `own` bytes from this rank; `what` names them in errors. Collective over the group of `nodes`.
  /// @throws AgreedError on all ranks of the group: does_not_fit if a machine has not that much memory left, bad_input
  /// if its ranks cannot reach each other's memory
  NodeMemory(const Nodes& nodes, Bytes own, std::string_view what);

  /// Starts at a page.
  std::span<std::byte> own() const;
  /// The block of a rank of the node.
  std::span<const std::byte> of(int rank) const;

 private:
  struct Mapping {
    std::byte* start = nullptr;
    std::size_t bytes = 0;
    friend bool operator==(const Mapping&, const Mapping&) = default;
  };
  struct MappingTraits {
    using Handle = Mapping;
    static Handle null() noexcept { return {}; }
    static void close(Handle mapping) noexcept;
  };
  using OwnedMapping = UniqueHandle<MappingTraits>;

  static OwnedMapping map(int file, Bytes bytes, int protection, std::string_view what);
  static OwnedMapping map_of(std::int64_t process, std::int64_t file, Bytes bytes, std::string_view what);

  int own_place_;
  std::vector<OwnedMapping> blocks_;  // by rank of the node
};

}  // namespace penstock
