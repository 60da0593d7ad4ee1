// SPDX-License-Identifier: Apache-2.0
#include "model/spec.hpp"

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/size_check.hpp"

namespace penstock {
namespace {

void check_sizes(const ModelSpec& spec) {
  check_at_least_one("model.layers", spec.layers);
  check_at_least_one("model.hidden", spec.hidden);
  check_at_least_one("model.heads", spec.heads);
  check_at_least_one("model.kv_heads", spec.kv_heads);
  check_at_least_one("model.head_size", spec.head_size);
  check_at_least_one("model.ffn", spec.ffn);
  check_at_least_one("model.vocabulary", spec.vocabulary);
  if (spec.family == Family::gpt2) check_at_least_one("model.positions", spec.positions);
}

void check_heads(const ModelSpec& spec) {
  if (spec.head_size > std::numeric_limits<std::int32_t>::max() / spec.heads) {
    fail(ExitCode::bad_input, "model.heads x model.head_size = {} x {} is beyond {}; lower one", spec.heads,
         spec.head_size, std::numeric_limits<std::int32_t>::max());
  }
  if (spec.heads % spec.kv_heads != 0) {
    fail(ExitCode::bad_input,
         "model.heads = {} is no multiple of model.kv_heads = {}; each key head serves the same "
         "number of query heads",
         spec.heads, spec.kv_heads);
  }
  if (spec.family == Family::gpt2 && spec.kv_heads != spec.heads) {
    fail(ExitCode::bad_input,
         "model.kv_heads = {} differs from model.heads = {}; family gpt2 has no grouped-query "
         "attention: leave kv_heads out or use family llama",
         spec.kv_heads, spec.heads);
  }
  if (spec.family == Family::llama && spec.head_size % 2 != 0) {
    fail(ExitCode::bad_input,
         "model.head_size = {} is odd; rotary positions turn pairs: choose hidden and heads so that "
         "hidden / heads is even",
         spec.head_size);
  }
}

void check_experts(const ModelSpec& spec) {
  if (spec.experts < 0) fail(ExitCode::bad_input, "model.experts is {}; it must be at least 0", spec.experts);
  if (!spec.is_mixture() && spec.active_experts != 0) {
    fail(ExitCode::bad_input, "model.active_experts is {}, but there are no experts: give model.experts",
         spec.active_experts);
  }
  if (spec.is_mixture() && (spec.active_experts < 1 || spec.active_experts > spec.experts)) {
    fail(ExitCode::bad_input, "model.active_experts is {}; it must be from 1 to model.experts = {}",
         spec.active_experts, spec.experts);
  }
  if (spec.is_mixture() && spec.family == Family::gpt2) {
    fail(ExitCode::bad_input, "model.experts is {}, but family gpt2 has none: use family llama", spec.experts);
  }
}

void check_constants(const ModelSpec& spec) {
  if (!std::isfinite(spec.norm_epsilon) || spec.norm_epsilon <= 0) {
    fail(ExitCode::bad_input, "model.norm_epsilon is {}; it must be above 0", spec.norm_epsilon);
  }
  if (spec.family == Family::llama && (!std::isfinite(spec.rope_theta) || spec.rope_theta <= 0)) {
    fail(ExitCode::bad_input, "model.rope_theta is {}; it must be above 0", spec.rope_theta);
  }
}

}  // namespace

void check(const ModelSpec& spec) {
  check_sizes(spec);
  check_heads(spec);
  check_experts(spec);
  check_constants(spec);
}

}  // namespace penstock
