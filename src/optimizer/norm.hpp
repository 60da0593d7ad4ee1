// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "kernels/workers.hpp"
#include "model/parameters.hpp"
#include "optimizer/host_stage.hpp"

namespace penstock {

/// The sum of squares of one block of norm_block_elements gradients of a parameter, or of a share's part of it.
struct BlockSum {
  std::int32_t parameter = 0;  ///< canonical index in the whole model
  std::int32_t block = 0;      ///< within the parameter
  double sum = 0;
  friend bool operator==(const BlockSum&, const BlockSum&) = default;
};

/// What is wrong with a gradient.
enum class GradientFault : std::uint8_t { none, not_a_number, infinite };

/// The global gradient norm of one step.
struct NormResult {
  double norm = 0;
  bool finite = true;
  std::string first_bad_tensor;  ///< in canonical order; empty if all are finite
  GradientFault fault = GradientFault::none;
  std::int32_t first_bad_rank = -1;  ///< of the group of global_norm: the one that summed the bad block
};

/// The block sums of the owned pieces, after the reduction. Squares of fp32 values are exact in double and cannot
/// overflow there; a block is summed in a fixed order, so a sum depends on its block alone.
std::vector<BlockSum> block_sums(const HostStage& stage, Workers& workers);

/// Adds block sums in canonical order (parameter, then block): the one place where norms are formed.
/// `sums` (all of this process) may come in any order; `model` is parameters_of the whole model, for names.
NormResult combine(const std::vector<BlockSum>& sums, const std::vector<Parameter>& model);

/// What all ranks know after VALIDATE.
struct Validated {
  NormResult norm;
  std::vector<std::string> reports;  ///< of all ranks, in rank order
};

/// The VALIDATE of a step: collects the block sums of all ranks on rank 0 of `group` (by messages: an MPI sum would add
/// in the layout's order), combines them there, and gives the result to all, and with it each rank's `report`, of any
/// length: a step needs no other meeting of its ranks. Collective: ranks without block sums enter too.
Validated global_norm(const std::vector<BlockSum>& sums, const std::vector<Parameter>& model, const Communicator& group,
                      const std::string& report = {});

}  // namespace penstock
