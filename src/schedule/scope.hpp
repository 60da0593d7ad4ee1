// SPDX-License-Identifier: Apache-2.0
//
// Private to the semantics.
#pragma once

#include "schedule/action.hpp"
#include "schedule/buffers.hpp"
#include "schedule/schedule.hpp"

namespace penstock {

/// An action with the questions that its meaning turns on.
struct Scope {
  Scope(const Schedule& of, const Action& what)
      : schedule{of}, action{what}, pass{pass_of(what.op)}, ranks{of.ranks(pass)}, last{of.last_stage(pass)} {}

  const Schedule& schedule;
  const Action& action;
  Pass pass;
  const PerStage<Rank>& ranks;  // of the action's pass
  Stage last;

  Stage stage() const { return action.stage; }
  bool is_first() const { return stage().value() == 0; }
  bool is_last() const { return stage() == last; }
  bool is_last_slice() const { return action.slice.value() + 1 == schedule.shape.slices; }
  /// Whether the stage's input comes from another action, and its output goes to one: at the ends of the model this is
  /// so where the ranks share the vocabulary.
  bool has_input() const { return !is_first() || schedule.shares_vocabulary; }
  bool has_output() const { return !is_last() || schedule.shares_vocabulary; }
  /// The action of the share of the vocabulary that this stage's rank has.
  Action of_share(Op op) const { return at(op, schedule.share_of(ranks[stage()])); }
  bool is_decoupled() const { return schedule.backward.has_value(); }
  bool shares_rank(Stage other) const {
    return ranks.contains(other) && ranks.contains(stage()) && ranks[other] == ranks[stage()];
  }
  /// Decoupled: the forward stage that makes the backward stage's input, and whether it lies on the same rank.
  Stage source() const { return schedule.backward->fed_by[stage()]; }
  bool has_source_here() const { return schedule.rank_of[source()] == ranks[stage()]; }
  /// What the backward pass starts from on stages but the first.
  BufferKind kept_input() const { return is_decoupled() ? BufferKind::checkpoint : BufferKind::input; }
  Action same(Op op) const { return {op, stage(), action.micro_batch, action.slice}; }
  Action at(Op op, Stage other) const { return {op, other, action.micro_batch, action.slice}; }
  Action at(Op op, Slice slice) const { return {op, stage(), action.micro_batch, slice}; }
  SymbolicBuffer buffer(BufferKind kind) const { return {kind, stage(), action.micro_batch, action.slice}; }
  SymbolicBuffer buffer(BufferKind kind, Stage other) const { return {kind, other, action.micro_batch, action.slice}; }
  SymbolicBuffer of_stage(BufferKind kind) const { return {kind, stage(), MicroBatch{0}, Slice{0}}; }
  /// The parameters that a compute action of this pass works with.
  SymbolicBuffer parameters() const {
    return of_stage(is_decoupled() && pass == Pass::backward ? BufferKind::backward_parameters
                                                             : BufferKind::parameters);
  }
  /// Whether the action is a W that completes its cell: the whole one, or the last part. Parts before it may stand in
  /// any order, as each has gradients of its own; that none stands behind it follows from what it frees (rule V6).
  bool completes_weight_gradient() const {
    return action.part == 0 || action.part == schedule.parts_of_weight(stage());
  }
  /// The first backward of a stage in a step: micro-batches ascend, slices descend (rule V8).
  bool opens_gradients() const {
    return action.micro_batch.value() == 0 && action.slice.value() == schedule.shape.slices - 1;
  }
};

}  // namespace penstock
