// SPDX-License-Identifier: Apache-2.0
#include "trace/label.hpp"

#include <fmt/format.h>

namespace penstock {

std::string short_label(const Action& action) {
  if (action.op == Op::validate) return std::string{name_of(action.op)};
  const int number = is_per_micro_batch(action.op) ? action.micro_batch.value() : action.stage.value();
  return fmt::format("{}{}", name_of(action.op), number);
}

}  // namespace penstock
