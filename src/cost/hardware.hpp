// SPDX-License-Identifier: Apache-2.0
//
// What a hardware file says (doc/hardware.md): the figures from which `cost` makes seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/broken_rule.hpp"
#include "base/describe.hpp"
#include "base/units.hpp"

namespace penstock {

/// Efficiencies: above 0, and at most the peak that they are fractions of.
inline constexpr KeyRange fraction_of_peak{.low = 0, .high = 1, .low_is_allowed = false};

/// The memory of one device and what starting work on it costs.
struct DeviceFigures {
  Bytes memory;
  Bytes reserve;           ///< of the memory: what driver, libraries and fragmentation keep
  Bytes bandwidth;         ///< a second
  Seconds launch_latency;  ///< added to each compute action
  friend bool operator==(const DeviceFigures&, const DeviceFigures&) = default;
};

template <class Visitor>
void describe(Visitor& visit, DeviceFigures& figures) {
  visit("memory", figures.memory, {.help = "of one device", .range = more_than(0), .presence = Presence::required});
  visit("reserve", figures.reserve,
        {.help = "of that memory, what driver, libraries and fragmentation keep", .range = at_least(0)});
  visit("bandwidth", figures.bandwidth,
        {.help = "of that memory, bytes a second; prices elementwise work and thin products",
         .range = more_than(0),
         .presence = Presence::required});
  visit("launch_latency", figures.launch_latency, {.help = "added to each compute action", .range = at_least(0)});
}

/// Matrix products in the model's storage type with fp32 accumulation.
struct ProductFigures {
  double peak = 0;                     ///< FLOP/s
  std::optional<double> nominal_peak;  ///< FLOP/s
  std::vector<double> efficiency;      ///< of the peak; one figure, or one for each of `sizes`
  std::vector<double> sizes;           ///< cube roots of rows x columns x inner, ascending
  friend bool operator==(const ProductFigures&, const ProductFigures&) = default;
};

template <class Visitor>
void describe(Visitor& visit, ProductFigures& figures) {
  visit("peak", figures.peak,
        {.help = "of products with 16-bit inputs and fp32 accumulation, without sparsity",
         .unit = "FLOP/s",
         .range = more_than(0),
         .presence = Presence::required});
  visit("nominal_peak", figures.nominal_peak,
        {.help = "the peak that utilization is counted against, where publications use another",
         .unit = "FLOP/s",
         .range = more_than(0),
         .when_absent = "peak"});
  visit("efficiency", figures.efficiency,
        {.help = "share of the peak that products reach: one figure, or one for each of sizes",
         .range = fraction_of_peak,
         .presence = Presence::required});
  visit("sizes", figures.sizes,
        {.help = "edges of square products that were measured, ascending; between two of them the efficiency is linear "
                 "in the logarithm of the size, beyond them that of the last",
         .range = more_than(0)});
}

/// Causal attention. Fused kernels never store the scores; a device without them runs two products and a softmax
/// through its memory.
struct AttentionFigures {
  bool fused = true;
  std::optional<double> forward;   ///< of the peak of products
  std::optional<double> backward;  ///< of the peak of products, for 2.5 times the forward FLOPs
  friend bool operator==(const AttentionFigures&, const AttentionFigures&) = default;
};

template <class Visitor>
void describe(Visitor& visit, AttentionFigures& figures) {
  visit("fused", figures.fused,
        {.help = "false: no fused kernel; scores go through memory, whole and not only below the diagonal"});
  visit("forward", figures.forward,
        {.help = "share of products.peak that the fused kernel reaches",
         .range = fraction_of_peak,
         .when_absent = "must be given for fused kernels"});
  visit("backward", figures.backward,
        {.help = "the same of its backward pass, with 2.5 times the FLOPs of the forward",
         .range = fraction_of_peak,
         .when_absent = "must be given for fused kernels"});
}

/// A way for bytes, by direction. Devices that share one halve it when two of them use it at once.
struct LinkFigures {
  Bytes bandwidth;  ///< a second, per direction
  Seconds latency;
  std::int32_t shared_by = 1;  ///< devices
  friend bool operator==(const LinkFigures&, const LinkFigures&) = default;
};

template <class Visitor>
void describe(Visitor& visit, LinkFigures& figures) {
  visit("bandwidth", figures.bandwidth,
        {.help = "bytes a second in one direction", .range = more_than(0), .presence = Presence::required});
  visit("latency", figures.latency, {.help = "added to each message or copy", .range = at_least(0)});
  visit("shared_by", figures.shared_by,
        {.help = "devices that share one such link", .unit = "devices", .range = at_least(1)});
}

struct NodeFigures {
  std::int32_t devices = 1;
  Bytes host_memory;
  double optimizer_rate = 0;  ///< parameters a second, of one rank
  friend bool operator==(const NodeFigures&, const NodeFigures&) = default;
};

template <class Visitor>
void describe(Visitor& visit, NodeFigures& figures) {
  visit("devices", figures.devices,
        {.help = "of one node", .unit = "devices", .range = at_least(1), .presence = Presence::required});
  visit("host_memory", figures.host_memory,
        {.help = "of one node", .range = more_than(0), .presence = Presence::required});
  visit("optimizer_rate", figures.optimizer_rate,
        {.help = "of the optimizer on the CPU, of one rank while all of the node work",
         .unit = "parameters/s",
         .range = more_than(0),
         .presence = Presence::required});
}

/// The contents of a hardware file.
struct HardwareOptions {
  std::string name;
  std::string source;
  bool unit = false;
  DeviceFigures device;
  ProductFigures products;
  AttentionFigures attention;
  NodeFigures node;
  LinkFigures inside;     ///< between devices of a node
  LinkFigures between;    ///< between nodes
  LinkFigures to_device;  ///< copies from the host
  LinkFigures to_host;
  friend bool operator==(const HardwareOptions&, const HardwareOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, HardwareOptions& options) {
  visit("name", options.name, {.help = "for people", .presence = Presence::required});
  visit("source", options.source, {.help = "where the figures come from"});
  visit(
      "unit", options.unit,
      {.help = "true: no machine; F, R, I and W take 1 s and B 2 s for each smallest common layer block and slice, all "
               "else nothing. The keys below are then left out"});
  if (options.unit) return;
  visit("device", options.device, {.help = "the device of one rank"});
  visit("products", options.products, {.help = "matrix products"});
  visit("attention", options.attention, {.help = "causal attention"});
  visit("node", options.node, {.help = "what the devices of a node share"});
  visit("inside", options.inside, {.help = "links between devices of a node"});
  visit("between", options.between, {.help = "links between nodes"});
  visit("to_device", options.to_device, {.help = "copies from the host to a device"});
  visit("to_host", options.to_host, {.help = "copies from a device to the host"});
}

/// Rules between the keys of a hardware file whose single values are within their ranges.
std::vector<BrokenRule> check_hardware(const HardwareOptions& options);

/// The options of unit hardware, for tests and for decks that name no file.
HardwareOptions unit_hardware();

/// A machine that does nothing but matrix products and attention, at 1 TFLOP/s, and all else at once: its seconds are
/// FLOPs, for whoever has no figures of a real one.
HardwareOptions flop_hardware();

/// Share of the peak that a product of this size reaches, size the cube root of rows x columns x inner.
double efficiency_at(const ProductFigures& figures, double size);

}  // namespace penstock
