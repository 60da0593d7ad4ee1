// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/host_block.hpp"
#include "base/units.hpp"
#include "kernels/tensor.hpp"
#include "kernels/workers.hpp"
#include "model/parameters.hpp"
#include "optimizer/shard.hpp"
#include "optimizer/vector_loops.hpp"

namespace penstock {

/// A parameter of a stage, and where it lies in the stage's buffers.
struct HostParameter {
  Parameter parameter;
  std::int32_t canonical = 0;  ///< index in the whole model's parameters_of
  Bytes working_offset{0};     ///< in the parameters buffer (storage type)
  Bytes gradient_offset{0};    ///< in the gradients buffer (fp32)
  bool mastered = true;        ///< false: a tied table whose master is another stage's; it has no state here
  std::int64_t first = 0;      ///< element of the whole parameter that this one begins with: of a share's rows
};

/// Joins a stage's parameters with the offsets of StageMath::layout (parameters, gradients), entry by entry; further
/// entries of the layouts are of no interest here (the second accumulator of a tied table). `begin`: canonical_begin of
/// the stage. A token table that is not the first stage's is a tied copy and has no master. @throws Error internal if
/// an offset is missing.
std::vector<HostParameter> host_parameters(const std::vector<Parameter>& stage, std::int32_t begin,
                                           const std::vector<Bytes>& working_offsets,
                                           const std::vector<Bytes>& gradient_offsets, bool is_first_stage);

/// What the host keeps of one stage on one rank.
struct HostStageShape {
  std::vector<HostParameter> parameters;  ///< canonical order
  Bytes working_bytes{0};                 ///< of the parameters buffer
  Bytes gradient_bytes{0};                ///< of the gradients buffer
  DType storage = DType::bf16;            ///< of the working copy: bf16 or f32
  std::int32_t replicas = 1;              ///< data-parallel ranks
  std::int32_t replica = 0;               ///< this one
  bool keeps_previous = false;            ///< a second buffer of states: a step can be taken back to the bit
  std::string name = "stage 0";           ///< for errors
};

/// Host bytes of a stage by kind: what `check` lists and HostStage allocates.
struct HostBytes {
  Bytes masters;       ///< owned pieces, fp32
  Bytes moments;       ///< owned pieces, two of fp32
  Bytes previous;      ///< masters and moments once more, before the last step; none unless keeps_previous
  Bytes working_copy;  ///< the whole stage, storage type
  Bytes gradients;     ///< the whole stage, fp32
  Bytes total() const { return masters + moments + previous + working_copy + gradients; }
};
HostBytes host_bytes(const HostStageShape& shape);

/// A piece that this replica owns, with its state: `count` values each.
struct StatePiece : AdamWState {
  ShardPiece piece;
};

/// The host memory of one stage: gradients and working copy of the whole stage in the layout of its device buffers;
/// fp32 masters and both Adam moments of the pieces that this replica owns (design, section 6). Moments start at zero.
///
/// Bookkeeping only: who may touch what when is the schedule's business.
class HostStage {
 public:
  /// `working_copy`: memory for it that others may read too, of at least working_bytes; empty: it has memory of its
  /// own.
  /// @throws Error does_not_fit if the machine cannot give the memory.
  explicit HostStage(HostStageShape shape, std::span<std::byte> working_copy = {});

  const HostStageShape& shape() const { return shape_; }
  HostBytes bytes() const { return host_bytes(shape_); }

  /// The whole buffers: targets of OFFLOAD_G, sources of FETCH_F.
  std::span<std::byte> working_copy() const { return working_copy_; }
  std::span<std::byte> gradients() const { return span_of(gradients_); }
  /// One parameter's part of them.
  std::span<std::byte> working_copy(std::int32_t parameter) const;
  std::span<float> gradient(std::int32_t parameter) const;
  /// The part of `piece` (of any replica).
  std::span<std::byte> working_copy(const ShardPiece& piece) const;
  std::span<float> gradient(const ShardPiece& piece) const;

  const std::vector<ShardPiece>& pieces_of(std::int32_t replica) const {
    return pieces_[static_cast<std::size_t>(replica)];
  }
  /// The owned pieces with their state: for the step, and to save and load.
  const std::vector<StatePiece>& state() const { return states_[0]; }
  /// The same pieces in the second buffer: what `step` writes, and what was before it; empty unless keeps_previous.
  const std::vector<StatePiece>& other_state() const { return states_[1]; }
  /// Makes the second buffer the first, and so undoes itself. @pre keeps_previous
  void swap_states();

  /// Draws the initial masters of the owned pieces; independent of the sharding and of threads.
  void initialize(std::uint64_t seed, Workers& workers);
  /// Writes the owned pieces of the working copy from the masters: after initialize or a load. With several replicas
  /// gather_working_copy (optimizer/reduce) completes it.
  void refresh_working_copy(Workers& workers);

 private:
  static std::span<std::byte> span_of(const HostBlock& memory) {
    return {memory.data(), static_cast<std::size_t>(memory.bytes().value)};
  }
  struct StateBlocks {
    HostBlock masters;
    HostBlock first_moments;
    HostBlock second_moments;
  };
  static StateBlocks reserve_states(Bytes each, const std::string& which);
  std::vector<StatePiece> lay_out(const StateBlocks& blocks) const;

  HostStageShape shape_;
  std::vector<std::vector<ShardPiece>> pieces_;  // by replica
  std::array<StateBlocks, 2> blocks_;            // the second only where previous states are kept
  HostBlock own_working_copy_;
  std::span<std::byte> working_copy_;
  HostBlock gradients_;
  std::array<std::vector<StatePiece>, 2> states_;  // first the one that counts
};

}  // namespace penstock
