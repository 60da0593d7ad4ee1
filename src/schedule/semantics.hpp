// SPDX-License-Identifier: Apache-2.0
//
// The meaning of an action, written once (design, section 1, sentence 2; the whole table stands in doc/schedules.md).
// The validator, the memory plan and the executor read these functions and hold no rule of their own.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/index.hpp"
#include "schedule/action.hpp"
#include "schedule/buffers.hpp"
#include "schedule/schedule.hpp"
#include "schedule/schedule_index.hpp"

namespace penstock {

/// The lane of an op. An eviction moves nothing: it stands on the compute lane, behind the uses that it ends.
Lane lane_of(Op op);

/// Whether the action may run before its place in the list: a W, while its rank waits. Those of a rank stay in order.
bool runs_early(const Schedule& schedule, const Action& action);

/// Whether the op computes with its stage's parameters: all that compute but W, which multiplies what I and F have
/// kept.
bool reads_parameters(Op op);

/// Whether a stay of a stage's streamed parameters on the device begins or ends with the op: FETCH_F, FETCH_B, EVICT_F,
/// EVICT_B.
bool begins_or_ends_stay(Op op);

/// Whether the buffers of the kind live for the whole run; the others are taken and freed by actions.
bool is_persistent(const Schedule& schedule, BufferKind kind);

/// The rank that holds the action's stage. @pre the stage is within the schedule; not validate
Rank holder_of(const Schedule& schedule, const Action& action);

/// The other rank of a message: the receiver of a send, the sender of a receive; empty for any other op.
std::optional<Rank> peer_of(const Schedule& schedule, const Action& action);

/// The matching end of a message on the peer: SEND_F(s) <-> RECV_F(s+1), SEND_B(s) <-> RECV_B(s-1), SEND_C(s) <->
/// RECV_C(s) of a backward stage s; empty for other ops.
std::optional<ActionOnRank> match_of(const Schedule& schedule, const ActionOnRank& node);

/// The same collective action on another rank: all ranks run it at once, so that they count as one node.
ActionOnRank on_rank(const Schedule& schedule, const Action& collective, Rank rank);

enum class MessageKind : std::uint8_t { activations, gradients, checkpoints };
inline constexpr int message_kind_count = 3;

/// @pre the op sends or receives
MessageKind message_kind(Op op);

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

/// Whether nothing but the (backward) stage's input is kept, and R fills the rest before the backward.
bool recomputes(const Schedule& schedule, Stage stage);

/// What the lists of a complete schedule let the optimizer's steps wait for: speculative if they hold an UNDO,
/// for_reduction if a STEP stands before its rank's VALIDATE. Rule V7 says whether all stages agree.
StepsWait steps_wait_of(const Schedule& schedule);

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

/// The buffer that a message or a copy between host and device moves; empty for actions that move none.
std::optional<SymbolicBuffer> moved_by(const Schedule& schedule, const ActionOnRank& node);

}  // namespace penstock
