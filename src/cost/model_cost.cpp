// SPDX-License-Identifier: Apache-2.0
#include "cost/model_cost.hpp"

#include <utility>

#include "base/error.hpp"
#include "model/parameters.hpp"

namespace penstock {
namespace {

constexpr double sum_bytes = 8;     // an fp32 weight gradient, read and written
constexpr double logits_bytes = 4;  // fp32

bool is_gated(const ModelSpec& model) {
  return model.family == Family::llama;
}

/// Feed-forward layers that a token goes through.
double feed_forwards(const ModelSpec& model) {
  return model.is_mixture() ? model.active_experts : 1;
}

/// The products that make the inputs of the activation: gate and up as one.
Product first_feed_forward(const CostShape& shape) {
  const ModelSpec& model = shape.model;
  Product product{.rows = shape.tokens(),
                  .columns = (is_gated(model) ? 2.0 : 1.0) * model.ffn / shape.tensor,
                  .inner = double{1} * model.hidden};
  if (model.is_mixture()) {
    // The tokens of `expert` devices meet at the experts of one.
    product.rows = shape.tokens() * shape.expert * model.active_experts / model.experts;
    product.count = double{1} * model.experts / shape.expert;
  }
  return product;
}

Product second_feed_forward(const CostShape& shape) {
  Product product = first_feed_forward(shape);
  product.columns = shape.model.hidden;
  product.inner = double{1} * shape.model.ffn / shape.tensor;
  return product;
}

/// The products that make `width` numbers of queries, keys and values.
Product projection(const CostShape& shape, double width) {
  return {.rows = shape.tokens(), .columns = width / shape.tensor, .inner = double{1} * shape.model.hidden};
}

Product attention_output(const CostShape& shape) {
  return {.rows = shape.tokens(),
          .columns = double{1} * shape.model.hidden,
          .inner = double{1} * shape.model.query_width() / shape.tensor};
}

Product router(const CostShape& shape) {
  return {.rows = shape.tokens() / shape.tensor,
          .columns = double{1} * shape.model.experts,
          .inner = double{1} * shape.model.hidden};
}

std::vector<Product> forward_products(const CostShape& shape) {
  const ModelSpec& model = shape.model;
  std::vector<Product> products{projection(shape, model.query_width() + 2.0 * model.kv_width()),
                                attention_output(shape), first_feed_forward(shape), second_feed_forward(shape)};
  if (model.is_mixture()) products.push_back(router(shape));
  return products;
}

/// The product of the same layer for another part, from that of the forward pass.
Product transposed(const Product& forward, WorkPart part) {
  switch (part) {
    case WorkPart::forward:
      return forward;
    case WorkPart::input_gradient:
      return {forward.rows, forward.inner, forward.columns, forward.count};
    case WorkPart::weight_gradient:
      return {forward.columns, forward.inner, forward.rows, forward.count, sum_bytes};
  }
  fail(ExitCode::internal, "cost: no such part of the work");
}

// Numbers per token that elementwise operations of a layer read and write.

double rotary_elements(const ModelSpec& model, double width) {
  return is_gated(model) ? 2 * width : 0;
}

double activation_elements(const ModelSpec& model) {
  return (is_gated(model) ? 3.0 : 2.0) * model.ffn * feed_forwards(model);
}

/// Dispatch and combine.
double routing_elements(const ModelSpec& model) {
  return model.is_mixture() ? 2.0 * (model.active_experts + 1) * model.hidden : 0;
}

double elements_per_token(const ModelSpec& model, WorkPart part) {
  const double hidden = model.hidden;
  const double rotary = rotary_elements(model, model.query_width() + model.kv_width());
  const double activation = activation_elements(model);
  const double routing = routing_elements(model);
  switch (part) {
    case WorkPart::forward:  // two norms (2 each), two residual adds (3 each)
      return 10 * hidden + rotary + activation + routing;
    case WorkPart::input_gradient: {  // two norms (3 each), two adds of gradients (3 each)
      const double gradient = (is_gated(model) ? 5.0 : 3.0) * model.ffn * feed_forwards(model);
      return 12 * hidden + rotary + gradient + routing;
    }
    case WorkPart::weight_gradient:  // those of the norms
      return 4 * hidden;
  }
  fail(ExitCode::internal, "cost: no such part of the work");
}

double share_of_tokens(const CostShape& shape) {
  return shape.tokens() / shape.tensor;
}

}  // namespace

Flops Work::flops() const {
  Flops sum;
  for (const Product& product : products) sum = sum + product.flops();
  return sum;
}

Work layer_work(const CostShape& shape, WorkPart part) {
  Work work;
  for (const Product& forward : forward_products(shape)) work.products.push_back(transposed(forward, part));
  work.traffic = share_of_tokens(shape) * elements_per_token(shape.model, part) * storage_bytes(shape.model.precision);
  return work;
}

Work work_again(const CostShape& shape, Recompute recompute) {
  const ModelSpec& model = shape.model;
  const double hidden = model.hidden;
  const double queries = model.query_width();
  const auto work = [&](std::vector<Product> products, double elements) {
    return Work{std::move(products), share_of_tokens(shape) * elements * storage_bytes(model.precision)};
  };
  switch (recompute) {
    case Recompute::none:
    case Recompute::full:
      return {};
    case Recompute::attention:
      return work({projection(shape, queries)}, 2 * hidden + rotary_elements(model, queries));
    case Recompute::selective:
      return work({first_feed_forward(shape)}, activation_elements(model));
    case Recompute::layers: {
      const double keys = keeps_keys_and_values(shape, recompute) ? 0 : model.kv_width();
      std::vector<Product> products{projection(shape, queries + 2 * keys), attention_output(shape),
                                    first_feed_forward(shape)};
      if (model.is_mixture()) products.push_back(router(shape));
      // Two norms and one residual add.
      return work(std::move(products), 7 * hidden + rotary_elements(model, queries + keys) +
                                           activation_elements(model) + routing_elements(model));
    }
  }
  fail(ExitCode::internal, "cost: no such way to recompute");
}

Work embedding_work(const CostShape& shape, WorkPart part, double share) {
  const double tables = shape.model.family == Family::gpt2 ? 2 : 1;
  const double element = storage_bytes(shape.model.precision);
  const double elements = share_of_tokens(shape) * shape.model.hidden * share;
  switch (part) {
    case WorkPart::forward:
      return {{}, elements * (tables + 1) * element};
    case WorkPart::input_gradient:
      return {};
    case WorkPart::weight_gradient:
      return {{}, elements * tables * (element + sum_bytes)};
  }
  fail(ExitCode::internal, "cost: no such part of the work");
}

Work head_work(const CostShape& shape, WorkPart part, double share) {
  const ModelSpec& model = shape.model;
  const double element = storage_bytes(model.precision);
  const Product forward{.rows = shape.tokens(),
                        .columns = share * model.vocabulary / shape.tensor,
                        .inner = double{1} * model.hidden,
                        .output_bytes = logits_bytes};
  const double logits = forward.rows * forward.columns;
  const double stream = share_of_tokens(shape) * model.hidden * share * element;
  switch (part) {
    case WorkPart::forward:  // the norm; the loss reads the logits
      return {{forward}, 2 * stream + logits_bytes * logits};
    case WorkPart::input_gradient:  // the norm; from logits to their gradient
      return {{transposed(forward, part)}, 3 * stream + (logits_bytes + element) * logits};
    case WorkPart::weight_gradient:
      return {{transposed(forward, part)}, 2 * stream};
  }
  fail(ExitCode::internal, "cost: no such part of the work");
}

std::vector<Product> weight_gradient_products(const CostShape& shape, Stage stage) {
  std::vector<Product> products;
  if (stage.value() + shape.vocabulary_sharers() >= shape.backward().size()) {
    products = head_work(shape, WorkPart::weight_gradient, shape.vocabulary_share()).products;
  }
  const auto layer = layer_work(shape, WorkPart::weight_gradient).products;
  for (std::int32_t number = 0; number < shape.backward()[stage].size(); ++number) {
    products.insert(products.end(), layer.rbegin(), layer.rend());
  }
  return products;
}

AttentionWork attention_work(const CostShape& shape, double length, WorkPart part, bool fused) {
  if (part == WorkPart::weight_gradient) return {};
  const double slice = shape.tokens_of_sequence();
  const double keys = slice * (fused ? length : length + 0.5);
  const double scores = shape.micro_batch * slice * keys / shape.devices();  // of one head
  const double forward = 4.0 * shape.model.query_width() * scores;
  const bool is_forward = part == WorkPart::forward;
  if (fused) return {{is_forward ? forward : 2.5 * forward}, 0};
  const double moves = is_forward ? 4 : 7;
  return {{is_forward ? forward : 2 * forward},
          moves * scores * shape.model.heads * storage_bytes(shape.model.precision)};
}

Flops model_flops(const CostShape& shape, std::int32_t micro_batches) {
  const double sequences = double{1} * shape.micro_batch * micro_batches * shape.data;
  return {training_flops_per_token(shape.model, shape.sequence) * shape.sequence * sequences};
}

double model_flops_utilization(const CostShape& shape, std::int32_t micro_batches, Seconds step, double peak) {
  const double devices = double{1} * shape.pipeline * shape.devices() * shape.data;
  return model_flops(shape, micro_batches).value / (step.value * devices * peak);
}

}  // namespace penstock
