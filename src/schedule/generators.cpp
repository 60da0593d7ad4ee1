// SPDX-License-Identifier: Apache-2.0
#include "schedule/generators.hpp"

#include <algorithm>
#include <queue>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"

namespace penstock {

namespace {

/// Forwards of all stages that one schedule may hold; more is a slip of the pen, and would only fill memory.
constexpr std::int64_t most_forwards = 10'000'000;

void check_positive(const char* what, std::int32_t value) {
  if (value < 1) fail(ExitCode::bad_input, "a schedule with {} {} was asked for; expected at least 1", value, what);
}

void check(const GeneratorOptions& options) {
  check_positive("pipeline ranks", options.pipeline);
  check_positive("virtual stages", options.virtual_stages);
  check_positive("micro-batches", options.micro_batches);
  // In two steps: the product of three 32-bit numbers can pass 64 bits.
  const std::int64_t stages = std::int64_t{options.pipeline} * options.virtual_stages;
  if (stages > most_forwards || stages * options.micro_batches > most_forwards) {
    fail(ExitCode::bad_input,
         "pipeline {} x virtual stages {} x micro-batches {} is more than {} forwards in one step; use fewer "
         "micro-batches",
         options.pipeline, options.virtual_stages, options.micro_batches, most_forwards);
  }
}

Schedule empty_schedule(std::string name, const GeneratorOptions& options) {
  Schedule schedule;
  schedule.name = std::move(name);
  schedule.shape = {options.pipeline, options.pipeline * options.virtual_stages, options.micro_batches, 1};
  for (const Stage stage : all<Stage>(schedule.shape.stages)) {
    schedule.rank_of.push_back(Rank{stage.value() % options.pipeline});
  }
  schedule.recompute = PerStage<bool>(schedule.shape.stages, false);
  schedule.actions = PerRank<std::vector<Action>>(options.pipeline);
  return schedule;
}

Action action_of(Op op, Stage stage, std::int32_t micro_batch) {
  return {op, stage, MicroBatch{micro_batch}, Slice{0}};
}

Stage stage_of(const GeneratorOptions& options, Rank rank, std::int32_t chunk) {
  return Stage{chunk * options.pipeline + rank.value()};
}

/// One rank's forwards and backwards, each in its order, taken in turn after `warm_up` forwards.
std::vector<Action> one_in_turn(const std::vector<Action>& forwards, const std::vector<Action>& backwards,
                                std::size_t warm_up) {
  std::vector<Action> actions{forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(warm_up)};
  for (std::size_t i = 0; i < backwards.size(); ++i) {
    if (warm_up + i < forwards.size()) actions.push_back(forwards[warm_up + i]);
    actions.push_back(backwards[i]);
  }
  return actions;
}

/// The k-th forward or backward of a rank in interleaved order: p micro-batches through a chunk, then the next chunk.
Action interleaved_action(const GeneratorOptions& options, Op op, Rank rank, std::int32_t k) {
  const std::int32_t p = options.pipeline;
  const std::int32_t v = options.virtual_stages;
  const std::int32_t forward_chunk = k / p % v;
  const std::int32_t chunk = op == Op::forward ? forward_chunk : v - 1 - forward_chunk;
  return action_of(op, stage_of(options, rank, chunk), k / (p * v) * p + k % p);
}

/// The rank's actions for options.micro_batches, a multiple of the ranks.
std::vector<Action> interleaved_actions(const GeneratorOptions& options, Rank rank) {
  const std::int32_t p = options.pipeline;
  const std::int32_t total = options.virtual_stages * options.micro_batches;
  std::vector<Action> forwards;
  std::vector<Action> backwards;
  for (std::int32_t k = 0; k < total; ++k) {
    forwards.push_back(interleaved_action(options, Op::forward, rank, k));
    backwards.push_back(interleaved_action(options, Op::backward, rank, k));
  }
  const std::int32_t warm_up = std::min(total, (options.virtual_stages - 1) * p + 2 * (p - 1 - rank.value()));
  return one_in_turn(forwards, backwards, static_cast<std::size_t>(warm_up));
}

/// The options with micro-batches rounded up to a multiple of the ranks.
GeneratorOptions rounded_up(GeneratorOptions options) {
  options.micro_batches = static_cast<std::int32_t>(round_up(options.micro_batches, options.pipeline));
  return options;
}

/// Takes away micro-batches that only filled the last group. No action of another micro-batch needs one of theirs, so
/// what is left can run wherever the whole could.
void erase_from(std::vector<Action>& actions, std::int32_t micro_batches) {
  const auto is_beyond = [&](const Action& action) { return action.micro_batch.value() >= micro_batches; };
  actions.erase(std::remove_if(actions.begin(), actions.end(), is_beyond), actions.end());
}

/// Runs forwards of one unit each, at each moment on each rank the deepest stage that is ready.
class ForwardsInTime {
 public:
  explicit ForwardsInTime(const Schedule& schedule) : schedule_{schedule}, ready_(schedule.shape.ranks) {
    for (const MicroBatch micro_batch : all<MicroBatch>(schedule.shape.micro_batches)) {
      make_ready({Op::forward, Stage{0}, micro_batch, Slice{0}});
    }
  }

