// SPDX-License-Identifier: Apache-2.0
#include "app/deck_changes.hpp"

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "schedule/recompute.hpp"

namespace penstock {
namespace {

/// Collects changes; which of them a deck can have, and which change it at all, is found out when they are planned.
class Changes {
 public:
  explicit Changes(const Deck& deck) : deck_{deck} {}

  void add(std::string setting, ChangeCost cost = ChangeCost::nothing) {
    changes_.push_back({{std::move(setting)}, cost, {}});
  }
  void add(std::vector<std::string> settings) { changes_.push_back({std::move(settings), ChangeCost::nothing, {}}); }
  std::vector<DeckChange> take() { return std::move(changes_); }

  void add_kept() {
    for (const Recompute mode : {Recompute::attention, Recompute::selective, Recompute::layers, Recompute::full}) {
      std::vector settings{fmt::format("memory.recompute={}", deck_name(mode))};
      if (deck_.memory.recompute_by_stage) settings.emplace_back("memory.recompute_by_stage=null");
      add(std::move(settings));
    }
    for (const char* share : {"0", "0.5", "0.8", "1"}) add(fmt::format("memory.offload_activations={}", share));
    add("memory.rollback=inverse");
    if (deck_.schedule.weight_gradients != WeightGradients::whole) add("schedule.weight_gradients=whole");
  }

  void add_places() {
    add("memory.parameters=host");
    if (deck_.memory.resident_stages > 1) add("memory.resident_stages=1");
    if (!deck_.schedule.vocabulary_parallel) add("schedule.vocabulary_parallel=true");
  }

  void add_cuts() {
    const ScheduleOptions& schedule = deck_.schedule;
    for (const std::int32_t times : {2, 4}) add(fmt::format("schedule.slices={}", times * schedule.slices));
    add(fmt::format("schedule.virtual={}", 2 * schedule.virtual_stages));
    add(fmt::format("schedule.forward_virtual={}", 2 * schedule.forward_virtual));
    add(fmt::format("schedule.backward_virtual={}", 2 * schedule.backward_virtual));
    if (deck_.training.micro_batch > 1) add("training.micro_batch=1");
  }

  void add_kinds() {
    if (deck_.schedule.file) return;
    add("schedule={kind: 1f1b}");
    add("schedule={kind: zb_h1}");
    add("schedule={kind: v_min, virtual: 2}");
    if (deck_.schedule.slices == 1) add("schedule={kind: seq1f1b, slices: 4}");
    const std::int32_t most_virtual = deck_.model.layers / deck_.parallel.pipeline;
    add(fmt::format("schedule={{kind: mobius, virtual: {}}}", most_virtual));
  }

  void add_ranks() {
    if (deck_.schedule.file) return;
    for (const std::int32_t ranks : numbers_of_ranks()) {
      DeckChange change{{fmt::format("parallel.pipeline={}", ranks)}, ChangeCost::ranks, {}};
      if (deck_.parallel.layers_per_stage) change.settings.emplace_back("parallel.layers_per_stage=null");
      changes_.push_back(change);
      if (ranks == 2 * deck_.parallel.pipeline) add_with_fewer_stages(std::move(change));
    }
  }

  /// Where the command line says nothing of ranks but mpirun does.
  void add_started_ranks() {
    for (const std::int32_t ranks : numbers_of_ranks()) {
      changes_.push_back(
          {{fmt::format("parallel.pipeline={}", ranks)}, ChangeCost::ranks, fmt::format("start {} ranks", ranks)});
    }
  }

  void add_shorter() {
    if (deck_.training.sequence > 1)
      add(fmt::format("training.sequence={}", deck_.training.sequence / 2), ChangeCost::other_model);
  }

 private:
  /// One more, since any number may do, and twice as many; no more than there are layers.
  std::vector<std::int32_t> numbers_of_ranks() const {
    std::vector<std::int32_t> numbers;
    for (const std::int32_t ranks : {deck_.parallel.pipeline + 1, 2 * deck_.parallel.pipeline}) {
      if (ranks > deck_.model.layers || (!numbers.empty() && ranks == numbers.back())) continue;
      numbers.push_back(ranks);
    }
    return numbers;
  }

  /// Twice as many ranks may ask for more stages than there are layers: half as many on each.
  void add_with_fewer_stages(DeckChange change) {
    const ScheduleOptions& schedule = deck_.schedule;
    const std::size_t before = change.settings.size();
    const auto halve = [&](std::string_view key, std::int32_t stages) {
      if (stages > 1) change.settings.push_back(fmt::format("schedule.{}={}", key, stages / 2));
    };
    halve("virtual", schedule.virtual_stages);
    halve("forward_virtual", schedule.forward_virtual);
    halve("backward_virtual", schedule.backward_virtual);
    if (change.settings.size() > before) changes_.push_back(std::move(change));
  }

  const Deck& deck_;
  std::vector<DeckChange> changes_;
};

}  // namespace

std::vector<DeckChange> changes_for_memory(const Deck& deck) {
  Changes changes{deck};
  changes.add_kept();
  changes.add_places();
  changes.add_cuts();
  changes.add_ranks();
  changes.add_kinds();
  changes.add_shorter();
  return changes.take();
}

std::vector<DeckChange> changes_for_generation(const Deck& deck) {
  Changes changes{deck};
  changes.add_started_ranks();
  changes.add_shorter();
  return changes.take();
}

}  // namespace penstock
