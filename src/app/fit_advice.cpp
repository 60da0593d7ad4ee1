// SPDX-License-Identifier: Apache-2.0
#include "app/fit_advice.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/host_memory.hpp"
#include "app/job.hpp"
#include "app/modelled.hpp"
#include "base/error.hpp"
#include "config/checks.hpp"
#include "config/listing.hpp"
#include "config/reader.hpp"
#include "kernels/workers.hpp"
#include "plan/modelled_run.hpp"

namespace penstock {
namespace {

constexpr std::size_t most_shown = 10;
constexpr std::int64_t most_actions = 300'000;  // in all plans of a search: some seconds

/// A change with what the deck then needs.
struct PlannedChange {
  DeckChange change;
  Bytes bytes;
};

std::string bytes_text(Bytes bytes) {
  return fmt::format("{} ({} bytes)", to_text(bytes), bytes.value);
}

/// As the user types them.
std::string command_text(const std::vector<std::string>& settings) {
  std::vector<std::string> words;
  for (const std::string& setting : settings) {
    const bool is_plain = setting.find_first_of(" {}[]") == std::string::npos;
    words.push_back(is_plain ? "--set " + setting : fmt::format("--set '{}'", setting));
  }
  return fmt::format("{}", fmt::join(words, " "));
}

/// Whether two settings are of one key, or one of a section that the other's key is in.
bool are_of_one_key(std::string_view a, std::string_view b) {
  const auto key_a = a.substr(0, a.find('='));
  const auto key_b = b.substr(0, b.find('='));
  const auto is_within = [](std::string_view key, std::string_view section) {
    return key.starts_with(section) && (key.size() == section.size() || key[section.size()] == '.');
  };
  return is_within(key_a, key_b) || is_within(key_b, key_a);
}

class FitSearch {
 public:
  explicit FitSearch(const FitQuestion& question)
      : question_{question}, deck_text_{effective_deck(question.deck)}, unchanged_{planned({}).value_or(Bytes{})} {}

  std::string text(const std::vector<DeckChange>& changes) {
    plan_each(changes);
    if (singles_.empty()) return fmt::format("No change of the deck that was planned would leave less on {}.\n", who());
    std::string text = fmt::format("Planned with one change of the deck, {} needs:\n", who());
    for (std::size_t i = 0; i < std::min(singles_.size(), most_shown); ++i) text += line_of(singles_[i]);
    if (was_cut_short_) text += "  (further changes were not planned, as plans of this deck take long)\n";
    if (fits(singles_.front().bytes)) return text;
    return text + (may_combine() ? text_on_several() : "None of them fits.\n");
  }

 private:
  std::string_view who() const { return question_.who; }
  bool fits(Bytes bytes) const { return bytes <= question_.capacity; }

