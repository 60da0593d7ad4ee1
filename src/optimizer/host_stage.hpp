// SPDX-License-Identifier: Apache-2.0
#pragma once

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

namespace penstock {

/// A parameter of a stage, and where it lies in the stage's buffers.
struct HostParameter {
  Parameter parameter;
  std::int32_t canonical = 0;  ///< index in the whole model's parameters_of
  Bytes working_offset{0};     ///< in the parameters buffer (storage type)
  Bytes gradient_offset{0};    ///< in the gradients buffer (fp32)
  bool mastered = true;        ///< false: a tied table whose master is another stage's; it has no state here
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
  std::string name = "stage 0";           ///< for errors
};

/// Host bytes of a stage by kind: what `check` lists and HostStage allocates.
struct HostBytes {
  Bytes masters;       ///< owned pieces, fp32
  Bytes moments;       ///< owned pieces, two of fp32
  Bytes working_copy;  ///< the whole stage, storage type
  Bytes gradients;     ///< the whole stage, fp32
  Bytes total() const { return masters + moments + working_copy + gradients; }
};
HostBytes host_bytes(const HostStageShape& shape);

/// A piece that this replica owns, with its state: `count` values each.
struct StatePiece {
  ShardPiece piece;
  float* master = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
};

/// The host memory of one stage: gradients and working copy of the whole stage in the layout of its device buffers;
/// fp32 masters and both Adam moments of the pieces that this replica owns (design, section 6). Moments start at zero.
///
/// Bookkeeping only: who may touch what when is the schedule's business.
class HostStage {
 public:
  /// `working_copy`: memory for it that others may read too, of at least working_bytes; empty: it has memory of its own.
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
  const std::vector<StatePiece>& state() const { return state_; }

  /// Draws the initial masters of the owned pieces; independent of the sharding and of threads.
  void initialize(std::uint64_t seed, Workers& workers);
  /// Writes the owned pieces of the working copy from the masters: after initialize or a load. With several replicas
  /// gather_working_copy (optimizer/reduce) completes it.
  void refresh_working_copy(Workers& workers);

 private:
  static std::span<std::byte> span_of(const HostBlock& memory) {
    return {memory.data(), static_cast<std::size_t>(memory.bytes().value)};
  }
  void lay_out_state();

  HostStageShape shape_;
  std::vector<std::vector<ShardPiece>> pieces_;  // by replica
  HostBlock masters_;
  HostBlock first_moments_;
  HostBlock second_moments_;
  HostBlock own_working_copy_;
  std::span<std::byte> working_copy_;
  HostBlock gradients_;
  std::vector<StatePiece> state_;
};

}  // namespace penstock
