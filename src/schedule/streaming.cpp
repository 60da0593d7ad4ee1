// SPDX-License-Identifier: Apache-2.0
#include "schedule/streaming.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "schedule/action.hpp"
#include "schedule/semantics.hpp"

namespace penstock {

namespace {

bool ends_stay_of_activations(Op op) {
  return op == Op::backward || op == Op::backward_input;
}

/// A list with more actions set behind its positions; position -1 is the front.
class Insertions {
 public:
  explicit Insertions(const std::vector<Action>& list) : list_{list}, behind_(list.size() + 1) {}

  void add(std::int32_t position, const Action& action) {
    behind_[static_cast<std::size_t>(position) + 1].push_back(action);
  }

  std::vector<Action> result() const {
    std::vector<Action> result = behind_.front();
    for (std::size_t position = 0; position < list_.size(); ++position) {
      result.push_back(list_[position]);
      result.insert(result.end(), behind_[position + 1].begin(), behind_[position + 1].end());
    }
    return result;
  }

 private:
  const std::vector<Action>& list_;
  std::vector<std::vector<Action>> behind_;
};

// --- parameters ---

/// Neighbouring actions of one rank that read the same parameters, but for those between them that read none.
struct Visit {
  std::pair<Pass, Stage> parameters;
  std::int32_t first = 0;  // list positions
  std::int32_t last = 0;
  std::size_t next = std::numeric_limits<std::size_t>::max();  // the next visit with the same parameters
};

std::vector<Visit> visits_of(const Schedule& schedule, const std::vector<Action>& list) {
  std::vector<Visit> visits;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!reads_parameters(list[i].op)) continue;
    const auto position = static_cast<std::int32_t>(i);
    const Pass pass = schedule.backward ? pass_of(list[i].op) : Pass::forward;
    const std::pair parameters{pass, list[i].stage};
    if (!visits.empty() && visits.back().parameters == parameters) {
      visits.back().last = position;
    } else {
      visits.push_back({parameters, position, position});
    }
  }
  std::map<std::pair<Pass, Stage>, std::size_t> next;
  for (std::size_t i = visits.size(); i-- > 0;) {
    const auto found = next.find(visits[i].parameters);
    if (found != next.end()) visits[i].next = found->second;
    next[visits[i].parameters] = i;
  }
  return visits;
}

/// Decides one rank's stays on the device.
class Residence {
 public:
  Residence(const std::vector<Action>& list, std::vector<Visit> visits, std::int32_t places)
      : list_{list}, visits_{std::move(visits)}, places_{static_cast<std::size_t>(places)}, insertions_{list} {}

  std::vector<Action> run() {
    for (std::size_t i = 0; i < visits_.size(); ++i) visit(i);
    for (const std::size_t latest : resident_) evict(latest);
    return insertions_.result();
  }

 private:
  void visit(std::size_t i) {
    const auto here = std::find_if(resident_.begin(), resident_.end(), [&](std::size_t latest) {
      return visits_[latest].parameters == visits_[i].parameters;
    });
    if (here != resident_.end()) {
      *here = i;
      return;
    }
    std::int32_t free_after = -1;
    if (resident_.size() == places_) {
      const auto victim = choose_victim(i);
      free_after = visits_[*victim].last;
      evict(*victim);
      resident_.erase(victim);
    }
    const Action& first = list_[static_cast<std::size_t>(visits_[i].first)];
    const Op op = pass_of(first.op) == Pass::forward ? Op::fetch_forward : Op::fetch_backward;
    insertions_.add(free_after, {op, first.stage, first.micro_batch, first.slice});
    resident_.push_back(i);
  }

  /// Of the resident stages (each by its latest visit) the one that is needed last; of several, that idle for longest.
  std::vector<std::size_t>::iterator choose_victim(std::size_t i) {
    const auto is_better = [&](std::size_t a, std::size_t b) {
      const bool a_is_previous = a + 1 == i;
      const bool b_is_previous = b + 1 == i;
      if (a_is_previous != b_is_previous) return b_is_previous;
      return visits_[a].next != visits_[b].next ? visits_[a].next > visits_[b].next : a < b;
    };
    return std::min_element(resident_.begin(), resident_.end(), is_better);
  }

