// SPDX-License-Identifier: Apache-2.0
//
// V3 channel order, V4 needs, V8 accumulation order, V9 parameter versions.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/semantics.hpp"
#include "schedule/validator_rules.hpp"

namespace penstock::rules {

namespace {

bool is_message(Op op) {
  return lane_of(op) == Lane::send || lane_of(op) == Lane::receive;
}

bool is_host(Op op) {
  return !names_micro_batch(op) || op == Op::fetch_forward;
}

/// The ends of a channel's messages that have their other end, in the order of the lists.
struct ChannelEnds {
  std::vector<Placed> sends;
  std::vector<Placed> receives;
};

/// A message that has no other end, or none on another rank; nothing if it can be matched.
bool check_match(const ScheduleIndex& index, const Placed& at, Findings& findings) {
  const bool sends = lane_of(at.action.op) == Lane::send;
  const auto match = match_of(index.schedule(), at.node());
  if (!match) {
    findings.add(Rule::channel_order, at, "there is no stage to {}; stages are 0 to {}",
                 sends ? "send to" : "receive from", index.schedule().last_stage());
  } else if (match->rank == at.rank) {
    findings.add(Rule::channel_order, at, "stages {} and {} are both on rank {}; expected no message between them",
                 at.action.stage, match->action.stage, at.rank);
  } else if (!index.position_of(*match)) {
    findings.add(Rule::channel_order, at, "rank {} has no `{}`; every send needs its receive", match->rank,
                 findings.text(match->action));
  } else {
    return true;
  }
  return false;
}

/// One finding for the first receive that is out of the order of the sends.
void check_order(const Schedule& schedule, const ChannelEnds& ends, Findings& findings) {
  const auto count = std::min(ends.sends.size(), ends.receives.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Placed& receive = ends.receives[i];
    const auto expected = match_of(schedule, ends.sends[i].node());
    if (expected && expected->action == receive.action) continue;
    findings.add(Rule::channel_order, receive, "rank {} sends `{}` here first ({}); receive in the order of sends",
                 ends.sends[i].rank, findings.text(ends.sends[i].action),
                 findings.place(ends.sends[i].rank, ends.sends[i].position));
    return;
  }
}

void check_own_rank_order(const ScheduleIndex& index, const Placed& at, Findings& findings) {
  for (const ActionOnRank& need : needs(index, at.node())) {
    const auto position = index.position_of(need);
    if (need.rank != at.rank || !position || *position < at.position) continue;
    findings.add(is_host(at.action.op) ? Rule::host : Rule::need, at, "needs `{}`, which stands behind it, as {}",
                 findings.text(need.action), findings.place(need.rank, *position));
  }
}

/// Whether V2 and V7 report what the action lacks, stage by stage.
bool needs_every_stage_or_micro_batch(Op op) {
  return op == Op::offload_gradients || op == Op::validate;
}

void check_missing(const ScheduleIndex& index, const Placed& at, Findings& findings) {
  if (needs_every_stage_or_micro_batch(at.action.op)) return;
  for (const ActionOnRank& need : missing_needs(index, at.node())) {
    findings.add(is_host(at.action.op) ? Rule::host : Rule::need, at, "needs `{}`, which is not in the list of rank {}",
                 findings.text(need.action), need.rank);
  }
}

/// The order of additions to the weight gradients of each stage: those of B with I (norms, biases and tables), or of B
/// with W (matrices). Parts of W have gradients of their own, so that each part has an order of its own.
class AdditionOrder {
 public:
  AdditionOrder(const Schedule& schedule, Op split_op, Findings& findings)
      : split_op_{split_op}, last_(schedule.most_stages()), findings_{findings} {
    for (const Stage stage : all<Stage>(last_.size())) {
      const std::int32_t parts = split_op == Op::backward_weight ? schedule.parts_of_weight(stage) : 1;
      last_[stage].resize(static_cast<std::size_t>(parts));
    }
  }

