// SPDX-License-Identifier: Apache-2.0
#include "config/deck.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"
#include "data/tokenizer.hpp"

namespace penstock {
namespace {

std::int32_t vocabulary_of(const std::string& tokenizer) {
  const auto vocabulary = make_tokenizer(tokenizer)->vocabulary();
  if (!vocabulary) fail(ExitCode::bad_input, "data.tokenizer {} has no vocabulary: give model.vocabulary", tokenizer);
  return *vocabulary;
}

/// The widths that the families' authors chose: 4 x hidden, or 2/3 of that for the three matrices of SwiGLU.
std::int32_t usual_ffn(Family family, std::int64_t hidden) {
  if (family == Family::gpt2) return static_cast<std::int32_t>(4 * hidden);
  return static_cast<std::int32_t>(round_up(divide_up(8 * hidden, 3), 32));
}

void resolve_model(ModelOptions& model, const Deck& deck) {
  model.kv_heads = model.kv_heads.value_or(model.heads);
  model.head_size = model.head_size.value_or(std::max(1, model.hidden / model.heads));
  model.ffn = model.ffn.value_or(usual_ffn(model.family, model.hidden));
  if (!model.vocabulary) model.vocabulary = vocabulary_of(deck.data.tokenizer);
  if (model.family == Family::gpt2) model.positions = model.positions.value_or(deck.training.sequence);
}

void resolve_learning_rate(LearningRateOptions& rate, std::int64_t steps) {
  if (rate.decay != Decay::wsd) return;
  rate.decay_steps = rate.decay_steps.value_or(static_cast<std::int32_t>(divide_up(steps, 5)));
}

}  // namespace

Deck resolved(Deck deck) {
  resolve_model(deck.model, deck);
  resolve_learning_rate(deck.training.optimizer.learning_rate, deck.training.steps);
  deck.model.preset.reset();  // its values stand there, some of them replaced: read back, it would replace those
  return deck;
}

ModelSpec model_spec(const Deck& deck) {
  const ModelOptions model = resolved(deck).model;
  return {.family = model.family,
          .layers = model.layers,
          .hidden = model.hidden,
          .heads = model.heads,
          .kv_heads = *model.kv_heads,
          .head_size = *model.head_size,
          .ffn = *model.ffn,
          .experts = model.experts,
          .active_experts = model.active_experts,
          .vocabulary = *model.vocabulary,
          .positions = model.positions.value_or(deck.training.sequence),
          .tie_embeddings = model.tie_embeddings,
          .norm_epsilon = model.norm_epsilon,
          .rope_theta = model.rope_theta,
          .precision = model.precision};
}

std::int32_t world_size(const Deck& deck) {
  return deck.parallel.pipeline * deck.parallel.data;
}

std::int32_t stage_count(const Deck& deck) {
  return deck.parallel.pipeline * deck.schedule.virtual_stages;
}

std::int32_t micro_batches(const Deck& deck) {
  const std::int64_t at_once = std::int64_t{deck.training.micro_batch} * deck.parallel.data;
  return static_cast<std::int32_t>(deck.training.global_batch / at_once);
}

std::int64_t tokens_per_step(const Deck& deck) {
  return std::int64_t{deck.training.global_batch} * deck.training.sequence;
}

}  // namespace penstock
