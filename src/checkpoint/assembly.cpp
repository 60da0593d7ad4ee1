// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/assembly.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <tuple>

#include "base/error.hpp"

namespace penstock {
namespace {

constexpr int part_tag = 1;

/// A part of a chunk, as ranks tell each other.
struct Part {
  std::int64_t dataset = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t rank = 0;
  std::int64_t chunk() const { return first / chunk_elements; }
  auto key() const { return std::tuple{dataset, first}; }
};

/// What is whole of the pieces, and what is not.
struct Cut {
  std::vector<SavedPiece> whole;
  std::vector<SavedPiece> parts;
};

Cut cut(const std::vector<CheckpointDataset>& datasets, const std::vector<SavedPiece>& pieces) {
  Cut result;
  for (const auto& piece : pieces) {
    const std::int64_t size = datasets.at(static_cast<std::size_t>(piece.dataset)).size();
    const std::int64_t end = piece.first + piece.count;
    const auto add = [&](std::vector<SavedPiece>& to, std::int64_t first, std::int64_t last) {
      if (first < last) to.push_back({piece.dataset, first, last - first, piece.data + (first - piece.first)});
    };
    const std::int64_t whole_begin = std::min(round_up(piece.first, chunk_elements), end);
    const std::int64_t whole_end = end == size ? end : std::max(end / chunk_elements * chunk_elements, whole_begin);
    add(result.parts, piece.first, whole_begin);
    add(result.whole, whole_begin, whole_end);
    add(result.parts, whole_end, end);
  }
  return result;
}

/// The parts of all ranks, by data set and place.
std::vector<Part> parts_of_all(const Communicator& group, const std::vector<SavedPiece>& own) {
  std::string bytes(own.size() * sizeof(Part), '\0');
  for (std::size_t i = 0; i < own.size(); ++i) {
    const Part part{own[i].dataset, own[i].first, own[i].count, group.rank()};
    std::memcpy(bytes.data() + i * sizeof part, &part, sizeof part);
  }
  std::vector<Part> parts;
  for (const auto& of_rank : group.all_gather(bytes)) {
    const std::size_t before = parts.size();
    parts.resize(before + of_rank.size() / sizeof(Part));
    if (!of_rank.empty()) std::memcpy(parts.data() + before, of_rank.data(), of_rank.size());
  }
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.key() < b.key(); });
  return parts;
}

/// The parts of one chunk on their way to the rank that has its first element.
class Gathering {
 public:
  Gathering(const Communicator& group, std::span<const Part> parts, std::int64_t size)
      : group_{group}, parts_{parts}, begin_{parts.front().chunk() * chunk_elements} {
    std::int64_t covered = begin_;
    for (const Part& part : parts) {
      require(part.first == covered, "saving a checkpoint: elements [{}, {}) of a chunk are given {}", covered,
              part.first, part.first < covered ? "twice" : "by no rank");
      covered += part.count;
    }
    require(covered == std::min(begin_ + chunk_elements, size),
            "saving a checkpoint: no rank gives the elements from {} of a chunk", covered);
  }
  bool is_here() const { return parts_.front().rank == group_.rank(); }
  std::int64_t begin() const { return begin_; }

  /// The whole chunk where it goes to this rank; empty elsewhere. All ranks gather chunk after chunk, in one order.
  std::vector<float> gather(const std::vector<SavedPiece>& own) const {
    std::vector<float> chunk;
    if (is_here()) chunk.resize(static_cast<std::size_t>(parts_.back().first + parts_.back().count - begin_));
    for (const Part& part : parts_) {
      const bool is_own = part.rank == group_.rank();
      const auto to = is_here() ? std::span{chunk}.subspan(static_cast<std::size_t>(part.first - begin_),
                                                           static_cast<std::size_t>(part.count))
                                : std::span<float>{};
      if (is_own && is_here()) {
        std::copy_n(data_of(part, own), part.count, to.data());
      } else if (is_own) {
        const std::span sent{data_of(part, own), static_cast<std::size_t>(part.count)};
        group_.send(std::as_bytes(sent), static_cast<int>(parts_.front().rank), part_tag);
      } else if (is_here()) {
        group_.receive(std::as_writable_bytes(to), static_cast<int>(part.rank), part_tag);
      }
    }
    return chunk;
  }

 private:
  static const float* data_of(const Part& part, const std::vector<SavedPiece>& own) {
    const auto found = std::find_if(own.begin(), own.end(), [&](const SavedPiece& piece) {
      return piece.dataset == part.dataset && piece.first == part.first;
    });
    return found->data;
  }

  const Communicator& group_;
  std::span<const Part> parts_;
  std::int64_t begin_;
};

}  // namespace

std::vector<SavedPiece> ChunkAssembly::whole_chunks(const Communicator& group,
                                                    const std::vector<CheckpointDataset>& datasets,
                                                    const std::vector<SavedPiece>& pieces) {
  auto [whole, own] = cut(datasets, pieces);
  const auto parts = parts_of_all(group, own);
  chunks_.clear();
  for (auto begin = parts.begin(); begin != parts.end();) {
    const auto is_of_another = [&](const Part& part) {
      return part.dataset != begin->dataset || part.chunk() != begin->chunk();
    };
    const auto end = std::find_if(begin, parts.end(), is_of_another);
    const std::int64_t size = datasets[static_cast<std::size_t>(begin->dataset)].size();
    const Gathering gathering{group, std::span{begin, end}, size};
    auto chunk = gathering.gather(own);
    if (gathering.is_here()) {
      chunks_.push_back(std::move(chunk));
      whole.push_back({static_cast<std::int32_t>(begin->dataset), gathering.begin(),
                       static_cast<std::int64_t>(chunks_.back().size()), chunks_.back().data()});
    }
    begin = end;
  }
  return whole;
}

}  // namespace penstock
