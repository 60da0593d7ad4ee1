// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.hpp"

namespace penstock {

/// Elements of a chunk: 4 MiB of fp32. Ownership by data-parallel replicas and the checksums of a checkpoint are in
/// chunks, so that any layout verifies what it reads.
inline constexpr std::int64_t chunk_elements = std::int64_t{1} << 20;

/// Elements whose squares are summed together for the gradient norm; chunks hold a whole number of blocks.
inline constexpr std::int64_t norm_block_elements = std::int64_t{1} << 16;
static_assert(chunk_elements % norm_block_elements == 0);

/// A chunk of one parameter: elements [first, first + count), first a multiple of chunk_elements.
struct ShardPiece {
  std::int32_t parameter = 0;  ///< index in the stage's list
  std::int64_t first = 0;
  std::int64_t count = 0;  ///< chunk_elements, or less at the parameter's end
  friend bool operator==(const ShardPiece&, const ShardPiece&) = default;
};

/// The chunks whose masters and moments `replica` of `replicas` owns, in order of parameter and element.
///
/// All chunks of the stage, in order, are cut into one contiguous run per replica; a chunk goes to the replica in whose
/// equal share of the elements its middle lies, so a share is off by at most one chunk. A parameter of size 0 has no
/// chunks; a replica may own nothing. @pre replicas >= 1, 0 <= replica < replicas
std::vector<ShardPiece> shard(const std::vector<std::int64_t>& sizes, std::int32_t replicas, std::int32_t replica);
std::vector<ShardPiece> shard(const std::vector<Parameter>& parameters, std::int32_t replicas, std::int32_t replica);

}  // namespace penstock
