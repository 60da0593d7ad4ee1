// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/describe.hpp"
#include "base/units.hpp"
#include "schedule/recompute.hpp"

namespace penstock {

/// The section `memory` of a deck.
struct MemoryOptions {
  Bytes device{std::int64_t{2} << 30};  ///< device memory that one rank may use
  Recompute recompute = Recompute::none;
  friend bool operator==(const MemoryOptions&, const MemoryOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, MemoryOptions& options) {
  visit("device", options.device,
        {.help = "device memory that one rank may use; planned before the run, never exceeded", .range = at_least(1)});
  visit("recompute", options.recompute,
        {.help = "none: a forward keeps its activations; selective: all but those between the two products of the "
                 "feed-forward layer; full: it keeps the stage's input; the backward makes the rest again"});
}

}  // namespace penstock
