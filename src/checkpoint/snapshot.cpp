// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/snapshot.hpp"

#include <algorithm>

namespace penstock {
namespace {

std::int64_t elements_of(const std::vector<SavedPiece>& pieces) {
  std::int64_t elements = 0;
  for (const auto& piece : pieces) elements += piece.count;
  return elements;
}

struct Copy {
  const float* from;
  float* to;
  std::int64_t count;
};

}  // namespace

void for_each_in_order(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  for (std::int64_t i = 0; i < count; ++i) body(i);
}

Bytes Snapshot::bytes_of(const std::vector<SavedPiece>& pieces) {
  return {elements_of(pieces) * static_cast<std::int64_t>(sizeof(float))};
}

void Snapshot::take(const std::vector<SavedPiece>& pieces, const ForEach& for_each) {
  const std::int64_t elements = elements_of(pieces);
  if (elements > capacity_) {
    memory_.reset();  // before the new one: two at once are not in the plan
    memory_.reset(new float[static_cast<std::size_t>(elements)]);  // not zeroed: copied over in parallel
    capacity_ = elements;
  }
  pieces_ = pieces;
  std::vector<Copy> copies;
  float* next = memory_.get();
  for (auto& piece : pieces_) {
    for (std::int64_t at = 0; at < piece.count; at += chunk_elements)
      copies.push_back({piece.data + at, next + at, std::min(chunk_elements, piece.count - at)});
    piece.data = next;
    next += piece.count;
  }
  for_each(static_cast<std::int64_t>(copies.size()), [&](std::int64_t i) {
    const auto& copy = copies[static_cast<std::size_t>(i)];
    std::copy_n(copy.from, copy.count, copy.to);
  });
}

}  // namespace penstock
