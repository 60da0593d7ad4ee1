// SPDX-License-Identifier: Apache-2.0
#include "schedule/sliced_generators.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "schedule/generators_common.hpp"
#include "schedule/graph.hpp"
#include "schedule/passes.hpp"
#include "schedule/schedule_index.hpp"

namespace penstock {

namespace {

/// How many units of its forwards' order a rank may have in flight: forwards run whose backward has not.
using UnitsInFlight = std::function<std::int32_t(Rank)>;

std::int32_t micro_batches_to_fill_ranks(const GeneratorOptions& options) {
  return static_cast<std::int32_t>(divide_up(options.pipeline, options.slices));
}

/// G of the header, or all units where there are fewer.
std::int32_t units_of_group(const GeneratorOptions& options) {
  return options.slices * std::min(options.micro_batches, micro_batches_to_fill_ranks(options));
}

std::int32_t ranks_behind(const GeneratorOptions& options, Rank rank) {
  return options.pipeline - 1 - rank.value();
}

/// Forwards of the last rank up to that of the first micro-batch's last slice on the last stage: no backward can start
/// before it.
std::int32_t least_in_flight(const GeneratorOptions& options, std::int32_t group) {
  return (options.virtual_stages - 1) * group + options.slices;
}

/// A unit of the order of forwards (slices ascending) or of backwards (descending), with no stage yet.
Action nth_unit(const GeneratorOptions& options, Op op, std::int32_t n) {
  const std::int32_t slice = n % options.slices;
  return action_of(op, Stage{0}, n / options.slices, op == Op::forward ? slice : options.slices - 1 - slice);
}

/// A rank's forwards or backwards: each group of units through all of its chunks. @pre `group` divides the units
std::vector<Action> in_groups(const GeneratorOptions& options, Op op, Rank rank, std::int32_t group) {
  const std::int32_t v = options.virtual_stages;
  const std::int32_t units = options.micro_batches * options.slices;
  std::vector<Action> actions;
  actions.reserve(static_cast<std::size_t>(units) * static_cast<std::size_t>(v));
  for (std::int32_t first = 0; first < units; first += group) {
    for (std::int32_t turn = 0; turn < v; ++turn) {
      const std::int32_t chunk = op == Op::forward ? turn : v - 1 - turn;
      for (std::int32_t unit = first; unit < first + group; ++unit) {
        actions.push_back(nth_unit(options, op, unit));
        actions.back().stage = stage_of_chunk(Placement::round_robin, rank, chunk, options.pipeline);
      }
    }
  }
  return actions;
}

/// Forwards up to what may be in flight, then one backward, one forward in turn.
Schedule in_turn(std::string_view kind, const GeneratorOptions& options, std::int32_t group,
                 const UnitsInFlight& in_flight) {
  auto schedule = empty_schedule(fmt::format("{} v={} n={}", kind, options.virtual_stages, options.slices), options,
                                 Placement::round_robin);
  GeneratorOptions whole = options;
  const auto micro_batches_of_group = divide_up(group, options.slices);
  whole.micro_batches = static_cast<std::int32_t>(round_up(options.micro_batches, micro_batches_of_group));
  for (const Rank rank : all<Rank>(options.pipeline)) {
    const auto forwards = in_groups(whole, Op::forward, rank, group);
    const auto backwards = in_groups(whole, Op::backward, rank, group);
    const auto warm_up = std::min(forwards.size(), static_cast<std::size_t>(in_flight(rank) - 1));
    schedule.actions[rank] = one_in_turn(forwards, backwards, warm_up);
    erase_from(schedule.actions[rank], options.micro_batches);
  }
  return schedule;
}

// --- SVPP ---

/// Groups of `group` units, no rank with more than `most` in flight.
Schedule svpp_order(const GeneratorOptions& options, std::int32_t group, std::int32_t most) {
  return in_turn("svpp", options, group, [&](Rank rank) {
    return std::min(most, least_in_flight(options, group) + ranks_behind(options, rank));
  });
}

/// How long a step lasts in units, messages taking no time; empty if the lists wait in a circle.
std::optional<Seconds> unit_step(const Schedule& compute) {
  const Schedule schedule = add_communication(compute);
  const ScheduleIndex index{schedule};
  const DependenceGraph graph{index};
  const auto duration = [&](std::int32_t node) { return unit_duration(graph.action_of(node).action.op); };
  const auto starts = earliest_starts(graph, duration);
  if (!starts) return std::nullopt;
  Seconds end{0};
  for (std::int32_t node = 0; node < graph.size(); ++node) {
    if (graph.is_node(node)) end = std::max(end, (*starts)[static_cast<std::size_t>(node)] + duration(node));
  }
  return end;
}

struct SvppChoice {
  Schedule schedule;
  Seconds step{std::numeric_limits<double>::infinity()};
};

/// The order with groups of `group` units and the most in flight, up to `most`, that can run. Groups that do not fill
/// the ranks wait in a circle beyond some number: the first rank is to start units that the last rank sends only after
/// backwards that come from the first rank. With least_in_flight every rank runs what the last one does, and it can.
SvppChoice most_that_runs(const GeneratorOptions& options, std::int32_t group, std::int32_t most) {
  std::int32_t runs = least_in_flight(options, group);
  std::int32_t beyond = std::min(most, runs + options.pipeline - 1) + 1;
  SvppChoice best{svpp_order(options, group, runs), {}};
  best.step = unit_step(best.schedule).value_or(SvppChoice{}.step);
  for (std::int32_t tried = beyond - 1; runs + 1 < beyond; tried = runs + (beyond - runs) / 2) {
    Schedule schedule = svpp_order(options, group, tried);
    const auto step = unit_step(schedule);
    if (!step) {
      beyond = tried;
      continue;
    }
    runs = tried;
    best = {std::move(schedule), *step};
  }
  return best;
}

/// The groups of whole micro-batches with the shortest step: up to p/n groups are tried, each in a few simulations.
SvppChoice best_group_within(const GeneratorOptions& options, std::int32_t most) {
  SvppChoice best;
  for (std::int32_t group = options.slices; group <= units_of_group(options); group += options.slices) {
    if (least_in_flight(options, group) > most) break;
    auto choice = most_that_runs(options, group, most);
    if (choice.step < best.step) best = std::move(choice);
  }
  return best;
}

Schedule svpp_within(const GeneratorOptions& options, std::int32_t most) {
  SvppChoice best;
  if (options.virtual_stages == 1 || options.slices >= options.pipeline) {
    best.schedule = svpp_order(options, options.slices, most);  // there is nothing to choose, and it always runs
  } else {
    best = best_group_within(options, most);
  }
  best.schedule.name += fmt::format(" f={}", most);
  return std::move(best.schedule);
}

}  // namespace

Schedule terapipe(const GeneratorOptions& options) {
  check_options(ScheduleKind::terapipe, options);
  const std::int32_t units = options.micro_batches * options.slices;
  return in_turn("terapipe", options, units, [&](Rank) { return units * options.virtual_stages + 1; });
}

Schedule seq1f1b(const GeneratorOptions& options) {
  check_options(ScheduleKind::seq1f1b, options);
  return in_turn("seq1f1b", options, options.slices,
                 [&](Rank rank) { return options.slices + ranks_behind(options, rank); });
}

Schedule seq1f1b_interleaved(const GeneratorOptions& options) {
  check_options(ScheduleKind::seq1f1b_interleaved, options);
  const std::int32_t group = units_of_group(options);
  return in_turn("seq1f1b_interleaved", options, group,
                 [&](Rank rank) { return least_in_flight(options, group) + 2 * ranks_behind(options, rank); });
}

Schedule svpp(const GeneratorOptions& options) {
  check_options(ScheduleKind::svpp, options);
  const std::int32_t group = units_of_group(options);
  const std::int32_t whole = least_in_flight(options, group) + options.pipeline - 1;
  if (!options.forwards_first || *options.forwards_first >= whole) return svpp_order(options, group, whole);
  return svpp_within(options, *options.forwards_first);
}

void add_svpp_faults(const GeneratorOptions& options, std::vector<KindFault>& faults) {
  if (!options.forwards_first) return;
  // In 64 bits: the options are not checked against each other here. How many micro-batches there are is no part of
  // the rule, so that a deck's answer does not change with its batch.
  const std::int64_t v = options.virtual_stages;
  const std::int64_t n = options.slices;
  const std::int64_t group = n * micro_batches_to_fill_ranks(options);
  const std::int64_t most = (v - 1) * group + n + options.pipeline - 1;
  const std::int64_t asked = *options.forwards_first;
  if (asked >= v * n && asked <= most) return;
  const auto why = asked < v * n
                       ? "the last stage has the last slice of a micro-batch only after virtual x slices forwards"
                       : "no rank waits for another with as many as the largest, and more would only keep more";
  const std::string taken = v * n == most ? fmt::format("{}", most) : fmt::format("{} to {}", v * n, most);
  faults.push_back({"schedule.forwards_first",
                    fmt::format("svpp with {}, {} and {} takes {} forwards before the first backward, not {}: {}",
                                counted(options.pipeline, "rank"), counted(v, "virtual stage"), counted(n, "slice"),
                                taken, asked, why)});
}

Schedule slimpipe(const GeneratorOptions& options) {
  check_options(ScheduleKind::slimpipe, options);
  Schedule schedule = in_turn("slimpipe", options, options.pipeline, [&](Rank rank) {
    return options.slices * options.virtual_stages + 2 * ranks_behind(options, rank);
  });
  schedule.exchange = options.exchange;
  return schedule;
}

void add_slimpipe_faults(const GeneratorOptions& options, std::vector<KindFault>& faults) {
  const std::int32_t p = options.pipeline;
  if (options.slices % p == 0) return;
  const std::int64_t below = options.slices / p * std::int64_t{p};
  const auto advice = below == 0 ? fmt::format("{}", p) : fmt::format("{} or {}", below, below + p);
  faults.push_back(
      {"schedule.slices", fmt::format("slimpipe moves slices through the stages in groups of one a rank: {} "
                                      "cannot be dealt evenly to {} ranks; use {}",
                                      counted(options.slices, "slice"), p, advice)});
}

}  // namespace penstock
