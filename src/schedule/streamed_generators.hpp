// SPDX-License-Identifier: Apache-2.0
//
// Schedules made for models whose states do not fit on the devices: each stage's parameters come from the host once a
// pass, for all micro-batches. They write compute actions only, as all generators do; `complete` recomputes every stage
// and streams the parameters.
#pragma once

#include "schedule/generators.hpp"

namespace penstock {

/// Mobius (ASPLOS 2023; methods 1.7): breadth-first over v stages a rank, forward and backward of a stage on the same
/// rank, every stage recomputed once its output's gradient is there. Idle (p-1)/(v m + p-1) of the time where m >= p.
Schedule mobius(const GeneratorOptions& options);

/// SPipe (PACT 2025; methods 1.2): the passes are cut into stages of their own, p forward_virtual and p
/// backward_virtual, and dealt to the ranks in turn: forward stage i to rank i mod p; then the backward stages, the
/// last layers first, from the rank that is idle first. So no rank waits at the turn. A rank runs all micro-batches
/// through one stage before the next. Where a time step is the same for both passes (backward_virtual three times
/// forward_virtual, since a layer's recomputation and backward last three forwards), idle
/// (p-1)/((forward_virtual + backward_virtual) m + p-1) of the time for m >= p.
///
/// forward_stages and backward_stages, in place of the numbers per rank, need not be multiples of p: stages are dealt
/// round and round, and the backward pass goes on with the rank after the last forward stage's.
Schedule spipe(const GeneratorOptions& options);

}  // namespace penstock
