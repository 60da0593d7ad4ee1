// SPDX-License-Identifier: Apache-2.0
#include "schedule/kinds.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "schedule/generators_common.hpp"
#include "schedule/sliced_generators.hpp"
#include "schedule/streamed_generators.hpp"

namespace penstock {

namespace {

constexpr std::int32_t any = KindLimits::any;
// Their generators place the weight gradients.
constexpr KindLimits one_stage_filled{.places_weight_gradients = false, .has_whole_backwards = false};
constexpr KindLimits two_stages_filled{
    .least_virtual = 2, .most_virtual = 2, .places_weight_gradients = false, .has_whole_backwards = false};

constexpr auto table = std::to_array<KindEntry>({
    {ScheduleKind::gpipe, gpipe, {.most_virtual = any}, "all forwards, then all backwards"},
    {ScheduleKind::one_f_one_b, one_f_one_b, {}, "one forward, one backward"},
    {ScheduleKind::interleaved, interleaved, {.most_virtual = any}, "1f1b over several virtual stages a rank"},
    {ScheduleKind::breadth_first,
     breadth_first,
     {.most_virtual = any},
     "all micro-batches through a stage, then the next stage"},
    {ScheduleKind::zb_h1, zb_h1, one_stage_filled, "zero bubble, the activations of 1f1b"},
    {ScheduleKind::zb_h2, zb_h2, one_stage_filled, "zero bubble, twice the activations of 1f1b"},
    {ScheduleKind::zb_v, zb_v, two_stages_filled, "zero bubble, the two stages of a rank in a V"},
    {ScheduleKind::v_half, v_half, two_stages_filled, "zb_v with half the activations"},
    {ScheduleKind::v_min, v_min, two_stages_filled, "zb_v with a third of the activations"},
    {ScheduleKind::dualpipe_v,
     dualpipe_v,
     {.least_virtual = 2, .most_virtual = 2, .places_weight_gradients = false},
     "DeepSeek's DualPipeV, the two stages of a rank in a V"},
    {ScheduleKind::hanayo,
     hanayo,
     {.least_virtual = 2, .most_virtual = any, .virtual_multiple = 2},
     "Hanayo's waves, each down the ranks and back up; half as many waves as virtual stages"},
    {ScheduleKind::terapipe, terapipe, {.most_virtual = any, .slices = true}, "gpipe over slices of sequences"},
    {ScheduleKind::seq1f1b, seq1f1b, {.slices = true}, "1f1b over slices"},
    {ScheduleKind::seq1f1b_interleaved,
     seq1f1b_interleaved,
     {.most_virtual = any, .slices = true},
     "seq1f1b over several virtual stages a rank"},
    {ScheduleKind::svpp,
     svpp,
     {.most_virtual = any, .slices = true, .forwards_first = true},
     "MEPipe's, slices through virtual stages with the fewest in flight",
     add_svpp_faults},
    {ScheduleKind::slimpipe,
     slimpipe,
     {.most_virtual = any, .slices = true},
     "SlimPipe's, slices through virtual stages in lockstep; slices are a multiple of the ranks",
     add_slimpipe_faults},
    {ScheduleKind::mobius,
     mobius,
     {.most_virtual = any, .slices = true, .places_weight_gradients = false, .streams_parameters = true},
     "Mobius's, breadth_first with recomputation and parameters from the host"},
    {ScheduleKind::spipe,
     spipe,
     {.slices = true, .two_partitions = true, .places_weight_gradients = false, .streams_parameters = true},
     "SPipe's, forward and backward pass cut and dealt each for itself, parameters from the host"},
});

bool allows_virtual(const KindLimits& limits, std::int32_t value) {
  return !limits.two_partitions && value >= limits.least_virtual && value <= limits.most_virtual &&
         value % limits.virtual_multiple == 0;
}

/// "1 stage", "2 stages", "an even number of stages": of each rank.
std::string allowed_stages(const KindLimits& limits) {
  if (limits.least_virtual == limits.most_virtual) {
    return fmt::format("{} stage{}", limits.most_virtual, limits.most_virtual == 1 ? "" : "s");
  }
  if (limits.virtual_multiple == 2) return "an even number of stages";
  return fmt::format("at least {} stages", limits.least_virtual);
}

/// The names of the kinds whose limits fulfil `condition`.
template <class Condition>
std::string names_where(const Condition& condition) {
  std::vector<std::string_view> names;
  for (const KindEntry& entry : table) {
    if (condition(entry.limits)) names.push_back(deck_name(entry.kind));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void add_virtual_fault(const KindEntry& entry, const GeneratorOptions& options, std::vector<KindFault>& faults) {
  const std::int32_t asked = options.virtual_stages;
  if (entry.limits.two_partitions) {
    if (asked == 1) return;
    faults.push_back(
        {"schedule.virtual", fmt::format("{} counts its stages by forward_virtual and backward_virtual; leave out "
                                         "virtual, which is {}",
                                         deck_name(entry.kind), asked)});
  } else if (!allows_virtual(entry.limits, asked)) {
    const auto allows = [&](const KindLimits& limits) { return allows_virtual(limits, asked); };
    faults.push_back(
        {"schedule.virtual", fmt::format("{} has {} a rank, not {}; kinds that take {}: {}", deck_name(entry.kind),
                                         allowed_stages(entry.limits), asked, asked, names_where(allows))});
  }
}

void add_slice_fault(const KindEntry& entry, const GeneratorOptions& options, std::vector<KindFault>& faults) {
  if (entry.limits.slices || options.slices == 1) return;
  const std::string sliced = names_where([](const KindLimits& limits) { return limits.slices; });
  faults.push_back(
      {"schedule.slices", fmt::format("{} cuts no sequences, and {} slices were asked for; kinds with slices: {}",
                                      deck_name(entry.kind), options.slices, sliced.empty() ? "none" : sliced)});
}

void add_unused_faults(const KindEntry& entry, const GeneratorOptions& options, std::vector<KindFault>& faults) {
  const auto name = deck_name(entry.kind);
  if (options.forwards_first && !entry.limits.forwards_first) {
    faults.push_back({"schedule.forwards_first", fmt::format("{} itself says how many forwards come first; leave out "
                                                             "forwards_first",
                                                             name)});
  }
  if (entry.limits.two_partitions) return;
  const auto add = [&](const char* key, std::int32_t value, bool is_asked) {
    if (!is_asked) return;
    faults.push_back({key, fmt::format("{} has one partition of the layers; leave out {}, which is {}, and give "
                                       "virtual",
                                       name, key, value)});
  };
  add("schedule.forward_virtual", options.forward_virtual, options.forward_virtual != 1);
  add("schedule.backward_virtual", options.backward_virtual, options.backward_virtual != 1);
  add("schedule.forward_stages", options.forward_stages.value_or(0), options.forward_stages.has_value());
  add("schedule.backward_stages", options.backward_stages.value_or(0), options.backward_stages.has_value());
}

}  // namespace

std::span<const KindEntry> kind_table() {
  return table;
}

const KindEntry& entry_of(ScheduleKind kind) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const KindEntry& entry) { return entry.kind == kind; });
  require(found != table.end(), "a kind of schedule has no row in the table");
  return *found;
}

