// SPDX-License-Identifier: Apache-2.0
#include "base/counted.hpp"

#include <fmt/format.h>

namespace penstock {

std::string counted(std::int64_t count, std::string_view noun, std::string_view plural) {
  if (count == 1) return fmt::format("1 {}", noun);
  return plural.empty() ? fmt::format("{} {}s", count, noun) : fmt::format("{} {}", count, plural);
}

}  // namespace penstock
