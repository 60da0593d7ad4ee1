// SPDX-License-Identifier: Apache-2.0
#include "schedule/validator.hpp"

#include <algorithm>
#include <tuple>

#include "base/error.hpp"
#include "schedule/semantics.hpp"
#include "schedule/validator_rules.hpp"

namespace penstock {

namespace rules {

bool is_placed(const Schedule& schedule, const ActionOnRank& node) {
  if (!is_within(schedule.shape, node.action)) return false;
  return node.action.op == Op::validate || schedule.rank_of[node.action.stage] == node.rank;
}

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
  if (!schedule.recompute.empty() && schedule.recompute.size() != shape.stages) {
    return refuse(
        fmt::format("recompute is given for {} stages; the shape has {}", schedule.recompute.size(), shape.stages));
  }
  for (const Stage stage : all<Stage>(shape.stages)) {
    if (schedule.actions.contains(schedule.rank_of[stage])) continue;
    return refuse(
        fmt::format("stage {} is placed on rank {}; ranks are below {}", stage, schedule.rank_of[stage], shape.ranks));
  }
  return true;
}

void check_placement(const Schedule& schedule, Findings& findings) {
  for (const Rank rank : all<Rank>(schedule.actions.size())) {
    std::int32_t position = 0;
    for (const Action& action : schedule.actions[rank]) {
      const Placed at{rank, position++, action};
      if (!is_within(schedule.shape, action)) {
        findings.add(Rule::placement, at, "expected stages below {}, micro-batches below {}, slices below {}",
                     schedule.shape.stages, schedule.shape.micro_batches, schedule.shape.slices);
      } else if (!is_placed(schedule, at.node())) {
        findings.add(Rule::placement, at, "stage {} is on rank {}; list the action there", action.stage,
                     schedule.rank_of[action.stage]);
      }
    }
  }
}

}  // namespace rules

std::vector<Finding> validate(const Schedule& schedule, const std::vector<MemoryEdge>& memory_edges) {
  rules::Findings findings{schedule};
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

void require_valid(const Schedule& schedule, const std::vector<Finding>& findings) {
  if (findings.empty()) return;
  constexpr std::size_t most_shown = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(findings.size(), most_shown); ++i) text += "\n" + findings[i].text;
  if (findings.size() > most_shown) text += fmt::format("\nand {} more", findings.size() - most_shown);
  fail(ExitCode::damaged_input, "schedule '{}' cannot run ({} findings):{}", schedule.name, findings.size(), text);
}

}  // namespace penstock
