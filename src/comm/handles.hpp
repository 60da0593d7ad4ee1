// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include "base/handle.hpp"
#include "comm/communicator.hpp"

namespace penstock {

/// The MPI_Comm of a communicator. @pre MPI is running
MPI_Comm handle_of(const Communicator& communicator);

/// Of a window of memory; to free it is collective, and waits for the other ranks by spinning.
struct WindowTraits {
  using Handle = MPI_Win;
  static Handle null() noexcept { return MPI_WIN_NULL; }
  static void close(Handle window) noexcept;
};
using OwnedWindow = UniqueHandle<WindowTraits>;

}  // namespace penstock
