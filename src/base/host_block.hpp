// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/handle.hpp"
#include "base/units.hpp"

namespace penstock {

/// One block of zeroed host memory whose start is aligned to 2 MiB and which the kernel is advised to back with huge
/// pages. A page that must not be touched follows its last page, so that most overruns stop the program where they
/// happen.
class HostBlock {
 public:
  static constexpr std::int64_t alignment = std::int64_t{2} << 20;

  HostBlock() = default;
  /// `what` names the memory in the error ("the first moments of stage 3"), `advice` says there what to do.
  /// @throws Error does_not_fit with the system's reason
  HostBlock(Bytes bytes, std::string_view what,
            std::string_view advice = "use fewer ranks per node or a smaller model");

  /// Not null, even of 0 bytes; null only of a block that was never reserved.
  std::byte* data() const { return data_; }
  Bytes bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  struct Mapping {
    void* start = nullptr;
    std::size_t length = 0;
    friend bool operator==(const Mapping&, const Mapping&) = default;
  };
  struct MappingTraits {
    using Handle = Mapping;
    static Handle null() noexcept { return {}; }
    static void close(Handle mapping) noexcept;
  };

  UniqueHandle<MappingTraits> mapping_;
  std::byte* data_ = nullptr;
  Bytes bytes_{0};
};

}  // namespace penstock
