// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_error.hpp"

#include <array>

#include "base/error.hpp"

namespace penstock {

std::string mpi_error_text(int status) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  if (MPI_Error_string(status, text.data(), &length) != MPI_SUCCESS) return fmt::format("MPI error {}", status);
  return {text.data(), static_cast<std::size_t>(length)};
}

void check_mpi(int status, std::string_view doing) {
  if (status != MPI_SUCCESS) fail(ExitCode::internal, "{}: {}", doing, mpi_error_text(status));
}

void check_received(const MPI_Status& status, int expected, int from) {
  int received = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &received), "asking for the length of a message");
  require(received == expected, "receiving from rank {}: the message has {} bytes, {} were expected", from, received,
          expected);
}

}  // namespace penstock
