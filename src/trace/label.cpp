// SPDX-License-Identifier: Apache-2.0
#include "trace/label.hpp"

#include <fmt/format.h>

namespace penstock {

std::string short_label(const Action& action) {
  if (action.op == Op::validate) return std::string{name_of(action.op)};
  const int number = is_per_micro_batch(action.op) ? action.micro_batch.value() : action.stage.value();
  return fmt::format("{}{}", name_of(action.op), number);
}

std::string full_label(const Action& action, bool with_slice) {
  if (action.op == Op::validate) return std::string{name_of(action.op)};
  std::string stage_and_op = fmt::format("{}{}", action.stage, name_of(action.op));
  if (!is_per_micro_batch(action.op)) return stage_and_op;
  if (!with_slice) return fmt::format("{}{}", stage_and_op, action.micro_batch);
  return fmt::format("{}{}.{}", stage_and_op, action.micro_batch, action.slice);
}

}  // namespace penstock
