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
  const double share = shape.vocabulary_parallel ? 1.0 / shape.pipeline : 1;
  for (const WorkPart part : all_parts) {
    layer_[place(part)] = seconds_of(layer_work(shape, part));
    embedding_[place(part)] = seconds_of(embedding_work(shape, part, share));
    head_[place(part)] = seconds_of(head_work(shape, part, share)) + vocabulary_collectives(shape, links, part);
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

Seconds StageSeconds::attention_seconds(WorkPart part, Stage stage, Slice slice) const {
  if (part == WorkPart::weight_gradient) return {};
  const LockstepUnit unit{.ranks = shape_.pipeline,
                          .virtual_stages = shape_.forward_stages.size() / shape_.pipeline,
                          .slices = shape_.slices,
                          .rank = stage.value() % shape_.pipeline,
                          .chunk = stage.value() / shape_.pipeline,
                          .slice = slice.value()};
  const BalancedAttention balanced = balanced_attention(shape_.exchange, unit);
  const AttentionFigures& figures = hardware_.attention;
  const AttentionWork work = attention_work(shape_, balanced.length, part, figures.fused);
  const double size_of_slice = double{1} * shape_.sequence / shape_.slices;
  const double efficiency =
      figures.fused
          ? (part == WorkPart::forward ? *figures.forward : *figures.backward)
          : efficiency_at(hardware_.products, std::cbrt(size_of_slice * size_of_slice * shape_.model.head_size));
  return Seconds{work.flops.value / (hardware_.products.peak * efficiency) +
                 work.traffic / static_cast<double>(hardware_.device.bandwidth.value)} +
         exchange_collectives(shape_, links_, part, balanced.exchanged);
}

Seconds StageSeconds::ends_seconds(WorkPart part, Stage stage, std::int32_t stages) const {
  const std::int32_t sharers = shape_.vocabulary_parallel ? shape_.pipeline : 1;
  Seconds seconds;
  if (stage.value() < sharers) seconds += embedding_[place(part)];
  if (stage.value() + sharers >= stages) seconds += head_[place(part)];
  return seconds;
}

Seconds StageSeconds::of(WorkPart part, const PerStage<LayerRange>& stages, Stage stage, Slice slice) const {
  Seconds layer = layer_[place(part)] + attention_seconds(part, stage, slice);
  layer += layer_collectives(shape_, links_, part, slice);
  if (part == WorkPart::input_gradient && shape_.recompute_of(stage) == Recompute::selective) layer += selective_;
  return scaled(layer, stages[stage].size()) + ends_seconds(part, stage, stages.size());
}

}  // namespace penstock
