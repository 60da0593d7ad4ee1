// SPDX-License-Identifier: Apache-2.0
#include "cost/stage_seconds.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr std::array<WorkPart, 3> all_parts{WorkPart::forward, WorkPart::input_gradient, WorkPart::weight_gradient};

template <class Enumeration>
std::size_t place(Enumeration value) {
  return static_cast<std::size_t>(value);
}

}  // namespace

StageSeconds::StageSeconds(const CostShape& shape, const HardwareOptions& hardware, const Links& links)
    : shape_{shape}, hardware_{hardware}, links_{links} {
  const SequenceCut cut = shape.cut();
  for (const Slice slice : all<Slice>(shape.slices)) {
    ranges_.push_back(cut.slice(slice));
    const std::int64_t tokens = ranges_.back().count;
    if (lengths_.count(tokens) == 0) lengths_.emplace(tokens, of_length(tokens));
  }
  const ExchangeRule rule = exchange_rule(shape.exchange, shape.exchange_grain);
  if (rule.shares()) {
    lockstep_.emplace(rule, unit_of(Stage{0}, Slice{0}), cut);
    return;
  }
  for (const WorkPart part : all_parts) {
    for (const Slice slice : all<Slice>(shape.slices)) {
      by_slice_[place(part)].push_back(layer_seconds(part, slice, alone(slice)));
    }
  }
}

BalancedAttention StageSeconds::alone(Slice slice) const {
  const TokenRange& range = ranges_[static_cast<std::size_t>(slice.value())];
  return {static_cast<double>(range.begin) / static_cast<double>(range.count) + 0.5, 0};
}

StageSeconds::OfLength StageSeconds::of_length(std::int64_t tokens) const {
  OfLength result{.shape = shape_.of_length(tokens)};
  const CostShape& shape = result.shape;
  const double share = shape.vocabulary_share();
  for (const WorkPart part : all_parts) {
    result.layer[place(part)] = seconds_of(layer_work(shape, part));
    result.embedding[place(part)] = seconds_of(embedding_work(shape, part, share));
    result.head[place(part)] = seconds_of(head_work(shape, part, share)) + vocabulary_collectives(shape, links_, part);
  }
  for (const auto& [mode, name] : enum_names(Recompute{})) {
    result.again[place(mode)] = seconds_of(work_again(shape, mode));
  }
  return result;
}

const StageSeconds::OfLength& StageSeconds::length_of(Slice slice) const {
  return lengths_.at(ranges_[static_cast<std::size_t>(slice.value())].count);
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

Seconds StageSeconds::attention_seconds(const CostShape& shape, WorkPart part, double length) const {
  if (part == WorkPart::weight_gradient) return {};
  const AttentionFigures& figures = hardware_.attention;
  const AttentionWork work = attention_work(shape, length, part, figures.fused);
  const double queries = shape.tokens_of_sequence();
  const double size = std::cbrt(queries * queries * shape_.model.head_size);  // of a product without a fused kernel
  const double efficiency = !figures.fused              ? efficiency_at(hardware_.products, size)
                            : part == WorkPart::forward ? *figures.forward
                                                        : *figures.backward;
  return {work.flops.value / (hardware_.products.peak * efficiency) +
          work.traffic / static_cast<double>(hardware_.device.bandwidth.value)};
}

Seconds StageSeconds::layer_seconds(WorkPart part, Slice slice, const BalancedAttention& attention) const {
  const OfLength& own = length_of(slice);
  const TokenRange& range = ranges_[static_cast<std::size_t>(slice.value())];
  return own.layer[place(part)] + attention_seconds(own.shape, part, attention.length) +
         exchange_collectives(own.shape, links_, part, attention.exchanged) +
         layer_collectives(own.shape, links_, part,
                           static_cast<double>(range.end()) / static_cast<double>(range.count));
}

Seconds StageSeconds::ends_seconds(WorkPart part, Stage stage, std::int32_t stages, Slice slice) const {
  const std::int32_t sharers = shape_.vocabulary_sharers();
  const OfLength& own = length_of(slice);
  Seconds seconds;
  if (stage.value() < sharers) seconds += own.embedding[place(part)];
  if (stage.value() + sharers >= stages) seconds += own.head[place(part)];
  return seconds;
}

Seconds StageSeconds::of(WorkPart part, const PerStage<LayerRange>& stages, Stage stage, Slice slice) const {
  const auto of_layer = [&](WorkPart of_part) {
    return !lockstep_ ? by_slice_[place(of_part)][static_cast<std::size_t>(slice.value())]
                      : layer_seconds(of_part, slice, lockstep_->of(unit_of(stage, slice)));
  };
  Seconds layer = of_layer(part);
  if (part == WorkPart::input_gradient) {
    const Recompute recompute = shape_.recompute_of(stage);
    const OfLength& own = length_of(slice);
    layer += own.again[place(recompute)];
    // Its attention, and what the devices of a rank exchange for it; other ranks have no part in it.
    if (recompute == Recompute::layers) {
      layer += layer_seconds(WorkPart::forward, slice, alone(slice)) - own.layer[place(WorkPart::forward)];
    }
  }
  return layer * stages[stage].size() + ends_seconds(part, stage, stages.size(), slice);
}

}  // namespace penstock
