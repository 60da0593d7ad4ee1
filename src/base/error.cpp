// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <system_error>

namespace penstock {

std::string system_error_text(const std::string& doing, int error_number) {
  return fmt::format("{}: {}", doing, std::system_category().message(error_number));
}

}  // namespace penstock