  void evict(std::size_t visit) {
    const Action& last = list_[static_cast<std::size_t>(visits_[visit].last)];
    const Op op = pass_of(last.op) == Pass::forward ? Op::evict_forward : Op::evict_backward;
    insertions_.add(visits_[visit].last, {op, last.stage, last.micro_batch, last.slice});
  }

  const std::vector<Action>& list_;
  std::vector<Visit> visits_;
  std::size_t places_;
  Insertions insertions_;
  std::vector<std::size_t> resident_;  // the latest visit of each
};

/// A stay is named by the first or the last action that it serves. Where a stage comes back for the backward of a slice
/// whose R it was there for, two have one name: then the second counts the first.
void number_stays(std::vector<Action>& list) {
  std::map<Action, std::uint8_t> stays;  // of each name so far: at most two, as a slice has one R and one B or I
  for (Action& action : list) {
    if (!begins_or_ends_stay(action.op)) continue;
    const std::uint8_t before = stays[action]++;
    action.part = before;
  }
}

// --- activations ---

/// A forward (or R) and the backward that uses what it keeps; positions among the rank's compute actions.
struct Stay {
  Action filled_by;
  std::int32_t filled = 0;
  std::int32_t used = 0;
};

std::vector<Stay> stays_of(const Schedule& schedule, const std::vector<Action>& list) {
  std::map<std::tuple<Stage, MicroBatch, Slice>, Stay> open;
  std::vector<Stay> stays;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Action& action = list[i];
    const std::tuple cell{action.stage, action.micro_batch, action.slice};
    const bool recomputed =
        schedule.backward || (schedule.recompute.contains(action.stage) && schedule.recompute[action.stage]);
    if (action.op == (recomputed ? Op::recompute : Op::forward)) {
      open[cell] = {action, static_cast<std::int32_t>(i), 0};
    } else if (ends_stay_of_activations(action.op) && open.count(cell) > 0) {
      stays.push_back(open[cell]);
      stays.back().used = static_cast<std::int32_t>(i);
      open.erase(cell);
    }
  }
  return stays;
}

std::vector<Action> with_offload(const Schedule& schedule, const std::vector<Action>& list, std::int32_t nearest) {
  struct Trip {
    Action filled_by;
    std::int32_t leaves = 0;  // list positions
    std::int32_t returns = 0;
  };
  std::vector<Trip> trips;
  const auto stays = stays_of(schedule, list);  // in the order of their backwards
  for (std::size_t i = 0; i < stays.size(); ++i) {
    const Stay& stay = stays[i];
    // One place before the backward action that comes before, but not before the activations have left.
    const std::int32_t returns = (i == 0 ? stay.used : stays[i - 1].used) - 1;
    if (stay.used - stay.filled - 1 <= nearest || returns <= stay.filled) continue;
    trips.push_back({stay.filled_by, stay.filled, returns});
  }
  Insertions insertions{list};
  const auto add = [&](std::int32_t position, Op op, const Action& of) {
    insertions.add(position, {op, of.stage, of.micro_batch, of.slice});
  };
  // What leaves at a place goes before what returns there: it makes room.
  for (const Trip& trip : trips) add(trip.leaves, Op::offload_activations, trip.filled_by);
  for (const Trip& trip : trips) add(trip.returns, Op::reload_activations, trip.filled_by);
  return insertions.result();
}

}  // namespace

Schedule add_parameter_streaming(const Schedule& schedule, std::int32_t resident_stages) {
  if (resident_stages < 1) {
    fail(ExitCode::bad_input, "{} stages are to be resident on a device; expected at least the one that computes",
         resident_stages);
  }
  Schedule result = schedule;
  result.streams_parameters = true;
  for (const Rank rank : all<Rank>(schedule.actions.size())) {
    const auto& list = schedule.actions[rank];
    result.actions[rank] = Residence{list, visits_of(schedule, list), resident_stages}.run();
    number_stays(result.actions[rank]);
  }
  return result;
}

Schedule add_activation_offload(const Schedule& schedule, std::int32_t nearest) {
  Schedule result = schedule;
  result.offloads_activations = true;
  for (const Rank rank : all<Rank>(schedule.actions.size())) {
    result.actions[rank] = with_offload(schedule, schedule.actions[rank], nearest);
  }
  return result;
}

}  // namespace penstock
