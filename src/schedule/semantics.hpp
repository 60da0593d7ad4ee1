// SPDX-License-Identifier: Apache-2.0
//
// The meaning of an action, written once (design, section 1, sentence 2; the whole table stands in doc/schedules.md).
// The validator, the memory plan and the executor read these functions and hold no rule of their own.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/index.hpp"
#include "schedule/action.hpp"
#include "schedule/schedule.hpp"
#include "schedule/schedule_index.hpp"

namespace penstock {

/// What a device buffer holds. Persistent kinds (first group) live for the whole run; the others are taken and freed by
/// actions. Sizes and shapes are the business of `memory` and `stage`.
enum class BufferKind : std::uint8_t {
  parameters,       ///< working copy of a stage's parameters
  gradients,        ///< fp32 weight gradients of a stage
  tokens,           ///< of the first stage: a step's inputs; of the last: its targets; all micro-batches
  workspace,        ///< scratch of the compute lane
  input,            ///< a stage's input: residual stream of one (micro-batch, slice); for stage 0 nothing is taken
  output,           ///< a stage's output waiting for its SEND_F
  activations,      ///< what the forward keeps for the backward
  logits,           ///< last stage: what the loss keeps for the backward
  output_gradient,  ///< gradient of a stage's output
  input_gradient,   ///< gradient of a stage's input waiting for its SEND_B
  weight_operands   ///< what I keeps for W
};
inline constexpr int buffer_kind_count = 11;
bool is_persistent(BufferKind kind);
std::string_view name_of(BufferKind kind);

/// A buffer by name: kind and what it belongs to. Unused fields are 0 (stage too, for the workspace).
struct SymbolicBuffer {
  BufferKind kind = BufferKind::workspace;
  Stage stage;
  MicroBatch micro_batch;
  Slice slice;
  friend auto operator<=>(const SymbolicBuffer&, const SymbolicBuffer&) = default;
};

/// The lane of an op.
Lane lane_of(Op op);

/// The other rank of a message: the receiver of a send, the sender of a receive; empty for any other op.
std::optional<Rank> peer_of(const Schedule& schedule, const Action& action);

/// The matching end of a message on the peer: SEND_F(s) <-> RECV_F(s+1), SEND_B(s) <-> RECV_B(s-1); empty for other
/// ops.
std::optional<ActionOnRank> match_of(const Schedule& schedule, const ActionOnRank& node);

enum class MessageKind : std::uint8_t { activations, gradients };

/// What keeps messages in order: sends of a channel leave, and its receives are posted, in the order of the lists;
/// channels do not wait for each other.
struct Channel {
  Rank from;
  Rank to;
  MessageKind kind = MessageKind::activations;
  friend auto operator<=>(const Channel&, const Channel&) = default;
};
/// The channel of a send or a receive; empty for other ops.
std::optional<Channel> channel_of(const Schedule& schedule, const ActionOnRank& node);

/// Whether the stage's forward keeps its input only, and R fills the rest again before the backward.
bool recomputes(const Schedule& schedule, Stage stage);

/// Actions that must be complete before `node` starts, besides the earlier ones of its lane: on its own rank, and
/// (reduce and step of a tied weight, validate) on others. Only actions that the schedule lists are named; what it
/// lacks is given by missing_needs, and is the validator's finding.
///
/// The functions named `append_` add to `out`, so that a walk over a whole schedule allocates nothing.
std::vector<ActionOnRank> needs(const ScheduleIndex& index, const ActionOnRank& node);
void append_needs(const ScheduleIndex& index, const ActionOnRank& node, std::vector<ActionOnRank>& out);
std::vector<ActionOnRank> missing_needs(const ScheduleIndex& index, const ActionOnRank& node);

/// Device buffers that the action takes at its place in its rank's list, and those that it frees when it completes.
std::vector<SymbolicBuffer> takes(const Schedule& schedule, const ActionOnRank& node);
std::vector<SymbolicBuffer> frees(const Schedule& schedule, const ActionOnRank& node);
void append_takes(const Schedule& schedule, const ActionOnRank& node, std::vector<SymbolicBuffer>& out);
void append_frees(const Schedule& schedule, const ActionOnRank& node, std::vector<SymbolicBuffer>& out);

/// Device buffers that the action reads or writes (those that it takes included, the workspace and persistent ones
/// too): what must be resident when it runs.
std::vector<SymbolicBuffer> uses(const Schedule& schedule, const ActionOnRank& node);
void append_uses(const Schedule& schedule, const ActionOnRank& node, std::vector<SymbolicBuffer>& out);

}  // namespace penstock
