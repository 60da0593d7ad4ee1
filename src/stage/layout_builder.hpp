// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "kernels/tensor.hpp"
#include "memory/plan.hpp"
#include "stage/layout.hpp"

namespace penstock {

/// Lays tensors into a buffer, one after the other.
class LayoutBuilder {
 public:
  TensorSlot add(std::string name, DType type, std::int64_t rows, std::int64_t columns) {
    TensorSlot slot{std::move(name), type, rows, columns, Bytes{end_}};
    end_ = round_up(end_ + rows * columns * size_of(type), slot_alignment);
    largest_ = std::max(largest_, end_);
    tensors_.push_back(slot);
    return slot;
  }
  /// What follows a rewind shares the memory after the mark with what was added since.
  std::int64_t mark() const { return end_; }
  void rewind(std::int64_t mark) { end_ = mark; }
  BufferLayout finish() { return {std::move(tensors_), Bytes{round_up(largest_, buffer_alignment)}}; }

 private:
  std::vector<TensorSlot> tensors_;
  std::int64_t end_ = 0;
  std::int64_t largest_ = 0;
};

}  // namespace penstock
