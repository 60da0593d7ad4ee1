// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace penstock {

/// Owns one handle of a C library. Traits give `Handle`, `null()` and `close(Handle)`, which reports a failure and
/// never throws.
template <class Traits>
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;
  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) noexcept : handle_{handle} {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_{other.release()} {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    reset(other.release());
    return *this;
  }
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;
  ~UniqueHandle() { reset(); }
  Handle get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != Traits::null(); }
  Handle release() noexcept { return std::exchange(handle_, Traits::null()); }
  void reset(Handle next = Traits::null()) noexcept {
    if (Handle old = std::exchange(handle_, next); old != Traits::null()) Traits::close(old);
  }

 private:
  Handle handle_ = Traits::null();
};

}  // namespace penstock
