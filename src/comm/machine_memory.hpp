// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

#include "base/error.hpp"
#include "comm/communicator.hpp"

namespace penstock {

/// A block of memory that the ranks of one machine share, each at an address of its own.
class MachineMemory {
 public:
  /// `count` objects of T, value-initialized, aligned to their own size. Collective over `group`, as is the destructor:
  /// the ranks of each machine share one block. A destructor that an exception calls waits for nobody and gives the
  /// block up: the other ranks may never come.
  template <class T>
  static MachineMemory of(const Communicator& group, std::int64_t count) {
    static_assert(std::is_trivially_destructible_v<T>, "nobody destroys them");
    require(count >= 0, "{} objects in memory of a machine", count);
    MachineMemory memory{group, static_cast<std::size_t>(count) * sizeof(T)};
    if (memory.ranks().rank() == 0) {
      std::byte* place = memory.start();
      for (std::int64_t i = 0; i < count; ++i, place += sizeof(T)) new (place) T{};
    }
    memory.ranks().barrier();
    return memory;
  }

  MachineMemory(MachineMemory&&) noexcept;
  MachineMemory& operator=(MachineMemory&&) = delete;
  ~MachineMemory();

  template <class T>
  std::span<T> objects() const {
    return {std::launder(reinterpret_cast<T*>(start())), bytes() / sizeof(T)};
  }
  /// Those of the group that share this block, in the order of the group.
  const Communicator& ranks() const;

 private:
  struct Window;
  MachineMemory(const Communicator& group, std::size_t bytes);
  std::byte* start() const;
  std::size_t bytes() const;
  std::unique_ptr<Window> window_;
};

}  // namespace penstock
