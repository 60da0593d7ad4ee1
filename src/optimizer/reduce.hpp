// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/host_block.hpp"
#include "base/units.hpp"
#include "comm/communicator.hpp"
#include "kernels/workers.hpp"
#include "optimizer/host_stage.hpp"

namespace penstock {

/// Adds the gradient of a tied head to that of the embedding: embedding + head, once, before the sum over replicas.
void add_into(std::span<float> embedding, std::span<const float> head, Workers& workers);

/// Where the gradients of the other replicas arrive; one per rank, shared by its stages.
class ReduceStaging {
 public:
  explicit ReduceStaging(std::int32_t replicas);
  /// Host bytes: none alone, else one message from each other replica, together 16 MiB up to 65 replicas.
  static Bytes bytes(std::int32_t replicas);
  /// Elements of the longest message: a whole number of norm blocks.
  static std::int64_t message_elements(std::int32_t replicas);
  /// The message of the `i`-th other replica.
  std::span<float> message(std::int32_t i, std::int64_t count);

 private:
  std::int64_t message_elements_;
  HostBlock block_;
};

/// The sum over data-parallel replicas: in every owned piece the gradient becomes ((g_0 + g_1) + g_2) + ..., in fp32,
/// in replica order; pieces of others keep this replica's own gradient. Collective over `replicas`, whose ranks are the
/// replicas; all enter, those that own nothing too.
///
/// Each piece is cut in messages; in round j of a message replica r sends to r + j while it receives from r - j, so
/// every send meets its receive. Nothing for one replica.
void reduce_gradients(const HostStage& stage, const Communicator& replicas, ReduceStaging& staging, Workers& workers);

/// Completes the working copy of every replica with the pieces that others own. Bytes are copied, nothing is computed.
/// Collective as reduce_gradients.
void gather_working_copy(const HostStage& stage, const Communicator& replicas);

}  // namespace penstock
