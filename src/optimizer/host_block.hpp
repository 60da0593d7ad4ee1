// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "base/handle.hpp"
#include "base/units.hpp"

namespace penstock {

/// One zeroed block of host memory, aligned to a huge page when it is large, which it then asks for.
class HostBlock {
 public:
  HostBlock() = default;
  /// `what` names the memory in the error: "the first moments of stage 3". @throws Error does_not_fit
  HostBlock(Bytes bytes, const std::string& what);

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
