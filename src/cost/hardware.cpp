// SPDX-License-Identifier: Apache-2.0
#include "cost/hardware.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/counted.hpp"

namespace penstock {
namespace {

void check_efficiencies(const ProductFigures& products, BrokenRules& broken) {
  const auto figures = products.efficiency.size();
  const auto sizes = products.sizes.size();
  const bool is_one_figure = figures == 1 && sizes == 0;
  if (!is_one_figure && (figures == 0 || figures != sizes)) {
    broken.add(
        {"products.efficiency", "products.sizes"}, "has {} for {}; give one figure for each size, or one and no sizes",
        counted(static_cast<std::int64_t>(figures), "figure"), counted(static_cast<std::int64_t>(sizes), "size"));
  }
  const auto descent = std::adjacent_find(products.sizes.begin(), products.sizes.end(), std::greater_equal<>{});
  if (descent != products.sizes.end()) {
    broken.add({"products.sizes"}, "{} stands before {}; sizes must ascend", *descent, *(descent + 1));
  }
}

void check_attention(const AttentionFigures& attention, BrokenRules& broken) {
  const auto check = [&](const char* key, const std::optional<double>& figure) {
    if (attention.fused && !figure) {
      broken.add({key, "attention.fused"},
                 "must be given: the share of products.peak that the fused kernel reaches; without such a kernel set "
                 "attention.fused: false");
    } else if (!attention.fused && figure) {
      broken.add({key, "attention.fused"}, "is {}, but belongs to fused kernels alone; leave it out", *figure);
    }
  };
  check("attention.forward", attention.forward);
  check("attention.backward", attention.backward);
}

void check_sharing(const char* key, const LinkFigures& link, std::int32_t devices, BrokenRules& broken) {
  if (link.shared_by <= devices) return;
  broken.add({key, "node.devices"}, "{} devices cannot share a link of a node that has {}", link.shared_by, devices);
}

}  // namespace

std::vector<BrokenRule> check_hardware(const HardwareOptions& options) {
  BrokenRules broken;
  if (options.unit) return {};
  if (options.device.reserve >= options.device.memory) {
    broken.add({"device.reserve", "device.memory"}, "{} leave nothing of the memory of {}",
               to_text(options.device.reserve), to_text(options.device.memory));
  }
  check_efficiencies(options.products, broken);
  check_attention(options.attention, broken);
  check_sharing("inside.shared_by", options.inside, options.node.devices, broken);
  check_sharing("between.shared_by", options.between, options.node.devices, broken);
  check_sharing("to_device.shared_by", options.to_device, options.node.devices, broken);
  check_sharing("to_host.shared_by", options.to_host, options.node.devices, broken);
  return broken.take();
}

HardwareOptions unit_hardware() {
  HardwareOptions options;
  options.name = "unit";
  options.unit = true;
  return options;
}

HardwareOptions flop_hardware() {
  const Bytes at_once{std::numeric_limits<std::int64_t>::max()};
  const LinkFigures link{.bandwidth = at_once, .latency = {}};
  HardwareOptions options;
  options.name = "FLOPs";
  options.device = {.memory = at_once, .reserve = {}, .bandwidth = at_once, .launch_latency = {}};
  options.products = {.peak = 1e12, .nominal_peak = {}, .efficiency = {1}, .sizes = {}};
  options.attention = {.fused = true, .forward = 1, .backward = 1};
  options.node = {.devices = 1, .host_memory = at_once, .optimizer_rate = std::numeric_limits<double>::max()};
  options.inside = options.between = options.to_device = options.to_host = link;
  return options;
}

double efficiency_at(const ProductFigures& figures, double size) {
  const auto& sizes = figures.sizes;
  if (sizes.empty() || size <= sizes.front()) return figures.efficiency.front();
  const auto above = std::upper_bound(sizes.begin(), sizes.end(), size);
  if (above == sizes.end()) return figures.efficiency.back();
  const auto i = static_cast<std::size_t>(above - sizes.begin());
  const double share = std::log(size / sizes[i - 1]) / std::log(sizes[i] / sizes[i - 1]);
  return figures.efficiency[i - 1] + share * (figures.efficiency[i] - figures.efficiency[i - 1]);
}

}  // namespace penstock
