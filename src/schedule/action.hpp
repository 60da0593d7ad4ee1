// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/index.hpp"

namespace penstock {

/// What an action does. `schedule/semantics` says what each needs, takes and frees; `schedule/text` how it is written.
enum class Op : std::uint8_t {
  forward,              ///< F: the stage's forward pass of one slice of one micro-batch
  backward,             ///< B: input and weight gradients together
  backward_input,       ///< I: input gradient; keeps what the weight gradient needs
  backward_weight,      ///< W: weight gradient, whole or one part of its matrix products
  recompute,            ///< R: the forward again, from the kept stage input
  send_forward,         ///< SEND_F: the stage's output to the rank of the next stage
  receive_forward,      ///< RECV_F: the stage's input from the rank of the stage before
  send_backward,        ///< SEND_B: the gradient of the stage's input to the rank of the stage before
  receive_backward,     ///< RECV_B: the gradient of the stage's output from the rank of the next stage
  send_checkpoint,      ///< SEND_C: a backward stage's input from the rank whose forward pass made it
  receive_checkpoint,   ///< RECV_C: the same on the rank of the backward stage
  offload_activations,  ///< OFFLOAD_A: the offloadable part of what the forward keeps, to the host
  reload_activations,   ///< RELOAD_A: and back
  embed_forward,        ///< EF: the embedding of one slice where all ranks share the vocabulary; all of them at once
  embed_backward,       ///< EB: its gradient, to the rows that each rank has
  vocabulary_forward,   ///< VF: final norm, output layer and loss of one slice, shared; all ranks at once
  vocabulary_backward,  ///< VB: their gradients
  fetch_forward,        ///< FETCH_F: the stage's parameters from the host to the device
  fetch_backward,       ///< FETCH_B: the same for a stay on the device that begins with the backward pass
  evict_forward,        ///< EVICT_F: the device drops the stage's parameters, which the host has too
  evict_backward,       ///< EVICT_B: the same for a stay that ends with the backward pass
  offload_gradients,    ///< OFFLOAD_G: the stage's weight gradients from the device to the host
  reduce,    ///< REDUCE: sum over data-parallel ranks (and both uses of a tied weight), block sums of squares
  validate,  ///< VALIDATE: the global gradient norm and its finiteness; once per rank and step
  step,      ///< STEP: the optimizer's update of the stage
  undo       ///< UNDO: takes a STEP back that did not wait for the norm, and steps again as the norm asks
};
inline constexpr int op_count = 26;

/// One entry of a rank's list. Fields that an op does not use are 0: micro_batch and slice for offload_gradients and
/// what follows it; stage too for validate. A stage may be fetched and evicted several times a step: those name the
/// first (last) micro-batch and slice that the stay on the device serves; stays that agree in this differ by `part`.
struct Action {
  Op op = Op::forward;
  Stage stage;
  MicroBatch micro_batch;
  Slice slice;
  std::uint8_t part = 0;  ///< of a W: 0 all of it, or one of 1 to Schedule::weight_parts; of a stay: like ones before

  friend auto operator<=>(const Action&, const Action&) = default;
};
static_assert(std::is_trivially_copyable_v<Action>);

/// Where an action runs. Actions of one lane of one rank run in list order; messages have one channel for each ordered
/// pair of ranks and kind of message, so that no direction waits for another (design, section 3).
enum class Lane : std::uint8_t { compute, to_device, to_host, cpu, send, receive };
inline constexpr int lane_count = 6;

std::string_view name_of(Op op);      ///< "F", "SEND_F", "OFFLOAD_G", ...
std::string_view name_of(Lane lane);  ///< "compute", "to_device", ...

/// Whether the op works on one (micro-batch, slice), or on a whole stage.
bool is_per_micro_batch(Op op);
/// Whether actions of the op differ by micro-batch and slice: those that work on one, fetches and evictions.
bool names_micro_batch(Op op);

/// Whether all ranks of the pipeline run the op at once, each on its share of the vocabulary: EF, EB, VF and VB.
bool is_collective(Op op);

/// The two passes over the layers, which may be cut into different stages.
enum class Pass : std::uint8_t { forward, backward };
/// Which cutting the op's stage belongs to. @pre not validate, which has no stage
Pass pass_of(Op op);

}  // namespace penstock