  /// What a changed deck needs; nothing if it cannot run, or is the deck as it was.
  std::optional<Bytes> planned(const std::vector<std::string>& settings) {
    if (actions_ > most_actions) {
      was_cut_short_ = true;
      return std::nullopt;
    }
    try {
      const Deck changed = parse_deck(deck_text_, question_.deck_path, settings, DeckUse::model);
      if (!settings.empty() && changed == question_.deck) return std::nullopt;
      const PlannedNeed need = question_.need(changed);
      actions_ += need.actions;
      return need.bytes;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  void plan_each(const std::vector<DeckChange>& changes) {
    for (const DeckChange& change : changes) {
      const auto bytes = planned(change.settings);
      if (bytes && *bytes < unchanged_) singles_.push_back({change, *bytes});
    }
    std::stable_sort(singles_.begin(), singles_.end(),
                     [](const PlannedChange& a, const PlannedChange& b) { return a.bytes < b.bytes; });
  }

  std::string line_of(const PlannedChange& planned) const {
    std::string_view remark;
    if (planned.change.cost == ChangeCost::ranks) remark = ", on more ranks";
    if (planned.change.cost == ChangeCost::other_model) remark = ", but other training";
    const DeckChange& change = planned.change;
    return fmt::format("  {:<52} {}{}{}\n", change.shown.empty() ? command_text(change.settings) : change.shown,
                       bytes_text(planned.bytes), fits(planned.bytes) ? ": fits" : "", remark);
  }

  bool may_combine() const {
    return std::any_of(singles_.begin(), singles_.end(),
                       [](const PlannedChange& single) { return single.change.cost == ChangeCost::nothing; });
  }

  /// Adds the changes best first, each if it then leaves less still; those that ask for more ranks come last.
  void combine() {
    for (const ChangeCost cost : {ChangeCost::nothing, ChangeCost::ranks}) {
      for (const PlannedChange& single : singles_) {
        if (single.change.cost == cost && !fits(together_)) add(single.change);
      }
    }
  }

  void add(const DeckChange& change) {
    const bool is_settled = std::any_of(settings_.begin(), settings_.end(), [&](const std::string& setting) {
      return are_of_one_key(setting, change.settings.front());
    });
    if (is_settled) return;
    auto with = settings_;
    with.insert(with.end(), change.settings.begin(), change.settings.end());
    const auto bytes = planned(with);
    if (!bytes || *bytes >= together_) return;
    settings_ = std::move(with);
    together_ = *bytes;
  }

  /// Leaves out what the others do not need.
  void thin_out() {
    for (std::size_t i = 0; i < settings_.size();) {
      auto without = settings_;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      const auto bytes = planned(without);
      if (!bytes || !fits(*bytes)) {
        ++i;
        continue;
      }
      settings_ = std::move(without);
      together_ = *bytes;
    }
  }

  std::string text_on_several() {
    together_ = unchanged_;
    combine();
    if (settings_.empty()) return "None of them fits.\n";
    if (!fits(together_)) {
      return fmt::format("None of them fits, nor several together: {} needs {} with {}.\n", who(),
                         bytes_text(together_), command_text(settings_));
    }
    thin_out();
    return fmt::format("None of them fits alone; together these do, with {}:\n  {}\n", bytes_text(together_),
                       command_text(settings_));
  }

  const FitQuestion& question_;
  std::int64_t actions_ = 0;
  bool was_cut_short_ = false;
  std::string deck_text_;
  Bytes unchanged_;
  std::vector<PlannedChange> singles_;
  std::vector<std::string> settings_;  // those that together leave least so far
  Bytes together_;
};

std::int64_t actions_of(const Schedule& schedule) {
  std::int64_t actions = 0;
  for (const auto& list : schedule.actions) actions += static_cast<std::int64_t>(list.size());
  return actions;
}

RunPlan plan_of(const Deck& deck, const std::string& deck_path, const Kernels& kernels, Purpose purpose) {
  refuse_what_cannot_run(deck);
  RunShape shape = run_shape(deck, deck_path);
  shape.purpose = purpose;
  return make_run_plan(shape, kernels);
}

Advice advice_on_devices(const Deck& deck, const std::string& deck_path, Purpose purpose,
                         std::vector<DeckChange> changes) {
  return [&deck, &deck_path, purpose, changes = std::move(changes)] {
    Workers workers{deck.device.threads};
    const auto kernels = make_host_kernels(workers);
    const auto need = [&](const Deck& changed) {
      const RunPlan plan = plan_of(changed, deck_path, *kernels, purpose);
      return PlannedNeed{largest_rank_plan(plan).peak, actions_of(plan.training.schedule)};
    };
    return advice_to_fit({deck, deck_path, "the largest rank", deck.memory.device, need}, changes);
  };
}

}  // namespace

std::string advice_to_fit(const FitQuestion& question, const std::vector<DeckChange>& changes) {
  return FitSearch{question}.text(changes);
}

Advice device_advice(const Deck& deck, const std::string& deck_path) {
  return advice_on_devices(deck, deck_path, Purpose::training, changes_for_memory(deck));
}

Advice generation_advice(const Deck& deck, const std::string& checkpoint) {
  return advice_on_devices(deck, checkpoint, Purpose::text, changes_for_generation(deck));
}

Advice node_advice(const Deck& deck, const std::string& deck_path, Bytes capacity) {
  return [&deck, &deck_path, capacity] {
    Workers workers{deck.device.threads};
    const auto kernels = make_host_kernels(workers);
    const auto need = [&](const Deck& changed) {
      const RunPlan plan = plan_of(changed, deck_path, *kernels, Purpose::training);
      check_fits(plan);  // what is spared on the host must not be too much for a device
      return PlannedNeed{largest_node(plan, changed).bytes.total(), actions_of(plan.training.schedule)};
    };
    return advice_to_fit({deck, deck_path, "the largest node", capacity, need}, changes_for_memory(deck));
  };
}

Advice modelled_advice(const Deck& deck, const std::string& deck_path, const HardwareOptions& hardware) {
  return [&] {
    const auto need = [&](const Deck& changed) {
      const Priced priced = price_valid(modelled_run(changed, hardware));
      return PlannedNeed{most_planned_bytes(priced), actions_of(priced.schedule)};
    };
    return advice_to_fit({deck, deck_path, "the largest rank", device_capacity(deck, hardware), need},
                         changes_for_memory(deck));
  };
}

}  // namespace penstock
