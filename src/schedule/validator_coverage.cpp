// SPDX-License-Identifier: Apache-2.0
//
// V2 coverage and V7 host: what stands in the lists, how often.
#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "schedule/semantics.hpp"
#include "schedule/validator_rules.hpp"

namespace penstock::rules {

namespace {

/// The rule that a fault of an action of this op falls under.
Rule rule_of(Op op) {
  switch (lane_of(op)) {
    case Lane::compute:
      return Rule::coverage;
    case Lane::send:
    case Lane::receive:
      return Rule::channel_order;
    case Lane::to_device:
    case Lane::to_host:
    case Lane::cpu:
      return Rule::host;
  }
  return Rule::coverage;
}

void check_duplicates(const ScheduleIndex& index, Findings& findings) {
  visit_placed(index.schedule(), [&](const Placed& at) {
    const auto first = index.position_of(at.node());
    if (first && *first != at.position) {
      findings.add(rule_of(at.action.op), at, "stands in the list already, as {}; expected once",
                   findings.place(at.rank, *first));
    }
  });
}

/// What a forward-only schedule may hold.
bool belongs_to_forward(const Schedule& schedule, Op op) {
  if (op == Op::fetch_forward || op == Op::evict_forward) return schedule.streams_parameters;
  return op == Op::forward || op == Op::send_forward || op == Op::receive_forward || op == Op::embed_forward ||
         op == Op::vocabulary_forward;
}

void check_forward_only(const Schedule& schedule, Findings& findings) {
  visit_placed(schedule, [&](const Placed& at) {
    if (belongs_to_forward(schedule, at.action.op)) return;
    findings.add(rule_of(at.action.op), at, "the schedule is forward-only; expected F, SEND_F and RECV_F{}",
                 schedule.streams_parameters  ? ", FETCH_F and EVICT_F"
                 : schedule.shares_vocabulary ? ", EF and VF"
                                              : "");
  });
}

/// One (stage, micro-batch, slice) of one pass.
class CellCoverage {
 public:
  CellCoverage(const ScheduleIndex& index, const Action& cell, Findings& findings)
      : index_{index}, cell_{cell}, findings_{findings} {}

  void check_forward() const {
    if (!has(Op::forward)) missing(Op::forward, "every stage runs forward once for each micro-batch");
  }

  void check_backward() const {
    check_gradients();
    const bool recompute = recomputes(index_.schedule(), cell_.stage);
    if (recompute && !has(Op::recompute))
      missing(Op::recompute, "the stage keeps only its input, so a backward needs it");
    if (!recompute && has(Op::recompute))
      surplus(Op::recompute, "the stage keeps its activations; expected no R of it");
  }

 private:
  void check_gradients() const {
    const bool whole = has(Op::backward);
    const bool input = has(Op::backward_input);
    const bool weight = has(Op::backward_weight) || listed_parts() > 0;
    if (!whole && !input && !weight)
      return missing(Op::backward, "a stage runs backward once for each micro-batch: B, or I and W");
    if (whole && input) surplus(Op::backward_input, "the list has the whole B too; expected B alone, or I and W");
    if (whole && weight) surplus_weights("the list has the whole B too; expected B alone, or I and W");
    if (whole) return;
    if (!input) missing(Op::backward_input, "W needs it");
    check_weight();
  }

  /// Either W in one, or each of its parts.
  void check_weight() const {
    constexpr std::string_view why = "without it the weight gradients lack this micro-batch";
    const std::int32_t listed = listed_parts();
    if (has(Op::backward_weight)) {
      if (listed > 0) surplus_weights("the list has W in one and in parts; expected one or the other");
    } else if (listed == 0) {
      missing(Op::backward_weight, why);
    } else {
      for_each_part([&](const Action& part) {
        if (!index_.contains(part)) missing(part, why);
      });
    }
  }

  template <class Visit>
  void for_each_part(const Visit& visit) const {
    const std::int32_t parts = index_.schedule().parts_of_weight(cell_.stage);
    if (parts == 1) return;
    Action part = action(Op::backward_weight);
    while (part.part < parts) {
      ++part.part;
      visit(part);
    }
  }

  std::int32_t listed_parts() const {
    std::int32_t listed = 0;
    for_each_part([&](const Action& part) { listed += index_.contains(part) ? 1 : 0; });
    return listed;
  }

  void surplus_weights(std::string_view why) const {
    if (has(Op::backward_weight)) surplus(Op::backward_weight, why);
    for_each_part([&](const Action& part) {
      if (index_.contains(part)) surplus(part, why);
    });
  }

  Action action(Op op) const { return {op, cell_.stage, cell_.micro_batch, cell_.slice}; }
  Rank rank(Op op) const { return holder_of(index_.schedule(), action(op)); }
  bool has(Op op) const { return index_.contains(action(op)); }
  void missing(Op op, std::string_view why) const { missing(action(op), why); }
  void missing(const Action& lacking, std::string_view why) const {
    findings_.add(Rule::coverage, rank(lacking.op), "`{}` is missing; {}", findings_.text(lacking), why);
  }
  void surplus(Op op, std::string_view why) const { surplus(action(op), why); }
  void surplus(const Action& listed, std::string_view why) const {
    const ActionOnRank node{rank(listed.op), listed};
    findings_.add(Rule::coverage, Placed{node.rank, index_.position_of(node).value_or(-1), listed}, "{}", why);
  }