  PerRank<std::vector<Action>> run() {
    PerRank<std::vector<Action>> actions(schedule_.shape.ranks);
    std::int64_t left = std::int64_t{schedule_.shape.stages} * schedule_.shape.micro_batches;
    while (left > 0) {
      std::vector<Action> done;
      for (const Rank rank : all<Rank>(schedule_.shape.ranks)) {
        if (ready_[rank].empty()) continue;
        done.push_back(ready_[rank].top());
        ready_[rank].pop();
        actions[rank].push_back(done.back());
      }
      left -= static_cast<std::int64_t>(done.size());
      for (Action action : done) {
        action.stage = action.stage.next();
        if (action.stage.value() < schedule_.shape.stages) make_ready(action);
      }
    }
    return actions;
  }

 private:
  struct RunsLater {
    bool operator()(const Action& a, const Action& b) const {
      return a.stage != b.stage ? a.stage < b.stage : a.micro_batch > b.micro_batch;
    }
  };
  void make_ready(const Action& action) { ready_[schedule_.rank_of[action.stage]].push(action); }

  const Schedule& schedule_;
  PerRank<std::priority_queue<Action, std::vector<Action>, RunsLater>> ready_;
};

}  // namespace

Schedule gpipe(const GeneratorOptions& options) {
  check(options);
  Schedule schedule = empty_schedule("gpipe", options);
  for (const Rank rank : all<Rank>(options.pipeline)) {
    for (std::int32_t chunk = 0; chunk < options.virtual_stages; ++chunk) {
      for (std::int32_t m = 0; m < options.micro_batches; ++m) {
        schedule.actions[rank].push_back(action_of(Op::forward, stage_of(options, rank, chunk), m));
      }
    }
    for (std::int32_t chunk = options.virtual_stages; chunk-- > 0;) {
      for (std::int32_t m = 0; m < options.micro_batches; ++m) {
        schedule.actions[rank].push_back(action_of(Op::backward, stage_of(options, rank, chunk), m));
      }
    }
  }
  return schedule;
}

Schedule one_f_one_b(const GeneratorOptions& options) {
  check(options);
  if (options.virtual_stages != 1) {
    fail(ExitCode::bad_input,
         "1f1b has one stage per rank, and {} virtual stages were asked for; use interleaved for these",
         options.virtual_stages);
  }
  Schedule schedule = empty_schedule("1f1b", options);
  for (const Rank rank : all<Rank>(options.pipeline)) {
    std::vector<Action> forwards;
    std::vector<Action> backwards;
    for (std::int32_t m = 0; m < options.micro_batches; ++m) {
      forwards.push_back(action_of(Op::forward, Stage{rank.value()}, m));
      backwards.push_back(action_of(Op::backward, Stage{rank.value()}, m));
    }
    const std::int32_t warm_up = std::min(options.micro_batches, options.pipeline - 1 - rank.value());
    schedule.actions[rank] = one_in_turn(forwards, backwards, static_cast<std::size_t>(warm_up));
  }
  return schedule;
}

Schedule interleaved(const GeneratorOptions& options) {
  check(options);
  Schedule schedule = options.virtual_stages == 1 ? one_f_one_b(options) : empty_schedule("", options);
  schedule.name = fmt::format("interleaved v={}", options.virtual_stages);
  if (options.virtual_stages == 1) return schedule;
  for (const Rank rank : all<Rank>(options.pipeline)) {
    schedule.actions[rank] = interleaved_actions(rounded_up(options), rank);
    erase_from(schedule.actions[rank], options.micro_batches);
  }
  return schedule;
}

Schedule forward_only(const PerStage<Rank>& rank_of, std::int32_t micro_batches) {
  check({rank_of.size(), 1, micro_batches});
  Schedule schedule;
  schedule.name = "forward_only";
  const Rank last_rank = *std::max_element(rank_of.begin(), rank_of.end());
  schedule.shape = {last_rank.value() + 1, rank_of.size(), micro_batches, 1};
  schedule.rank_of = rank_of;
  schedule.forward_only = true;
  schedule.recompute = PerStage<bool>(rank_of.size(), false);
  schedule.actions = ForwardsInTime{schedule}.run();
  return schedule;
}

const std::vector<std::string_view>& schedule_kinds() {
  static const std::vector<std::string_view> kinds{"gpipe", "1f1b", "interleaved"};
  return kinds;
}

Schedule generate(std::string_view kind, const GeneratorOptions& options) {
  if (kind == "gpipe") return gpipe(options);
  if (kind == "1f1b") return one_f_one_b(options);
  if (kind == "interleaved") return interleaved(options);
  fail(ExitCode::bad_input, "there is no schedule kind '{}'; the kinds here are {}", kind,
       fmt::join(schedule_kinds(), ", "));
}

}  // namespace penstock
