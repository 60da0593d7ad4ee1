// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "base/units.hpp"
#include "device/device.hpp"
#include "schedule/action.hpp"
#include "stage/stage.hpp"

namespace penstock {

/// The device side of a copy between host and device, and the queue of its lane.
struct CopyPlace {
  Device* device = nullptr;
  Queue* queue = nullptr;
  std::byte* data = nullptr;
  Bytes bytes{0};
  Bytes host_offset{0};  ///< OFFLOAD_A, RELOAD_A: in the host memory of the rank's activations
};

/// What actions do to memory: the second of the two run-time seams (the first is Device; design, section 4).
class StageWork {
 public:
  virtual ~StageWork() = default;
  /// Queues on the compute lane, behind `after`, what other ranks let the action wait for before it starts; returns
  /// what it then starts behind. Nothing where partners meet within their actions.
  virtual std::vector<Event> meet_partners(const Action& /*action*/, Queue& /*lane*/, std::vector<Event> after) {
    return after;
  }
  /// Runs F, B, I, W, R, or an action of all ranks, on the compute lane. `buffers` holds the addresses that the action
  /// uses. Returns for how long of it the lane only waited for other ranks.
  virtual Seconds compute(const Action& action, const StageBuffers& buffers) = 0;
  /// Runs REDUCE, VALIDATE, STEP or UNDO on the CPU lane; may block on messages.
  virtual void cpu(const Action& action) = 0;
  /// Queues FETCH_F, FETCH_B, OFFLOAD_G, OFFLOAD_A or RELOAD_A behind `after`: where the host keeps what is copied is
  /// the work's to know.
  virtual Event copy(const Action& action, const CopyPlace& place, std::vector<Event> after) = 0;
};

/// Work on real memory: copies go from and to the memory that stages, and activations, have on the host.
class MemoryWork : public StageWork {
 public:
  /// @throws Error internal if the host's memory is longer than the device's, and for what is no copy
  Event copy(const Action& action, const CopyPlace& place, std::vector<Event> after) override;
  /// Destination of the stage's OFFLOAD_G.
  virtual std::span<std::byte> host_gradients(Stage stage) = 0;
  /// Where OFFLOAD_A and RELOAD_A have offset 0.
  virtual std::byte* host_activations() = 0;
  /// Queues a FETCH_F or FETCH_B behind `after`.
  virtual Event fetch(const Action& action, const CopyPlace& place, std::vector<Event> after) = 0;
};

}  // namespace penstock
