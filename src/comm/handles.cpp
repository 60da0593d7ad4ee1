// SPDX-License-Identifier: Apache-2.0
#include "comm/handles.hpp"

#include <cstring>

#include "base/log.hpp"
#include "comm/mpi_error.hpp"

namespace penstock {

MPI_Comm handle_of(const Communicator& communicator) {
  MPI_Comm handle = MPI_COMM_NULL;
  void* opaque = communicator.native();
  std::memcpy(&handle, &opaque, sizeof(MPI_Comm));
  return handle;
}

void WindowTraits::close(Handle window) noexcept {
  if (const int status = MPI_Win_free(&window); status != MPI_SUCCESS) {
    log::warning("freeing a window of memory: {}", mpi_error_text(status));
  }
}

}  // namespace penstock
