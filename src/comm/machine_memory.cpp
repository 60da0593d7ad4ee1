// SPDX-License-Identifier: Apache-2.0
#include "comm/machine_memory.hpp"

#include <exception>
#include <utility>

#include <mpi.h>

#include "base/log.hpp"
#include "comm/handles.hpp"
#include "comm/mpi_error.hpp"

namespace penstock {
struct MachineMemory::Window {
  Communicator ranks;
  OwnedWindow handle;
  std::byte* start = nullptr;
  std::size_t bytes = 0;
  int exceptions_before = std::uncaught_exceptions();
};

MachineMemory::MachineMemory(const Communicator& group, std::size_t bytes)
    : window_{new Window{group.split_by_machine(), {}, nullptr, bytes}} {
  // The first rank gives the memory of all, which the others find in their address space.
  const auto own = static_cast<MPI_Aint>(ranks().rank() == 0 ? bytes : 0);
  void* start = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  check_mpi(MPI_Win_allocate_shared(own, 1, MPI_INFO_NULL, handle_of(ranks()), &start, &window),
            "sharing memory between the ranks of a machine");
  window_->handle.reset(window);
  MPI_Aint size = 0;
  int unit = 0;
  check_mpi(MPI_Win_shared_query(window, 0, &size, &unit, &start), "finding memory shared by the ranks of a machine");
  window_->start = static_cast<std::byte*>(start);
}

MachineMemory::MachineMemory(MachineMemory&&) noexcept = default;

MachineMemory::~MachineMemory() {
  if (!window_) return;
  if (std::uncaught_exceptions() > window_->exceptions_before) {
    window_->handle.release();
    return;
  }
  try {
    ranks().barrier();  // MPI_Win_free waits for the others by spinning: they are awaited asleep first
  } catch (const Error& error) {
    log::warning("freeing memory shared by the ranks of a machine: {}", error.what());
  }
}

const Communicator& MachineMemory::ranks() const {
  return window_->ranks;
}
std::byte* MachineMemory::start() const {
  return window_->start;
}
std::size_t MachineMemory::bytes() const {
  return window_->bytes;
}

}  // namespace penstock
