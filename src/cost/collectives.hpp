// SPDX-License-Identifier: Apache-2.0
//
// Communication inside an action: of the devices of one rank, and of the replicas. Only the exposed share is counted.
#pragma once

#include "cost/links.hpp"
#include "cost/model_cost.hpp"
#include "cost/shape.hpp"

namespace penstock {

/// Of one layer and slice: with tensor parallelism the stream is gathered and scattered twice forward, twice for
/// inputs, and gathered twice more for weights; context parallelism moves keys and values, or queries and outputs where
/// those are fewer bytes; expert parallelism sends tokens to their experts and back. `keys`: those that the slice sees,
/// in slices of its length.
Seconds layer_collectives(const CostShape& shape, const Links& links, WorkPart part, double keys);

/// Of one slice and rank: the hidden slice that all ranks need for their share of the vocabulary; 0 without such
/// shares.
Seconds vocabulary_collectives(const CostShape& shape, const Links& links, WorkPart part);

/// Attention context exchange of one layer: queries and outputs, and the keys and values of `exchanged` slices.
double exchange_bytes(const CostShape& shape, double exchanged);
Seconds exchange_collectives(const CostShape& shape, const Links& links, WorkPart part, double exchanged);

/// Devices that hold the same parameters, in a ring: the first half of an all-reduce, in which each of them ends with
/// the sums of its share, and the second half, in which each gets all shares.
Seconds ring_half(const CostShape& shape, const Links& links, double bytes);

}  // namespace penstock