  const ScheduleIndex& index_;
  const Action& cell_;
  Findings& findings_;
};

Action host_action(Op op, Stage stage) {
  return {op, stage, MicroBatch{0}, Slice{0}};
}

void check_each_stage(const ScheduleIndex& index, Findings& findings) {
  const Schedule& schedule = index.schedule();
  std::vector ops{Op::offload_gradients, Op::reduce, Op::step};
  // Streamed parameters are fetched where they are used; that they are is V6.
  if (!schedule.streams_parameters) ops.push_back(Op::fetch_forward);
  for (const Stage stage : all<Stage>(schedule.stepped_stages())) {
    for (const Op op : ops) {
      const Action action = host_action(op, stage);
      if (index.contains(action)) continue;
      findings.add(Rule::host, holder_of(schedule, action), "`{}` is missing; expected {} once for every stage",
                   findings.text(action),
                   schedule.streams_parameters ? "OFFLOAD_G, REDUCE and STEP" : "OFFLOAD_G, REDUCE, STEP and FETCH_F");
    }
  }
}

/// Whether the steps of all stages stand on the same side of their rank's VALIDATE.
void check_one_mode(const ScheduleIndex& index, Findings& findings) {
  std::optional<bool> first_waits;
  for (const Stage stage : all<Stage>(index.schedule().stepped_stages())) {
    const Rank rank = *index.schedule().rank_with(Pass::backward, stage);
    const Action step = host_action(Op::step, stage);
    const auto position = index.position_of({rank, step});
    const auto validate = index.position_of({rank, host_action(Op::validate, Stage{0})});
    if (!position || !validate) continue;
    const bool waits = *validate < *position;
    if (waits == first_waits.value_or(waits)) {
      first_waits = waits;
      continue;
    }
    findings.add(
        Rule::host, Placed{rank, *position, step},
        "stands {} VALIDATE, and the steps of other stages {} theirs; expected all steps to wait for the norm, or none",
        waits ? "behind" : "before", waits ? "before" : "behind");
  }
}

/// An UNDO belongs to a step that did not wait for the norm. Where the norm matters, every such step has one: the stage
/// is then stepped once net of what is undone. So it is where other stages have theirs, as all follow one verdict.
void check_undos(const ScheduleIndex& index, Findings& findings) {
  const Schedule& schedule = index.schedule();
  const bool takes_back = steps_wait_of(schedule) == StepsWait::speculative;
  for (const Stage stage : all<Stage>(schedule.stepped_stages())) {
    const Rank rank = *schedule.rank_with(Pass::backward, stage);
    const Action undo = host_action(Op::undo, stage);
    const auto step = index.position_of({rank, host_action(Op::step, stage)});
    const auto validate = index.position_of({rank, host_action(Op::validate, Stage{0})});
    if (!step || !validate) continue;
    const bool waits = *validate < *step;
    const auto position = index.position_of({rank, undo});
    if (position && waits) {
      findings.add(Rule::host, Placed{rank, *position, undo},
                   "the stage's STEP waits for VALIDATE already; expected no UNDO of it");
    } else if (!position && !waits && !takes_back && schedule.needs_norm) {
      findings.add(Rule::host, Placed{rank, *step, host_action(Op::step, stage)},
                   "stands before VALIDATE, which forms the norm that it needs; expected it behind VALIDATE");
    } else if (!position && !waits && takes_back) {
      findings.add(Rule::host, rank,
                   "`{}` is missing; `{}` stands before VALIDATE, so that what the norm forbids must be taken back "
                   "behind it",
                   findings.text(undo), findings.text(host_action(Op::step, stage)));
    }
  }
}

/// Every rank takes part in each collective action.
void check_shares(const ScheduleIndex& index, Findings& findings) {
  const Schedule& schedule = index.schedule();
  std::vector ops{Op::embed_forward, Op::vocabulary_forward};
  if (!schedule.forward_only) ops.insert(ops.end(), {Op::vocabulary_backward, Op::embed_backward});
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    for (const MicroBatch micro_batch : all<MicroBatch>(schedule.shape.micro_batches)) {
      for (const Slice slice : all<Slice>(schedule.shape.slices)) {
        for (const Op op : ops) {
          const Action action{op, schedule.share_of(rank), micro_batch, slice};
          if (index.contains(action)) continue;
          findings.add(Rule::coverage, rank, "`{}` is missing; all ranks share the vocabulary, and run {} together",
                       findings.text(action), name_of(op));
        }
      }
    }
  }
}

}  // namespace

void check_coverage(const ScheduleIndex& index, Findings& findings) {
  const Schedule& schedule = index.schedule();
  check_duplicates(index, findings);
  const auto each_cell = [&](Pass pass, const auto& check) {
    for (const Stage stage : all<Stage>(schedule.ranks(pass).size())) {
      for (const MicroBatch micro_batch : all<MicroBatch>(schedule.shape.micro_batches)) {
        for (const Slice slice : all<Slice>(schedule.shape.slices)) {
          check(CellCoverage{index, {Op::forward, stage, micro_batch, slice}, findings});
        }
      }
    }
  };
  each_cell(Pass::forward, [](const CellCoverage& cell) { cell.check_forward(); });
  if (!schedule.forward_only) each_cell(Pass::backward, [](const CellCoverage& cell) { cell.check_backward(); });
  if (schedule.shares_vocabulary) check_shares(index, findings);
}

void check_host(const ScheduleIndex& index, Findings& findings) {
  const Schedule& schedule = index.schedule();
  if (schedule.forward_only) return check_forward_only(schedule, findings);
  check_each_stage(index, findings);
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    if (index.position_of({rank, host_action(Op::validate, Stage{0})})) continue;
    findings.add(Rule::host, rank, "`VALIDATE` is missing; expected once on every rank");
  }
  check_one_mode(index, findings);
  check_undos(index, findings);
}

}  // namespace penstock::rules
