// SPDX-License-Identifier: Apache-2.0
#include "optimizer/shard.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace penstock {

std::vector<ShardPiece> shard(const std::vector<std::int64_t>& sizes, std::int32_t replicas, std::int32_t replica) {
  require(replicas >= 1 && replica >= 0 && replica < replicas, "shard: replica {} of {}", replica, replicas);
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  std::vector<ShardPiece> pieces;
  std::int64_t before = 0;  // elements before the current chunk
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::int64_t first = 0; first < sizes[i]; first += chunk_elements) {
      const std::int64_t count = std::min(chunk_elements, sizes[i] - first);
      const std::int64_t owner = (2 * before + count) * replicas / (2 * total);
      if (owner == replica) pieces.push_back({static_cast<std::int32_t>(i), first, count});
      before += count;
    }
  }
  return pieces;
}

std::vector<ShardPiece> shard(const std::vector<Parameter>& parameters, std::int32_t replicas, std::int32_t replica) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(parameters.size());
  for (const auto& parameter : parameters) sizes.push_back(parameter.size());
  return shard(sizes, replicas, replica);
}

}  // namespace penstock
