// SPDX-License-Identifier: Apache-2.0
#include "cost/stage_sizes.hpp"

#include <algorithm>
#include <cmath>

#include "model/parameters.hpp"

namespace penstock {
namespace {

Bytes bytes(double value) {
  return {static_cast<std::int64_t>(std::ceil(value))};
}

/// Vectors of the feed-forward width between its two products: gate, up and their product, or the inputs of GELU and of
/// the last product.
double feed_forward_numbers(const ModelSpec& model) {
  const double vectors = model.family == Family::llama ? 3 : 2;
  return vectors * model.ffn * (model.is_mixture() ? model.active_experts : 1);
}

/// Gradients at the outputs of the products into the feed-forward width.
double feed_forward_gradients(const ModelSpec& model) {
  const double vectors = model.family == Family::llama ? 2 : 1;
  return vectors * model.ffn * (model.is_mixture() ? model.active_experts : 1);
}

/// The sizes of one stage of each pass.
class StageSizer {
 public:
  explicit StageSizer(const CostShape& shape)
      : shape_{shape},
        model_{shape.model},
        element_{storage_bytes(model_.precision)},
        tokens_{shape.tokens() / shape.tensor},
        stream_{bytes(tokens_ * model_.hidden * element_)} {}

  void add_forward(StageBytes& sizes, Stage stage, double parameters) const {
    const bool is_end = is_first(stage) || stage.value() + 1 == shape_.forward_stages.size();
    at(sizes, BufferKind::parameters) = bytes(parameters * element_);
    at(sizes, BufferKind::input) = stream_;
    at(sizes, BufferKind::output) = stream_;
    at(sizes, BufferKind::key_values) = bytes(key_values(shape_.forward_stages[stage], element_));
    if (is_end) at(sizes, BufferKind::tokens) = token_bytes();
  }

  void add_backward(StageBytes& sizes, Stage stage, const StageParameters& parameters) const {
    const double kept = kept_bytes(stage);
    at(sizes, BufferKind::backward_parameters) = bytes(parameters.total() * element_);
    at(sizes, BufferKind::gradients) = bytes(parameters.total() * storage_bytes(shape_.gradients));
    at(sizes, BufferKind::optimizer_states) = bytes(optimizer_states(parameters));
    if (is_first(stage) || is_last(stage)) at(sizes, BufferKind::tokens) = token_bytes();
    at(sizes, BufferKind::output_gradient) = stream_;
    at(sizes, BufferKind::input_gradient) = stream_;
    at(sizes, BufferKind::checkpoint) = stream_;
    at(sizes, BufferKind::offloadable) = bytes(kept * shape_.offload_ratio);
    at(sizes, BufferKind::activations) = bytes(kept * (1 - shape_.offload_ratio));
    at(sizes, BufferKind::weight_operands) = bytes(operands(stage));
    at(sizes, BufferKind::key_value_gradients) = bytes(key_values(shape_.backward()[stage], 4));
    if (is_last(stage)) at(sizes, BufferKind::logits) = bytes(logits());
  }

  /// The larger of what a forward that keeps nothing and a backward put beside the buffers: two streams, and one layer
  /// or the head.
  Bytes workspace(Stage stage) const {
    const Recompute all = Recompute::none;
    const double forward = tokens_ * activation_bytes_per_token(model_, all);
    const double gradients = tokens_ * (operand_bytes_per_token(model_, all) +
                                        element_ * (feed_forward_numbers(model_) + model_.query_width()));
    const bool is_backward_stage = stage.value() < shape_.backward().size();
    const double backward = gradients + (is_backward_stage ? forward - kept_of_layer(shape_.recompute_of(stage)) : 0);
    return bytes(2.0 * static_cast<double>(stream_.value) + std::max({forward, backward, head_workspace(stage)}));
  }

 private:
  static Bytes& at(StageBytes& sizes, BufferKind kind) { return sizes[static_cast<std::size_t>(kind)]; }
  static bool is_first(Stage stage) { return stage.value() == 0; }
  bool is_last(Stage stage) const { return stage.value() + 1 == shape_.backward().size(); }
  bool has_head_share(Stage stage) const {
    const std::int32_t sharers = shape_.vocabulary_parallel ? shape_.pipeline : 1;
    return stage.value() + sharers >= shape_.backward().size();
  }

  /// The gradient of the logits; and the logits themselves where the forward keeps none.
  double head_workspace(Stage stage) const {
    const bool is_forward_end = stage.value() + 1 == shape_.forward_stages.size();
    const bool is_backward_stage = stage.value() < shape_.backward().size();
    const bool keeps_none =
        !shape_.backward_stages.empty() || (is_backward_stage && shape_.recompute_of(stage) == Recompute::full);
    if (is_forward_end && keeps_none) return logits();
    return is_backward_stage && has_head_share(stage) ? logits() / 4 * element_ : 0;
  }

  double logits() const {
    const double sharers = shape_.vocabulary_parallel ? shape_.pipeline : 1;
    return 4 * tokens_ * model_.vocabulary / sharers;
  }

