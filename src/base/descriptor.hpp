// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>

#include <unistd.h>

#include "base/handle.hpp"
#include "base/log.hpp"

namespace penstock {

struct DescriptorTraits {
  using Handle = int;
  static Handle null() noexcept { return -1; }
  static void close(Handle handle) noexcept {
    if (::close(handle) != 0) log::warning("closing a file: error {}", errno);
  }
};

/// An open file of the operating system.
using Descriptor = UniqueHandle<DescriptorTraits>;

}  // namespace penstock
