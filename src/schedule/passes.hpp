// SPDX-License-Identifier: Apache-2.0
//
// Passes make a complete schedule of one that holds compute actions only. Each is a pure function Schedule -> Schedule.
#pragma once

#include <cstdint>

#include "schedule/schedule.hpp"

namespace penstock {

bool gives_input_gradient(Op op);  ///< B or I

/// Puts R directly before the backward of the stages marked: their forward then keeps the stage's input only. With
/// slices all Rs of a micro-batch, ascending, stand before its first backward.
/// @throws Error bad_input unless there is one entry per (backward) stage.
Schedule add_recompute(const Schedule& schedule, const PerStage<bool>& stages);

/// Replaces each B by I and, directly after it, W.
Schedule split_weight_gradients(const Schedule& schedule);

/// Adds a send and a receive wherever neighbouring stages are on different ranks.
///
/// Messages are placed where they would occur if every action lasted its unit_duration: a send directly after its
/// producer, its receive at the same time in the other list. So all lists together are one sequence cut up by rank, and
/// whatever memory an action waits for, it waits for something earlier in that sequence: no layout of memory can close
/// a cycle. (A receive that takes its buffer only directly before its consumer can: in 1F1B it may get the memory that
/// a send frees whose receive waits, on the other rank, for the memory of the very send that it is to match.)
///
/// Of a schedule that cannot run the messages are placed beside producers and consumers, for the validator to show the
/// cycle.
Schedule add_communication(const Schedule& schedule);

/// Adds OFFLOAD_G and REDUCE of a stage right after its last backward (and that one's message), STEP and FETCH_F as
/// `wait` says (FETCH_F behind UNDO where there is one), and one VALIDATE per rank. A tied last stage, whose step waits
/// for the first one's, is stepped last.
/// @pre not forward_only
Schedule add_host_stages(const Schedule& schedule, StepsWait wait);

/// What is used again this soon would be on its way back before it has left: slices near their backward stay.
inline constexpr std::int32_t usual_offload_nearest = 2;

struct CompletionOptions {
  PerStage<bool> recompute;             ///< per stage of the backward pass; empty: none
  bool split_weight_gradients = false;  ///< I and W instead of B
  bool tied_embeddings = false;
  StepsWait steps_wait = StepsWait::for_norm;
  bool late_checkpoints = false;     ///< as Schedule::late_checkpoints: exchanged a time step before their use (SPipe's
                                     ///< synchronous mode, methods 1.3); they go out at once if false
  bool stream_parameters = false;    ///< from the host, as schedules do that say so themselves
  std::int32_t resident_stages = 2;  ///< stages whose parameters a device then holds at once
  std::int32_t offload_nearest = 0;  ///< as in add_activation_offload; 0: activations stay on the device
  bool share_vocabulary = false;     ///< over all ranks (schedule/vocabulary.hpp)
};

/// All passes. Stages that the schedule itself marks as recomputing stand in place of those of the options. One whose
/// actions the schedule already holds is left out, so that a hand-written schedule keeps what it says.
/// @throws Error bad_input for late checkpoints where the passes share their stages, or where there are fewer
/// micro-batches than ranks; and as the passes do.
Schedule complete(const Schedule& schedule, const CompletionOptions& options);

}  // namespace penstock
