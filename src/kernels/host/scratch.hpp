// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "base/units.hpp"

namespace penstock::host {

/// Where every piece of scratch begins and ends: a cache line.
inline constexpr std::int64_t scratch_alignment = 64;

/// The scratch of one task: pieces are taken from the front and all given back when the task ends.
class TaskScratch {
 public:
  explicit TaskScratch(std::span<std::byte> memory) : memory_{memory} {}

  /// @throws Error internal if the scratch is too small: scratch_bytes was asked with other limits than the call needs.
  template <class T>
  T* take(std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(round_up(count * std::int64_t{sizeof(T)}, scratch_alignment));
    require(bytes <= memory_.size(),
            "host kernels: {} bytes of scratch needed beyond the {} that are left; the call exceeds "
            "the KernelLimits that the scratch was planned for",
            bytes, memory_.size());
    auto* const piece = reinterpret_cast<T*>(memory_.data());
    memory_ = memory_.subspan(bytes);
    return piece;
  }

  /// What is left, for one who knows its need only later.
  std::span<std::byte> rest() const { return memory_; }

 private:
  std::span<std::byte> memory_;
};

/// The scratch memory of a Kernels object: one piece for all tasks of a call, or one for each thread.
class Scratch {
 public:
  void bind(std::span<std::byte> memory, std::int32_t threads);
  TaskScratch whole() const { return TaskScratch{memory_}; }
  TaskScratch of_thread(std::int32_t thread) const;

 private:
  std::span<std::byte> memory_;  // aligned
  std::size_t bytes_per_thread_ = 0;
};

}  // namespace penstock::host
