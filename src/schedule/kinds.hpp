// SPDX-License-Identifier: Apache-2.0
//
// The kinds of training schedules: one table, a row a kind, from which `generate`, the deck's checks and its help
// follow. The names stand beside the enumerators, in schedule/options.hpp.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/generators.hpp"
#include "schedule/options.hpp"

namespace penstock {

/// A rule of a kind that options break.
struct KindFault {
  const char* key;   ///< the path of the deck's key: "schedule.virtual"
  std::string text;  ///< the rule with the numbers, and what to do
};

/// What the definition of a kind allows. A field of GeneratorOptions that a kind has no use for keeps its default.
struct KindLimits {
  static constexpr std::int32_t any = std::numeric_limits<std::int32_t>::max();

  std::int32_t least_virtual = 1;
  std::int32_t most_virtual = 1;
  std::int32_t virtual_multiple = 1;    ///< the virtual stages are a multiple of this
  bool slices = false;                  ///< sequences may be cut
  bool forwards_first = false;          ///< takes the number of forwards before the first backward
  bool two_partitions = false;          ///< forward_virtual and backward_virtual, in place of virtual_stages
  bool places_weight_gradients = true;  ///< weight gradients may be put where ranks wait
  bool has_whole_backwards = true;      ///< its lists hold B, which can be split
  bool streams_parameters = false;      ///< they come from the host, and stages are recomputed in full
};

struct KindEntry {
  ScheduleKind kind;
  Schedule (*generator)(const GeneratorOptions&);
  KindLimits limits;
  std::string_view summary;  ///< a few words, for the help
  /// Rules that limits cannot say; null where there are none.
  void (*add_faults)(const GeneratorOptions&, std::vector<KindFault>&) = nullptr;
};

/// In the order of the enumerators.
std::span<const KindEntry> kind_table();

const KindEntry& entry_of(ScheduleKind kind);

/// What the section `schedule` of a deck asks of a generator.
GeneratorOptions generator_options(const ScheduleOptions& schedule, std::int32_t pipeline, std::int32_t micro_batches);

/// Refuses weight gradients away from their backward where activations have left the device by then, or where the kind
/// has a place for them. @throws Error bad_input
void require_placeable(const ScheduleOptions& schedule, bool offloads_activations);

/// Every rule of the kind that the options break; empty if its generator takes them.
/// @pre sizes of at least 1
std::vector<KindFault> faults_of(ScheduleKind kind, const GeneratorOptions& options);

}  // namespace penstock
