// SPDX-License-Identifier: Apache-2.0
#include "base/size_check.hpp"

#include "base/error.hpp"

namespace penstock {

void check_at_least_one(std::string_view key, std::int32_t value) {
  if (value < 1) fail(ExitCode::bad_input, "{} is {}; it must be at least 1", key, value);
}

}  // namespace penstock
