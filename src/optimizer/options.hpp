// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/describe.hpp"

namespace penstock {

/// The course of the learning rate after its warm-up.
enum class Decay : std::uint8_t {
  cosine,    ///< half a cosine from peak to minimum at the last step
  linear,    ///< a straight line from peak to minimum at the last step
  constant,  ///< peak
  wsd        ///< warm-up, stable, decay: peak, then a straight line to minimum over the last decay_steps
};

constexpr std::array<EnumName<Decay>, 4> enum_names(Decay) {
  return {{{Decay::cosine, "cosine"}, {Decay::linear, "linear"}, {Decay::constant, "constant"}, {Decay::wsd, "wsd"}}};
}

/// When the optimizer's steps are taken, against the global gradient norm that clipping needs.
enum class ClipMode : std::uint8_t {
  exact,       ///< steps wait for the norm
  speculative  ///< steps are taken as if it were below the bound, and taken back where it is not
};

constexpr std::array<EnumName<ClipMode>, 2> enum_names(ClipMode) {
  return {{{ClipMode::exact, "exact"}, {ClipMode::speculative, "speculative"}}};
}

/// What happens at a step whose loss or gradients are not finite.
enum class NonFinite : std::uint8_t {
  stop,  ///< the run ends with exit code 5
  skip   ///< weights and moments stay as they are, the run goes on
};

constexpr std::array<EnumName<NonFinite>, 2> enum_names(NonFinite) {
  return {{{NonFinite::stop, "stop"}, {NonFinite::skip, "skip"}}};
}

struct LearningRateOptions {
  double peak = 3e-4;
  std::int32_t warmup = 0;  ///< steps from 0 to peak
  Decay decay = Decay::cosine;
  double minimum = 0.0;
  std::optional<std::int32_t> decay_steps;  ///< of wsd; a fifth of the steps, rounded up, when absent
  friend bool operator==(const LearningRateOptions&, const LearningRateOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, LearningRateOptions& options) {
  visit("peak", options.peak,
        {.help = "highest learning rate, reached at the end of the warm-up", .range = at_least(0)});
  visit("warmup", options.warmup,
        {.help = "steps from 0 to peak, in a straight line", .unit = "steps", .range = at_least(0)});
  visit("decay", options.decay,
        {.help = "course after the warm-up: cosine or linear to minimum at the last step, constant, or wsd (peak, then "
                 "linear to minimum over the last decay_steps)"});
  visit("minimum", options.minimum, {.help = "learning rate at the last step", .range = at_least(0)});
  visit("decay_steps", options.decay_steps,
        {.help = "length of wsd's final decay",
         .unit = "steps",
         .range = at_least(1),
         .when_absent = "a fifth of training.steps"});
}

/// AdamW and what stands before it: the keys of `training` that the optimizer reads.
struct OptimizerOptions {
  LearningRateOptions learning_rate;
  std::array<double, 2> betas{0.9, 0.95};
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;  ///< bound of the global gradient norm; 0: none
  ClipMode clip_mode = ClipMode::exact;
  NonFinite non_finite = NonFinite::stop;
  friend bool operator==(const OptimizerOptions&, const OptimizerOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, OptimizerOptions& options) {
  visit("learning_rate", options.learning_rate, {.help = "the learning rate's course over the steps"});
  visit("betas", options.betas, {.help = "decay of AdamW's two moments", .range = from_up_to_below(0, 1)});
  visit("epsilon", options.epsilon, {.help = "added to the root of AdamW's second moment", .range = more_than(0)});
  visit("weight_decay", options.weight_decay,
        {.help = "decay of matrices, decoupled; norms and biases have none", .range = at_least(0)});
  visit("clip", options.clip, {.help = "bound of the global gradient norm; 0: none", .range = at_least(0)});
  visit(
      "clip_mode", options.clip_mode,
      {.help = "exact: a step waits for the global norm; speculative: a stage is stepped once its gradients are "
               "there, as if the norm were below the bound, and the step is taken back and repeated (memory.rollback) "
               "where it is not"});
  visit("non_finite", options.non_finite,
        {.help = "when the loss or a gradient is not finite: stop (exit code 5) or skip the step"});
}

}  // namespace penstock