  /// fp32 masters and both moments.
  double optimizer_states(const StageParameters& parameters) const {
    return shape_.optimizer == Place::device ? 12 * stepped_parameters(shape_, parameters) : 0;
  }

  /// Of one micro-batch: inputs of the first stage, targets of the last, of either pass.
  Bytes token_bytes() const { return bytes(4.0 * shape_.micro_batch * shape_.sequence / shape_.context); }

  /// The keys and values of a slice, or the sums of their gradients.
  double key_values(const LayerRange& layers, double element) const {
    return element * layers.size() * tokens_ * 2 * model_.kv_width();
  }

  double kept_of_layer(Recompute recompute) const {
    const bool adds_keys = recompute == Recompute::layers && keeps_keys_and_values(shape_, recompute);
    const double keys_and_values = adds_keys ? 2 * element_ * model_.kv_width() : 0;
    return tokens_ * (activation_bytes_per_token(model_, recompute) + keys_and_values);
  }

  double kept_bytes(Stage stage) const {
    double kept = shape_.backward()[stage].size() * kept_of_layer(shape_.recompute_of(stage));
    if (is_last(stage)) kept += 2 * tokens_ * model_.hidden * element_;  // the final norm's input and output
    if (!is_last(stage) && has_head_share(stage)) kept += logits();
    return kept;
  }

  double operands(Stage stage) const {
    const double layers = shape_.backward()[stage].size();
    const double logits_gradient = has_head_share(stage) ? logits() / 4 * element_ : 0;
    return layers * tokens_ * operand_bytes_per_token(model_, shape_.recompute_of(stage)) + logits_gradient;
  }

  const CostShape& shape_;
  const ModelSpec& model_;
  double element_;
  double tokens_;  ///< of a device's share of the stream
  Bytes stream_;
};

}  // namespace

double activation_bytes_per_token(const ModelSpec& model, Recompute recompute) {
  if (recompute == Recompute::layers) return model.hidden * storage_bytes(model.precision);
  double numbers = 4.0 * model.hidden + 2.0 * model.query_width() + 2.0 * model.kv_width();
  if (recompute == Recompute::attention) numbers -= 1.0 * model.hidden + model.query_width();
  if (recompute != Recompute::selective) numbers += feed_forward_numbers(model);
  return numbers * storage_bytes(model.precision);
}

double operand_bytes_per_token(const ModelSpec& model, Recompute recompute) {
  double numbers =
      2.0 * model.hidden + 1.0 * model.query_width() + 2.0 * model.kv_width() + feed_forward_gradients(model);
  const bool is_layers = recompute == Recompute::layers;
  // The normed input of queries, keys and values.
  if (is_layers || recompute == Recompute::attention) numbers += model.hidden;
  // What the last product of the feed-forward layer was given.
  if (is_layers || recompute == Recompute::selective) {
    numbers += feed_forward_numbers(model) - feed_forward_gradients(model);
  }
  // What attention gave, and the normed input of the feed-forward layer.
  if (is_layers) numbers += 1.0 * model.query_width() + model.hidden;
  return numbers * storage_bytes(model.precision);
}

double stepped_parameters(const CostShape& shape, const StageParameters& parameters) {
  return (parameters.dense + parameters.experts * shape.expert) / shape.copies();
}

PerStage<StageParameters> stage_parameters(const CostShape& shape, const PerStage<LayerRange>& stages) {
  const ParameterCounts counts = parameter_counts(shape.model);
  PerStage<StageParameters> parameters;
  for (const Stage stage : all<Stage>(stages.size())) {
    const bool is_first = stage.value() == 0;
    const bool is_last = stage.value() + 1 == stages.size();
    std::int64_t dense = stages[stage].size() * counts.layer;
    if (is_first && is_last) {
      dense += counts.first_and_last;
    } else {
      dense += is_first ? counts.first : is_last ? counts.last : 0;
    }
    const std::int64_t experts = stages[stage].size() * counts.layer_experts;
    parameters.push_back(
        {static_cast<double>(dense) / shape.tensor, static_cast<double>(experts) / shape.tensor / shape.expert});
  }
  return parameters;
}

PerStage<StageBytes> stage_bytes(const CostShape& shape) {
  const StageSizer sizer{shape};
  const auto forward = stage_parameters(shape, shape.forward_stages);
  const auto backward = stage_parameters(shape, shape.backward());
  PerStage<StageBytes> sizes{std::max(forward.size(), backward.size())};
  for (const Stage stage : all<Stage>(forward.size())) sizer.add_forward(sizes[stage], stage, forward[stage].total());
  for (const Stage stage : all<Stage>(backward.size())) {
    sizer.add_backward(sizes[stage], stage, backward[stage]);
  }
  for (const Stage stage : all<Stage>(sizes.size())) {
    sizes[stage][static_cast<std::size_t>(BufferKind::workspace)] = sizer.workspace(stage);
  }
  return sizes;
}

}  // namespace penstock
