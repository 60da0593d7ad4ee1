// SPDX-License-Identifier: Apache-2.0
#include "cost/links.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace penstock {
namespace {

Seconds transfer(const LinkFigures& link, double bytes, std::int32_t sharers) {
  return link.latency + Seconds{bytes * sharers / static_cast<double>(link.bandwidth.value)};
}

}  // namespace

Links::Links(const CostShape& shape, const HardwareOptions& hardware)
    : hardware_{hardware}, stride_{shape.rank_stride()} {}

bool Links::share_node(Rank a, Rank b) const {
  const auto node_of = [&](Rank rank) { return std::int64_t{rank.value()} * stride_ / hardware_.node.devices; };
  return node_of(a) == node_of(b);
}

const LinkFigures& Links::between(Rank from, Rank to) const {
  return share_node(from, to) ? hardware_.inside : hardware_.between;
}

const LinkFigures& Links::copies(Lane lane) const {
  require(lane == Lane::to_device || lane == Lane::to_host, "cost: lane {} copies nothing", name_of(lane));
  return lane == Lane::to_device ? hardware_.to_device : hardware_.to_host;
}

std::optional<std::int32_t> Links::wire_of(Rank rank, const LinkFigures& link) const {
  if (hardware_.unit || link.shared_by <= stride_) return std::nullopt;
  return static_cast<std::int32_t>(std::int64_t{rank.value()} * stride_ / link.shared_by);
}

Seconds Links::wire_seconds(Rank from, Rank to, Bytes bytes) const {
  if (hardware_.unit || from == to) return Seconds{0};
  const LinkFigures& link = between(from, to);
  return transfer(link, static_cast<double>(bytes.value), std::min(stride_, link.shared_by));
}

std::optional<std::int32_t> Links::shared_resource(Rank from, Rank to) const {
  if (from == to) return std::nullopt;
  const auto wire = wire_of(from, between(from, to));
  if (!wire) return std::nullopt;
  return 2 * *wire + (share_node(from, to) ? 0 : 1);
}

Seconds Links::copy_seconds(Lane lane, Bytes bytes) const {
  if (hardware_.unit) return Seconds{0};
  const LinkFigures& link = copies(lane);
  return transfer(link, static_cast<double>(bytes.value), std::min(stride_, link.shared_by));
}

std::optional<std::int32_t> Links::shared_copy(Rank rank, Lane lane) const {
  return wire_of(rank, copies(lane));
}

Seconds Links::fetch_seconds(double of_this_node, double of_other_nodes) const {
  if (hardware_.unit) return Seconds{0};
  Seconds seconds{0};
  if (of_this_node > 0) {
    seconds += transfer(hardware_.to_device, of_this_node, std::min(stride_, hardware_.to_device.shared_by));
  }
  if (of_other_nodes > 0) seconds += transfer(hardware_.between, of_other_nodes, hardware_.between.shared_by);
  return seconds;
}

Seconds Links::ring_seconds(std::int32_t members, std::int32_t stride, double bytes, std::int32_t steps) const {
  if (hardware_.unit || members <= 1) return Seconds{0};
  const std::int32_t devices = hardware_.node.devices;
  const Seconds inside = transfer(hardware_.inside, bytes, hardware_.inside.shared_by);
  if (std::int64_t{members} * stride <= devices) return Seconds{hardware_.inside.latency.value * (steps - 1)} + inside;
  const LinkFigures& link = hardware_.between;
  const double rings = std::min(stride, devices);
  const Seconds across = transfer(link, bytes * rings * link.shared_by / devices, 1);
  const bool stays_inside_too = stride < devices;
  return Seconds{link.latency.value * (steps - 1)} + (stays_inside_too ? std::max(across, inside) : across);
}

Seconds Links::collective_seconds(std::int32_t members, std::int32_t stride, double bytes, std::int32_t steps) const {
  if (hardware_.unit || members <= 1) return Seconds{0};
  const bool is_inside = std::int64_t{members} * stride <= hardware_.node.devices;
  const LinkFigures& link = is_inside ? hardware_.inside : hardware_.between;
  return Seconds{link.latency.value * (steps - 1)} + transfer(link, bytes, link.shared_by);
}

}  // namespace penstock
