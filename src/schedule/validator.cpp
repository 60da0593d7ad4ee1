// SPDX-License-Identifier: Apache-2.0
#include "schedule/validator.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "schedule/semantics.hpp"
#include "schedule/source_cells.hpp"
#include "schedule/validator_rules.hpp"

namespace penstock {

namespace rules {

/// Where the action belongs: on the rank of its stage; a SEND_C on that of the forward stage which makes the
/// checkpoint.
Rank expected_rank(const Schedule& schedule, const Action& action) {
  const bool at_source = action.op == Op::send_checkpoint && schedule.backward;
  return at_source ? schedule.rank_of[schedule.backward->fed_by[action.stage]] : holder_of(schedule, action);
}

bool is_placed(const Schedule& schedule, const ActionOnRank& node) {
  if (!is_within(schedule, node.action)) return false;
  if (node.action.op == Op::validate) return true;
  return expected_rank(schedule, node.action) == node.rank;
}

namespace {

/// What is wrong with the backward cutting; empty if nothing is.
std::string fault_of_backward_stages(const Schedule& schedule) {
  if (!schedule.backward) return {};
  const auto& [rank_of, fed_by] = *schedule.backward;
  if (rank_of.empty() || rank_of.size() != fed_by.size()) {
    return fmt::format("{} backward stages are placed on ranks, and {} are fed by forward stages; expected one of each",
                       rank_of.size(), fed_by.size());
  }
  if (!std::is_sorted(fed_by.begin(), fed_by.end()) || !schedule.rank_of.contains(*fed_by.begin()) ||
      !schedule.rank_of.contains(fed_by[Stage{fed_by.size() - 1}])) {
    return "backward stages in order are fed by forward stages in order; expected ascending ones within the schedule";
  }
  if (!schedule.streams_parameters) {
    return "the passes are cut differently, so parameters have no one place; expected a schedule that streams them";
  }
  return {};
}

/// What a part asks for beside the ids; empty for an action without one.
std::string expected_of_part(const Schedule& schedule, const Action& action) {
  if (action.part == 0) return {};
  if (action.op != Op::backward_weight) return ", and a slash only behind W, and stays of streamed parameters";
  const std::int32_t parts = schedule.parts_of_weight(action.stage);
  if (parts == 1) return fmt::format(", and the W of stage {} in one", action.stage);
  return fmt::format(", and parts of the W of stage {} from 1 to {}", action.stage, parts);
}

}  // namespace

bool check_tables(const Schedule& schedule, Findings& findings) {
  const ScheduleShape& shape = schedule.shape;
  const auto refuse = [&](const std::string& text) {
    findings.add(Rule::placement, Rank{0}, "{}", text);
    return false;
  };
  if (shape.ranks < 1 || shape.stages < 1 || shape.micro_batches < 1 || shape.slices < 1) {
    return refuse(
        fmt::format("the shape has {} ranks, {} stages, {} micro-batches and {} slices; expected at least 1 of each",
                    shape.ranks, shape.stages, shape.micro_batches, shape.slices));
  }
  if (schedule.actions.size() != shape.ranks) {
    return refuse(fmt::format("there are lists for {} ranks; the shape has {}", schedule.actions.size(), shape.ranks));
  }
  if (schedule.rank_of.size() != shape.stages) {
    return refuse(
        fmt::format("{} stages are placed on ranks; the shape has {}", schedule.rank_of.size(), shape.stages));
  }
  const std::int32_t backward_stages = schedule.ranks(Pass::backward).size();
  if (!schedule.recompute.empty() && schedule.recompute.size() != backward_stages) {
    return refuse(fmt::format("recompute is given for {} stages; the backward pass has {}", schedule.recompute.size(),
                              backward_stages));
  }
  if (!schedule.weight_parts.empty() && schedule.weight_parts.size() != backward_stages) {
    return refuse(fmt::format("weight parts are given for {} stages; the backward pass has {}",
                              schedule.weight_parts.size(), backward_stages));
  }
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const auto& ranks = schedule.ranks(pass);
    for (const Stage stage : all<Stage>(ranks.size())) {
      if (schedule.actions.contains(ranks[stage])) continue;
      return refuse(fmt::format("stage {} is placed on rank {}; ranks are below {}", stage, ranks[stage], shape.ranks));
    }
  }
  if (schedule.shares_vocabulary && (schedule.backward || schedule.streams_parameters)) {
    return refuse("ranks share the vocabulary, and parameters are streamed; expected one or the other");
  }
  const std::string fault = fault_of_backward_stages(schedule);
  return fault.empty() || refuse(fault);
}

void check_placement(const Schedule& schedule, Findings& findings) {
  for (const Rank rank : all<Rank>(schedule.actions.size())) {
    std::int32_t position = 0;
    for (const Action& action : schedule.actions[rank]) {
      const Placed at{rank, position++, action};
      if (!is_within(schedule, action)) {
        findings.add(Rule::placement, at, "expected stages below {}, micro-batches below {}, slices below {}{}",
                     schedule.ranks(pass_of(action.op)).size(), schedule.shape.micro_batches, schedule.shape.slices,
                     expected_of_part(schedule, action));
      } else if (!is_placed(schedule, at.node())) {
        findings.add(Rule::placement, at, "{} {} is on rank {}; list the action there",
                     schedule.is_share(action.stage) ? "share" : "stage", action.stage,
                     expected_rank(schedule, action));
      }
    }
  }
}

}  // namespace rules

std::vector<Finding> validate(const Schedule& schedule, const std::vector<MemoryEdge>& memory_edges,
                              const SourceCells* source) {
  rules::Findings findings{schedule, source};
  if (!rules::check_tables(schedule, findings)) return std::move(findings).result();
  const ScheduleIndex index{schedule};
  rules::check_placement(schedule, findings);
  rules::check_coverage(index, findings);
  rules::check_channels(index, findings);
  rules::check_needs(index, findings);
  rules::check_cycles(index, memory_edges, findings);
  rules::check_buffers(schedule, findings);
  rules::check_host(index, findings);
  rules::check_accumulation(schedule, findings);
  rules::check_versions(index, findings);
  auto result = std::move(findings).result();
  const auto key = [](const Finding& finding) { return std::tuple{finding.rule, finding.rank, finding.position}; };
  std::stable_sort(result.begin(), result.end(), [&](const Finding& a, const Finding& b) { return key(a) < key(b); });
  return result;
}

namespace {

std::string findings_text(const Schedule& schedule, const std::vector<Finding>& findings) {
  constexpr std::size_t most_shown = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(findings.size(), most_shown); ++i) text += "\n" + findings[i].text;
  if (findings.size() > most_shown) text += fmt::format("\nand {} more", findings.size() - most_shown);
  return fmt::format("schedule '{}' cannot run ({}):{}", schedule.name, counted(std::ssize(findings), "finding"), text);
}

}  // namespace

void require_valid(const Schedule& schedule, const std::vector<Finding>& findings) {
  if (findings.empty()) return;
  throw Error{ExitCode::damaged_input, findings_text(schedule, findings)};
}

void require_valid_file(const Schedule& schedule, std::string_view csv, const std::string& name,
                        const std::vector<MemoryEdge>& memory_edges) {
  if (validate(schedule, memory_edges).empty()) return;
  const SourceCells source{csv, name};
  std::string text = findings_text(schedule, validate(schedule, memory_edges, &source));
  if (text.find(rules::of_completed_list) != std::string::npos) {
    text += "\n(`penstock show`, of the deck or of the file, prints the lists as completed with --csv -)";
  }
  throw Error{ExitCode::damaged_input, text};
}

}  // namespace penstock
