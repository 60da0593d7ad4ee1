// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "base/error.hpp"
#include "comm/communicator.hpp"

namespace penstock {

/// Starts MPI and runs `command` on all ranks. What all ranks agree on ends them in order, told by the first; what one
/// rank meets alone ends the job at once.
ExitCode with_mpi(int* argc, char*** argv, const std::function<ExitCode(const Communicator&)>& command);

}  // namespace penstock
