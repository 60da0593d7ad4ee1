// SPDX-License-Identifier: Apache-2.0
#include "cost/prices.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "cost/collectives.hpp"
#include "cost/stage_seconds.hpp"
#include "cost/stage_sizes.hpp"
#include "schedule/semantics.hpp"
#include "schedule/weight_parts.hpp"

namespace penstock {
namespace {

/// What an optimizer step on the device moves for a parameter: the fp32 gradient, master and both moments read and
/// written, the working copy written.
constexpr double device_step_bytes = 4 + 3 * 8 + 2;

CostShape checked(CostShape shape) {
  check(shape);
  return shape;
}

Bytes size_of(const PerStage<StageBytes>& bytes, Stage stage, BufferKind kind) {
  return bytes[stage][static_cast<std::size_t>(kind)];
}

}  // namespace

std::int32_t common_layers(const CostShape& shape) {
  std::int32_t layers = 0;
  for (const auto* stages : {&shape.forward_stages, &shape.backward()}) {
    for (const LayerRange& range : *stages) layers = std::gcd(layers, range.end.value());
  }
  return layers;
}

CostModel::CostModel(CostShape shape, HardwareOptions hardware)
    : shape_{checked(std::move(shape))},
      hardware_{std::move(hardware)},
      links_{shape_, hardware_},
      bytes_{stage_bytes(shape_.of_length(shape_.cut().longest()))},
      message_{size_of(bytes_, Stage{0}, BufferKind::output)} {
  if (hardware_.unit) {
    fill_unit_prices();
  } else {
    fill_compute_prices();
    fill_host_prices();
    check_prices();
  }
}

void CostModel::check_prices() const {
  // Three thousand years: figures that give more for one action were meant in another unit.
  constexpr double longest = 1e11;
  for (std::size_t op = 0; op < prices_.size(); ++op) {
    for (const Seconds price : prices_[op]) {
      if (price.value >= 0 && price.value < longest) continue;
      fail(ExitCode::bad_input,
           "the figures of the hardware '{}' make one {} last {:.3g} s; look for one in a wrong unit", hardware_.name,
           name_of(static_cast<Op>(op)), price.value);
    }
  }
}

template <class TimeOf>
void CostModel::fill_weight_shares(const TimeOf& time_of) {
  for (const Stage stage : all<Stage>(shape_.backward().size())) {
    std::vector<double> sums{0};
    for (const Product& product : weight_gradient_products(shape_, stage)) {
      sums.push_back(sums.back() + time_of(product));
    }
    for (double& sum : sums) sum /= sums.back();
    weight_shares_.push_back(std::move(sums));
  }
}

Seconds CostModel::of_part(const Schedule& schedule, const Action& weight, Seconds whole) const {
  const std::int32_t parts = schedule.parts_of_weight(weight.stage);
  if (hardware_.unit) return {whole.value / parts};
  const auto& shares = weight_shares_[weight.stage];
  const ProductRange range = products_of_part(weight.part, parts, weight_products(weight.stage));
  return {whole.value * (shares[static_cast<std::size_t>(range.end)] - shares[static_cast<std::size_t>(range.begin)])};
}

void CostModel::fill_unit_prices() {
  fill_weight_shares([](const Product&) { return 1.0; });
  const std::int32_t block = common_layers(shape_);
  const auto fill = [&](Op op, const PerStage<LayerRange>& stages, double unit) {
    for (const LayerRange& range : stages) {
      of(op).insert(of(op).end(), static_cast<std::size_t>(shape_.slices), Seconds{unit * range.size() / block});
    }
  };
  fill(Op::forward, shape_.forward_stages, 1);
  fill(Op::recompute, shape_.backward(), 1);
  fill(Op::backward, shape_.backward(), 2);
  fill(Op::backward_input, shape_.backward(), 1);
  fill(Op::backward_weight, shape_.backward(), 1);
  for (const Op op : {Op::fetch_forward, Op::fetch_backward, Op::offload_gradients, Op::offload_activations,
                      Op::reload_activations, Op::reduce, Op::step}) {
    of(op).assign(static_cast<std::size_t>(bytes_.size()), Seconds{0});
  }
}

void CostModel::fill_compute_prices() {
  const StageSeconds seconds{shape_, hardware_, links_};
  fill_weight_shares([&](const Product& product) { return seconds.seconds_of(product).value; });
  const Seconds latency = hardware_.device.launch_latency;
  for (const Stage stage : all<Stage>(shape_.forward_stages.size())) {
    for (const Slice slice : all<Slice>(shape_.slices)) {
      of(Op::forward).push_back(latency + seconds.of(WorkPart::forward, shape_.forward_stages, stage, slice));
    }
  }
  for (const Stage stage : all<Stage>(shape_.backward().size())) {
    for (const Slice slice : all<Slice>(shape_.slices)) {
      const Seconds input = seconds.of(WorkPart::input_gradient, shape_.backward(), stage, slice);
      const Seconds weight = seconds.of(WorkPart::weight_gradient, shape_.backward(), stage, slice);
      of(Op::recompute).push_back(latency + seconds.of(WorkPart::forward, shape_.backward(), stage, slice));
      of(Op::backward).push_back(latency + input + weight);
      of(Op::backward_input).push_back(latency + input);
      of(Op::backward_weight).push_back(latency + weight);
    }
  }
}

void CostModel::fill_host_prices() {
  const auto parameters = stage_parameters(shape_, shape_.backward());
  const auto copy = [&](Op op, Stage stage, BufferKind kind, Lane lane) {
    of(op).push_back(links_.copy_seconds(lane, size_of(bytes_, stage, kind)));
  };
  for (const Stage stage : all<Stage>(bytes_.size())) {
    copy(Op::fetch_forward, stage, BufferKind::parameters, Lane::to_device);
    copy(Op::fetch_backward, stage, BufferKind::backward_parameters, Lane::to_device);
    copy(Op::offload_activations, stage, BufferKind::offloadable, Lane::to_host);
    copy(Op::reload_activations, stage, BufferKind::offloadable, Lane::to_device);
    copy(Op::offload_gradients, stage, BufferKind::gradients, Lane::to_host);
  }
  for (const Stage stage : all<Stage>(shape_.backward().size())) {
    const double count = parameters[stage].total();
    const double stepped = stepped_parameters(shape_, parameters[stage]);
    const double working_copy = count * storage_bytes(shape_.model.precision);
    const double seconds = shape_.optimizer == Place::host
                               ? stepped / hardware_.node.optimizer_rate
                               : stepped * device_step_bytes / static_cast<double>(hardware_.device.bandwidth.value);
    of(Op::reduce).push_back(ring_half(shape_, links_, storage_bytes(shape_.gradients) * count));
    of(Op::step).push_back(Seconds{seconds} + ring_half(shape_, links_, working_copy));
  }
}

Seconds CostModel::decoupled_fetch(const Schedule& schedule, const ActionOnRank& node) const {
  const LayerRange& wanted = shape_.forward_stages[node.action.stage];
  const auto bytes = static_cast<double>(size_of(bytes_, node.action.stage, BufferKind::parameters).value);
  double of_other_nodes = 0;
  for (const Stage owned : all<Stage>(shape_.backward().size())) {
    const LayerRange& layers = shape_.backward()[owned];
    const std::int32_t shared = std::min(wanted.end, layers.end).value() - std::max(wanted.begin, layers.begin).value();
    const bool is_here = links_.share_node(schedule.backward->rank_of[owned], node.rank);
    if (shared > 0 && !is_here) of_other_nodes += bytes * shared / wanted.size();
  }
  return links_.fetch_seconds(bytes - of_other_nodes, of_other_nodes);
}

Seconds CostModel::price(const Schedule& schedule, const ActionOnRank& node) const {
  const Action& action = node.action;
  const auto stage = static_cast<std::size_t>(action.stage.value());
  const bool keeps_states = shape_.optimizer == Place::device && !schedule.streams_parameters;
  switch (action.op) {
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
    case Op::recompute: {
      const Seconds whole = at(
          action.op, stage * static_cast<std::size_t>(shape_.slices) + static_cast<std::size_t>(action.slice.value()));
      return action.part == 0 ? whole : of_part(schedule, action, whole);
    }
    case Op::send_forward:
    case Op::send_backward:
    case Op::send_checkpoint:
      return links_.wire_seconds(node.rank, *peer_of(schedule, action), message_);
    case Op::receive_forward:
    case Op::receive_backward:
    case Op::receive_checkpoint:
      return links_.wire_seconds(*peer_of(schedule, action), node.rank, message_);
    case Op::offload_activations:
    case Op::reload_activations:
    case Op::reduce:
    case Op::step:
      return at(action.op, stage);
    case Op::fetch_forward:
      if (schedule.backward && !hardware_.unit) return decoupled_fetch(schedule, node);
      return keeps_states ? Seconds{0} : at(action.op, stage);
    case Op::fetch_backward:
    case Op::offload_gradients:
      return keeps_states ? Seconds{0} : at(action.op, stage);
    // What ranks do together for a shared vocabulary is in the prices of F and B.
    case Op::embed_forward:
    case Op::embed_backward:
    case Op::vocabulary_forward:
    case Op::vocabulary_backward:
    case Op::evict_forward:
    case Op::evict_backward:
    case Op::validate:
    case Op::undo:  // nothing is taken back: the norm is below its bound in almost every step
      return Seconds{0};
  }
  fail(ExitCode::internal, "cost: no price for the op {}", name_of(action.op));
}

}  // namespace penstock
