// SPDX-License-Identifier: Apache-2.0
#include "cost/stage_seconds.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr std::array<WorkPart, 3> all_parts{WorkPart::forward, WorkPart::input_gradient, WorkPart::weight_gradient};

std::size_t place(WorkPart part) {
  return static_cast<std::size_t>(part);
}

Seconds scaled(Seconds seconds, double factor) {
  return {seconds.value * factor};
}

}  // namespace

StageSeconds::StageSeconds(const CostShape& shape, const HardwareOptions& hardware, const Links& links)
    : shape_{shape}, hardware_{hardware}, links_{links}, selective_{seconds_of(selective_work(shape))} {
  const double share = shape.vocabulary_share();
  const ExchangeRule rule = exchange_rule(shape.exchange, shape.exchange_grain);
  if (rule.shares()) lockstep_.emplace(rule, unit_of(Stage{0}, Slice{0}));
  for (const WorkPart part : all_parts) {
    layer_[place(part)] = seconds_of(layer_work(shape, part));
    embedding_[place(part)] = seconds_of(embedding_work(shape, part, share));
    head_[place(part)] = seconds_of(head_work(shape, part, share)) + vocabulary_collectives(shape, links, part);
    if (lockstep_) continue;
    for (const Slice slice : all<Slice>(shape.slices)) {
      by_slice_[place(part)].push_back(layer_seconds(part, slice, {slice.value() + 0.5, 0}));
    }
  }
}

Seconds StageSeconds::seconds_of(const Product& product) const {
  const double size = std::cbrt(product.rows * product.columns * product.inner);
  const double compute = product.flops().value / (hardware_.products.peak * efficiency_at(hardware_.products, size));
  const double moved = product.count * product.bytes(storage_bytes(shape_.model.precision));
  return {std::max(compute, moved / static_cast<double>(hardware_.device.bandwidth.value))};
}

Seconds StageSeconds::seconds_of(const Work& work) const {
  Seconds sum{work.traffic / static_cast<double>(hardware_.device.bandwidth.value)};
  for (const Product& product : work.products) sum += seconds_of(product);
  return sum;
}

LockstepUnit StageSeconds::unit_of(Stage stage, Slice slice) const {
  return {.ranks = shape_.pipeline,
          .virtual_stages = shape_.forward_stages.size() / shape_.pipeline,
          .slices = shape_.slices,
          .rank = stage.value() % shape_.pipeline,
          .chunk = stage.value() / shape_.pipeline,
          .slice = slice.value()};
}

Seconds StageSeconds::attention_seconds(WorkPart part, double length) const {
  if (part == WorkPart::weight_gradient) return {};
  const AttentionFigures& figures = hardware_.attention;
  const AttentionWork work = attention_work(shape_, length, part, figures.fused);
  const double queries = double{1} * shape_.sequence / shape_.slices;
  const double size = std::cbrt(queries * queries * shape_.model.head_size);  // of a product without a fused kernel
  const double efficiency = !figures.fused              ? efficiency_at(hardware_.products, size)
                            : part == WorkPart::forward ? *figures.forward
                                                        : *figures.backward;
  return {work.flops.value / (hardware_.products.peak * efficiency) +
          work.traffic / static_cast<double>(hardware_.device.bandwidth.value)};
}

Seconds StageSeconds::layer_seconds(WorkPart part, Slice slice, const BalancedAttention& attention) const {
  return layer_[place(part)] + attention_seconds(part, attention.length) +
         exchange_collectives(shape_, links_, part, attention.exchanged) +
         layer_collectives(shape_, links_, part, slice);
}

Seconds StageSeconds::ends_seconds(WorkPart part, Stage stage, std::int32_t stages) const {
  const std::int32_t sharers = shape_.vocabulary_sharers();
  Seconds seconds;
  if (stage.value() < sharers) seconds += embedding_[place(part)];
  if (stage.value() + sharers >= stages) seconds += head_[place(part)];
  return seconds;
}

Seconds StageSeconds::of(WorkPart part, const PerStage<LayerRange>& stages, Stage stage, Slice slice) const {
  const auto of_layer = [&](WorkPart of_part) {
    return !lockstep_ ? by_slice_[place(of_part)][static_cast<std::size_t>(slice.value())]
                      : layer_seconds(of_part, slice, lockstep_->of(unit_of(stage, slice)));
  };
  Seconds layer = of_layer(part);
  if (part == WorkPart::input_gradient && shape_.recompute_of(stage) == Recompute::selective) layer += selective_;
  if (part == WorkPart::input_gradient && shape_.recompute_of(stage) == Recompute::layers) {
    layer += of_layer(WorkPart::forward);
  }
  return scaled(layer, stages[stage].size()) + ends_seconds(part, stage, stages.size());
}

}  // namespace penstock
