// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <mpi.h>

namespace penstock {

/// What MPI says of one of its error codes.
std::string mpi_error_text(int status);

/// Throws an internal Error with MPI's own text unless `status` is MPI_SUCCESS; `doing` says what was asked of MPI.
void check_mpi(int status, std::string_view doing);

/// Throws an internal Error unless the message that `status` describes has the `expected` number of bytes. (MPI itself
/// refuses longer ones.)
void check_received(const MPI_Status& status, int expected, int from);

}  // namespace penstock
