// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string_view>

#include "base/index.hpp"
#include "base/units.hpp"

namespace penstock {

/// What a device buffer holds. Sizes and shapes are the business of `memory`, `stage` and `cost`.
///
/// Tokens, workspace and optimizer states live for the whole run; so do parameters and gradients unless the schedule
/// streams parameters.
/// All others are taken and freed by actions. A stage is one of the forward cutting for parameters, input and output,
/// one of the backward cutting for the rest; in most schedules the two are the same.
enum class BufferKind : std::uint8_t {
  parameters,       ///< working copy of a stage's parameters
  gradients,        ///< fp32 weight gradients of a stage
  tokens,           ///< of the first stage: a step's inputs; of the last: its targets; all micro-batches
  workspace,        ///< scratch of the compute lane
  input,            ///< a stage's input: residual stream of one (micro-batch, slice); for stage 0 nothing is taken
                    ///< unless the ranks share the vocabulary
  output,           ///< a stage's output waiting for its SEND_F; where ranks share the vocabulary the last one's too
  activations,      ///< what the forward keeps for the backward
  logits,           ///< last stage, or share of the vocabulary: what the loss keeps for the backward
  output_gradient,  ///< gradient of a stage's output
  input_gradient,   ///< gradient of a stage's input waiting for its SEND_B
  weight_operands,  ///< what I keeps for W
  backward_parameters,  ///< decoupled passes: working copy of a backward stage's parameters
  checkpoint,           ///< decoupled passes: input of a backward stage, cut out of the forward pass
  offloadable,          ///< the part of the activations that OFFLOAD_A takes to the host
  key_value_gradients,  ///< fp32 sums of what later slices' attention gives to the keys and values of one slice
  optimizer_states,     ///< masters and moments of a stage, where its step runs on the device
  key_values            ///< keys and values of one slice for the slices behind it, where the forward keeps nothing else
};
inline constexpr int buffer_kind_count = 17;
std::string_view name_of(BufferKind kind);

/// A buffer by name: kind and what it belongs to. Unused fields are 0 (stage too, for the workspace).
struct SymbolicBuffer {
  BufferKind kind = BufferKind::workspace;
  Stage stage;
  MicroBatch micro_batch;
  Slice slice;
  friend auto operator<=>(const SymbolicBuffer&, const SymbolicBuffer&) = default;
};

/// Bytes of each kind of buffer of one stage (per micro-batch and slice where the kind is). Computed by `stage/sizes`,
/// or by the model of cost.
/// The entry of tokens is for one micro-batch: the buffer holds shape.micro_batches of them. The entry of workspace is
/// what that stage needs; a rank has one workspace, the largest over its stages.
using StageBytes = std::array<Bytes, buffer_kind_count>;

}  // namespace penstock
