// SPDX-License-Identifier: Apache-2.0
//
// What the machine does, measured: the figures of a hardware file (doc/hardware.md). All ranks of a machine measure at
// the same time, as they would work at the same time; of several tries the best counts, since other programs can only
// slow one down.
#pragma once

#include <cstdint>

#include "comm/communicator.hpp"
#include "cost/hardware.hpp"
#include "device/device.hpp"
#include "kernels/kernels.hpp"
#include "kernels/workers.hpp"
#include "schedule/action.hpp"

namespace penstock {

/// Products [size, size] x [size, size] of each size that a planner meets; the peak is the best of them.
ProductFigures measure_products(Kernels& kernels, DType storage, const Communicator& world);

/// Causal attention of 12 heads of 64 over 2,048 tokens, forward and backward, as shares of the peak.
AttentionFigures measure_attention(Kernels& kernels, DType storage, double peak, const Communicator& world);

/// Bytes a second that an elementwise sum reads and writes.
Bytes measure_bandwidth(Kernels& kernels, const Communicator& world);

/// What one action costs beside its work: a queue that does nothing.
Seconds measure_launch(Device& device, const Communicator& world);

/// Copies between host and device.
LinkFigures measure_copies(Device& device, Lane lane, const Communicator& world);

/// Messages from rank 0 to `peer`; to itself if the job has one rank.
LinkFigures measure_link(const Communicator& world, int peer);

/// AdamW, in parameters a second of one rank.
double measure_optimizer(Workers& workers, DType storage, const Communicator& world);

}  // namespace penstock