GeneratorOptions generator_options(const ScheduleOptions& schedule, std::int32_t pipeline, std::int32_t micro_batches) {
  return {.pipeline = pipeline,
          .virtual_stages = schedule.virtual_stages,
          .micro_batches = micro_batches,
          .slices = schedule.slices,
          .forwards_first = schedule.forwards_first,
          .forward_virtual = schedule.forward_virtual,
          .backward_virtual = schedule.backward_virtual,
          .forward_stages = schedule.forward_stages,
          .backward_stages = schedule.backward_stages,
          .exchange = exchange_rule(schedule.exchange, schedule.exchange_grain),
          .early_recompute = schedule.early_recompute};
}

void require_placeable(const ScheduleOptions& schedule, bool offloads_activations) {
  const bool has_places = !schedule.file && !entry_of(schedule.kind).limits.places_weight_gradients;
  if (!has_places && !offloads_activations) return;
  fail(ExitCode::bad_input,
       "schedule.weight_gradients: placed moves weight gradients away from their backward, and schedule {} {}; set "
       "whole",
       schedule.file.value_or(std::string{deck_name(schedule.kind)}),
       offloads_activations ? "would have to fetch its activations from the host again" : "has a place for them");
}

std::vector<KindFault> faults_of(ScheduleKind kind, const GeneratorOptions& options) {
  const KindEntry& entry = entry_of(kind);
  std::vector<KindFault> faults;
  add_virtual_fault(entry, options, faults);
  add_slice_fault(entry, options, faults);
  add_unused_faults(entry, options, faults);
  if (entry.add_faults != nullptr) entry.add_faults(options, faults);
  return faults;
}

const std::vector<std::string_view>& schedule_kinds() {
  static const std::vector<std::string_view> kinds = [] {
    std::vector<std::string_view> names;
    names.reserve(table.size());
    for (const KindEntry& entry : table) names.push_back(deck_name(entry.kind));
    return names;
  }();
  return kinds;
}

std::string_view help_on_kinds() {
  static const std::string help = [] {
    std::vector<std::string> parts;
    parts.reserve(table.size());
    for (const KindEntry& entry : table) parts.push_back(fmt::format("{}: {}", deck_name(entry.kind), entry.summary));
    return fmt::format("{}", fmt::join(parts, "; "));
  }();
  return help;
}

Schedule generate(std::string_view kind, const GeneratorOptions& options) {
  for (const KindEntry& entry : table) {
    if (deck_name(entry.kind) == kind) return entry.generator(options);
  }
  fail(ExitCode::bad_input, "there is no schedule kind '{}'; the kinds here are {}", kind,
       fmt::join(schedule_kinds(), ", "));
}

}  // namespace penstock
