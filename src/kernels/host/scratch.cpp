// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/scratch.hpp"

namespace penstock::host {

void Scratch::bind(std::span<std::byte> memory, std::int32_t threads) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto skipped = static_cast<std::size_t>((scratch_alignment - address % scratch_alignment) % scratch_alignment);
  memory_ = memory.size() > skipped ? memory.subspan(skipped) : std::span<std::byte>{};
  bytes_per_thread_ = memory_.size() / static_cast<std::size_t>(threads) / scratch_alignment * scratch_alignment;
}

TaskScratch Scratch::of_thread(std::int32_t thread) const {
  return TaskScratch{memory_.subspan(static_cast<std::size_t>(thread) * bytes_per_thread_, bytes_per_thread_)};
}

}  // namespace penstock::host
