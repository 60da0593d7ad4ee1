// SPDX-License-Identifier: Apache-2.0
#include "config/kind_keys.hpp"

#include <array>
#include <string>

#include <fmt/format.h>

#include "config/listing.hpp"
#include "schedule/kinds.hpp"

namespace penstock {
namespace {

struct KindKey {
  std::string_view key;
  bool (*has_use)(const KindEntry&);
  void (*set_default)(ScheduleOptions&);
};

template <auto Member>
void reset(ScheduleOptions& schedule) {
  schedule.*Member = ScheduleOptions{}.*Member;
}

bool takes_virtual(const KindEntry& entry) {
  return !entry.limits.two_partitions && entry.limits.most_virtual > 1;
}

bool cuts(const KindEntry& entry) {
  return entry.limits.slices;
}

bool decouples(const KindEntry& entry) {
  return entry.limits.two_partitions;
}

bool chooses_forwards(const KindEntry& entry) {
  return entry.limits.forwards_first;
}

bool streams(const KindEntry& entry) {
  return entry.limits.streams_parameters;
}

bool has_lockstep(const KindEntry& entry) {
  return entry.kind == ScheduleKind::slimpipe;
}

constexpr auto kind_keys = std::to_array<KindKey>({
    {"schedule.virtual", takes_virtual, reset<&ScheduleOptions::virtual_stages>},
    {"schedule.slices", cuts, reset<&ScheduleOptions::slices>},
    {"schedule.cutting", cuts, reset<&ScheduleOptions::cutting>},
    {"schedule.forwards_first", chooses_forwards, reset<&ScheduleOptions::forwards_first>},
    {"schedule.forward_stages", decouples, reset<&ScheduleOptions::forward_stages>},
    {"schedule.backward_stages", decouples, reset<&ScheduleOptions::backward_stages>},
    {"schedule.forward_virtual", decouples, reset<&ScheduleOptions::forward_virtual>},
    {"schedule.backward_virtual", decouples, reset<&ScheduleOptions::backward_virtual>},
    {"schedule.early_recompute", streams, reset<&ScheduleOptions::early_recompute>},
    {"schedule.checkpoint_messages", decouples, reset<&ScheduleOptions::checkpoint_messages>},
    {"schedule.exchange", has_lockstep, reset<&ScheduleOptions::exchange>},
    {"schedule.exchange_grain", has_lockstep, reset<&ScheduleOptions::exchange_grain>},
    {"schedule.vocabulary_parallel", has_lockstep, reset<&ScheduleOptions::vocabulary_parallel>},
});

}  // namespace

std::vector<BrokenRule> set_aside_keys_of_other_kinds(Deck& deck,
                                                      const std::function<bool(std::string_view key)>& stands_in_file) {
  const KindEntry& kind = entry_of(deck.schedule.kind);
  const auto given = list_keys(deck);
  std::vector<BrokenRule> notes;
  for (const KindKey& row : kind_keys) {
    if (row.has_use(kind) || !stands_in_file(row.key)) continue;
    const ScheduleOptions before = deck.schedule;
    row.set_default(deck.schedule);
    if (deck.schedule == before) continue;
    notes.push_back({{std::string{row.key}, "schedule.kind"},
                     fmt::format("is {} in the deck, which {} has no use for: it counts as left out",
                                 *entry_at(given, row.key).value, deck_name(deck.schedule.kind))});
  }
  return notes;
}

}  // namespace penstock