  void see(const Placed& at) {
    if (at.action.op != Op::backward && at.action.op != split_op_) return;
    auto& parts = last_[at.action.stage];
    const bool adds_all = at.action.part == 0;
    const auto begin = adds_all ? parts.begin() : parts.begin() + at.action.part - 1;
    const auto end = adds_all ? parts.end() : begin + 1;
    const auto late = std::find_if(begin, end, [&](const auto& last) {
      return last && key(*last) > key(at.action) && is_reported_here(*last, at.action);
    });
    if (late != end) {
      findings_.add(
          Rule::accumulation_order, at,
          "adds to the weight gradients after `{}`; expected micro-batches ascending and slices descending, so that "
          "the sums are the same in every schedule",
          findings_.text(**late));
    }
    std::fill(begin, end, at.action);
  }

 private:
  static std::pair<std::int32_t, std::int32_t> key(const Action& action) {
    return {action.micro_batch.value(), -action.slice.value()};
  }
  /// Two whole Bs are seen by both checks, and reported by one.
  bool is_reported_here(const Action& last, const Action& action) const {
    return split_op_ == Op::backward_weight || last.op == split_op_ || action.op == split_op_;
  }

  Op split_op_;
  PerStage<std::vector<std::optional<Action>>> last_;  // of each part
  Findings& findings_;
};

}  // namespace

void check_channels(const ScheduleIndex& index, Findings& findings) {
  std::map<Channel, ChannelEnds> channels;
  visit_placed(index.schedule(), [&](const Placed& at) {
    if (!is_message(at.action.op) || !check_match(index, at, findings)) return;
    if (index.position_of(at.node()) != at.position) return;
    ChannelEnds& ends = channels[*channel_of(index.schedule(), at.node())];
    (lane_of(at.action.op) == Lane::send ? ends.sends : ends.receives).push_back(at);
  });
  for (const auto& [channel, ends] : channels) check_order(index.schedule(), ends, findings);
}

void check_needs(const ScheduleIndex& index, Findings& findings) {
  visit_placed(index.schedule(), [&](const Placed& at) {
    check_missing(index, at, findings);
    check_own_rank_order(index, at, findings);
  });
}

void check_accumulation(const Schedule& schedule, Findings& findings) {
  AdditionOrder with_inputs{schedule, Op::backward_input, findings};
  AdditionOrder with_weights{schedule, Op::backward_weight, findings};
  // A share's table and head have gradients of their own, tied ones too.
  AdditionOrder of_heads{schedule, Op::vocabulary_backward, findings};
  AdditionOrder of_tables{schedule, Op::embed_backward, findings};
  visit_placed(schedule, [&](const Placed& at) {
    for (AdditionOrder* order : {&with_inputs, &with_weights, &of_heads, &of_tables}) order->see(at);
  });
}

void check_versions(const ScheduleIndex& index, Findings& findings) {
  const Schedule& schedule = index.schedule();
  PerStage<std::optional<Placed>> last_use(schedule.most_stages());
  visit_placed(schedule, [&](const Placed& at) {
    // Decoupled: the backward of a stage comes after all forwards of its layers, so that its own uses are the last.
    const bool counts = !schedule.backward || pass_of(at.action.op) == Pass::backward;
    if (reads_parameters(at.action.op) && counts) last_use[at.action.stage] = at;
  });
  visit_placed(schedule, [&](const Placed& at) {
    const bool refreshes = at.action.op == Op::fetch_forward && !schedule.streams_parameters;
    if (at.action.op != Op::step && at.action.op != Op::undo && !refreshes) return;
    const auto& use = last_use[at.action.stage];
    if (!use || use->position < at.position) return;
    findings.add(Rule::parameter_version, at,
                 "`{}` ({}) uses the stage's parameters after it; expected one version of them for a step",
                 findings.text(use->action), findings.place(use->rank, use->position));
  });
}

}  // namespace penstock::rules
