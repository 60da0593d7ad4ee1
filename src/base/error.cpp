// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <cerrno>
#include <system_error>

namespace penstock {

std::string system_error_text(const std::string& doing, int error_number) {
  return fmt::format("{}: {}", doing, std::system_category().message(error_number));
}

ExitCode code_of_failed_write(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EIO:
      return ExitCode::cannot_write;
    default:
      return ExitCode::bad_input;
  }
}

}  // namespace penstock
