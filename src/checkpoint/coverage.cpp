// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/coverage.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include <xxhash.h>

#include "base/error.hpp"

namespace penstock {
namespace {

/// A piece without its data, as ranks tell each other.
struct Claim {
  std::int64_t dataset = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t rank = 0;
};

/// A fingerprint of the names and shapes, then the claims of this rank.
std::string encoded(const std::vector<CheckpointDataset>& datasets, const std::vector<SavedPiece>& pieces, int rank) {
  std::string names;
  for (const auto& set : datasets)
    names += fmt::format("{} {} {} {}\n", set.name, set.rows, set.columns, set.one_dimensional);
  const std::uint64_t fingerprint = XXH64(names.data(), names.size(), 0);
  std::string bytes(sizeof fingerprint + pieces.size() * sizeof(Claim), '\0');
  std::memcpy(bytes.data(), &fingerprint, sizeof fingerprint);
  char* next = bytes.data() + sizeof fingerprint;
  for (const auto& piece : pieces) {
    const Claim claim{piece.dataset, piece.first, piece.count, rank};
    std::memcpy(next, &claim, sizeof claim);
    next += sizeof claim;
  }
  return bytes;
}

std::vector<Claim> decoded(const std::string& bytes, const std::string& bytes_of_first) {
  constexpr std::size_t header = sizeof(std::uint64_t);
  require(bytes.compare(0, header, bytes_of_first, 0, header) == 0,
          "saving a checkpoint: the ranks have different lists of data sets");
  std::vector<Claim> claims((bytes.size() - header) / sizeof(Claim));
  if (!claims.empty()) std::memcpy(claims.data(), bytes.data() + header, claims.size() * sizeof(Claim));
  return claims;
}

void check_claim(const Claim& claim, const std::vector<CheckpointDataset>& datasets) {
  require(claim.dataset >= 0 && claim.dataset < static_cast<std::int64_t>(datasets.size()),
          "saving a checkpoint: rank {} gives a piece of data set {} of {}", claim.rank, claim.dataset,
          datasets.size());
  const auto& set = datasets[static_cast<std::size_t>(claim.dataset)];
  const std::int64_t end = claim.first + claim.count;
  require(claim.first >= 0 && claim.count > 0 && end <= set.size(),
          "saving a checkpoint: rank {} gives the elements [{}, {}) of {}, which has {}", claim.rank, claim.first, end,
          set.name, set.size());
  require(claim.first % chunk_elements == 0 && (end % chunk_elements == 0 || end == set.size()),
          "saving a checkpoint: rank {} gives the elements [{}, {}) of {}, which are no whole chunks of {}", claim.rank,
          claim.first, end, set.name, chunk_elements);
}

/// @pre `claims` are sorted by data set, then by first element.
void check_each_once(const std::vector<Claim>& claims, const std::vector<CheckpointDataset>& datasets) {
  auto next = claims.begin();
  for (std::size_t index = 0; index < datasets.size(); ++index) {
    const auto& set = datasets[index];
    std::int64_t covered = 0;
    for (; next != claims.end() && next->dataset == static_cast<std::int64_t>(index); ++next) {
      require(next->first <= covered, "saving a checkpoint: no rank gives the elements [{}, {}) of {}", covered,
              next->first, set.name);
      require(next->first >= covered, "saving a checkpoint: more than one rank gives element {} of {} (rank {} does)",
              next->first, set.name, next->rank);
      covered += next->count;
    }
    require(covered == set.size(), "saving a checkpoint: no rank gives the elements [{}, {}) of {}", covered,
            set.size(), set.name);
  }
}

}  // namespace

void check_coverage(const Communicator& group, const std::vector<CheckpointDataset>& datasets,
                    const std::vector<SavedPiece>& pieces) {
  const auto all = group.all_gather(encoded(datasets, pieces, group.rank()));
  std::vector<Claim> claims;
  for (const auto& bytes : all) {
    const auto of_rank = decoded(bytes, all.front());
    claims.insert(claims.end(), of_rank.begin(), of_rank.end());
  }
  for (const auto& claim : claims) check_claim(claim, datasets);
  std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) {
    return a.dataset != b.dataset ? a.dataset < b.dataset : a.first < b.first;
  });
  check_each_once(claims, datasets);
}

}  // namespace penstock
