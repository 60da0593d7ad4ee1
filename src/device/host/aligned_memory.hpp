// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/units.hpp"

namespace penstock {

/// One block of zeroed memory whose start is aligned to 2 MiB and which the kernel is advised to back with huge pages.
/// Its end is followed by a page that must not be touched, so that most overruns stop the program where they happen.
class AlignedMemory {
 public:
  static constexpr std::int64_t alignment = std::int64_t{2} << 20;

  AlignedMemory() = default;
  /// @throws Error does_not_fit with the reason if the system cannot give it.
  explicit AlignedMemory(Bytes size);
  AlignedMemory(AlignedMemory&& other) noexcept;
  AlignedMemory& operator=(AlignedMemory&& other) noexcept;
  AlignedMemory(const AlignedMemory&) = delete;
  AlignedMemory& operator=(const AlignedMemory&) = delete;
  ~AlignedMemory();
  std::byte* data() const { return data_; }

 private:
  void* mapping_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace penstock
