// SPDX-License-Identifier: Apache-2.0
//
// What it saves that a training step begins while the optimizer's STEPs of the one before go on: the deck's schedule on
// the priced device, with real ranks, messages and versions of the parameters, several steps in a row. In turns each
// rank begins the next step at once (Executor::run_to_tail, as in training), or finishes its STEPs first. Either way a
// fetch waits until the stages it reads have been stepped, on whatever rank.
// Usage: mpirun -n RANKS benchmark_step_overlap DECK [STEPS [TURNS [KEY=VALUE ...]]]
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "app/modelled.hpp"
#include "app/priced_rank.hpp"
#include "app/with_mpi.hpp"
#include "base/error.hpp"
#include "schedule/semantics.hpp"
#include "store/parameter_store.hpp"

namespace penstock {
namespace {

/// The backward stages that have layers of the forward stage.
PerStage<std::vector<Stage>> stages_under_forwards(const CostShape& shape) {
  PerStage<std::vector<Stage>> under(shape.forward_stages.size());
  for (const Stage forward : all<Stage>(under.size())) {
    const LayerRange& layers = shape.forward_stages[forward];
    for (const Stage stage : all<Stage>(shape.backward().size())) {
      const LayerRange& stepped = shape.backward()[stage];
      if (stepped.begin < layers.end && layers.begin < stepped.end) under[forward].push_back(stage);
    }
  }
  return under;
}

/// Each rank's stages as the store has them; nobody reads a parameter here, so a byte stands for all of a stage.
SharedStages versions_alone(const Schedule& schedule) {
  const auto& owners = schedule.ranks(Pass::backward);
  return {owners, PerStage<Bytes>(owners.size(), Bytes{1})};
}

/// Priced actions whose fetches wait for the final updates of the step before, as ParameterFetch does in training.
class VersionedWork : public PricedWork {
 public:
  VersionedWork(Parts parts, const CostShape& shape, ParameterStore& store)
      : PricedWork{std::move(parts)},
        under_forwards_{stages_under_forwards(shape)},
        final_op_{steps_wait_of(*this->parts().schedule) == StepsWait::speculative ? Op::undo : Op::step},
        store_{store} {}

  /// Before each run; STEPs of the run before may still be under way.
  void begin_step(std::int64_t step) { begun_ = step; }

  void cpu(const Action& action) override {
    if (action.op == Op::reduce) step_ = begun_;
    PricedWork::cpu(action);
    if (action.op == final_op_) store_.publish(action.stage, step_);
  }

  Event copy(const Action& action, const CopyPlace& place, std::vector<Event> after) override {
    if (action.op == Op::fetch_forward || action.op == Op::fetch_backward) {
      place.queue->submit(std::exchange(after, {}), [this, action, version = begun_ - 1] {
        if (action.op == Op::fetch_backward) return store_.wait_for(action.stage, version);
        for (const Stage stage : under_forwards_[action.stage]) store_.wait_for(stage, version);
      });
    }
    return PricedWork::copy(action, place, std::move(after));
  }

 private:
  PerStage<std::vector<Stage>> under_forwards_;
  Op final_op_;
  ParameterStore& store_;
  std::int64_t begun_ = 0;
  std::int64_t step_ = 0;  // of the CPU lane
};

enum class Begins : std::uint8_t { at_once, when_stepped };

class Steps {
 public:
  Steps(const PricedSchedule& priced, const Communicator& world, Bytes capacity)
      : world_{world},
        store_{world, versions_alone(priced.schedule()), {}},
        rank_{priced, world, capacity, {}, std::nullopt},
        work_{rank_.work().parts(), priced.shape(), store_},
        executor_{priced.schedule(), priced.plans()[Rank{world.rank()}], rank_.resources(work_)} {
    const auto& owners = priced.schedule().ranks(Pass::backward);
    for (const Stage stage : all<Stage>(owners.size())) {
      if (owners[stage] == Rank{world.rank()}) store_.publish(stage, 0);
    }
  }

  /// Seconds a step of `count` steps in a row, from a common start to the end of the last STEP of all ranks.
  double seconds(int count, Begins begins) {
    world_.barrier();
    const Seconds begin = now();
    for (int i = 0; i < count; ++i) {
      work_.begin_step(++step_);
      executor_.run_to_tail(static_cast<std::int32_t>(step_), nullptr);
      if (begins == Begins::when_stepped) executor_.finish();
    }
    executor_.finish();
    return world_.maximum((now() - begin).value) / count;
  }

 private:
  const Communicator& world_;
  ParameterStore store_;
  PricedRank rank_;
  VersionedWork work_;
  Executor executor_;
  std::int64_t step_ = 0;
};

/// Takes both in turns, and prints the shortest turn of each: what else the machine does only makes them longer.
void compare(Steps& steps, int count, int turns, double scale, const Communicator& world) {
  steps.seconds(1, Begins::at_once);
  double separate = std::numeric_limits<double>::infinity();
  double overlapping = separate;
  for (int turn = 0; turn < turns; ++turn) {
    separate = std::min(separate, steps.seconds(count, Begins::when_stepped) / scale);
    overlapping = std::min(overlapping, steps.seconds(count, Begins::at_once) / scale);
  }
  if (world.rank() != 0) return;
  fmt::print("{} steps in a row: {:.2f} s a step, {:.2f} s if a rank finishes its STEPs first: {:.3f} x\n", count,
             overlapping, separate, separate / overlapping);
}

ExitCode measure(const std::vector<std::string>& arguments, const Communicator& world) {
  if (arguments.empty()) {
    fail(ExitCode::bad_input, "give a deck: benchmark_step_overlap DECK [STEPS [TURNS [KEY=VALUE ...]]]");
  }
  const auto number = [&](std::size_t place, int otherwise) {
    return arguments.size() > place ? std::max(1, std::atoi(arguments[place].c_str())) : otherwise;
  };
  const std::vector<std::string> overrides(arguments.begin() + std::min<std::ptrdiff_t>(3, std::ssize(arguments)),
                                           arguments.end());
  const ModelledDeck modelled = read_modelled_deck(arguments.front(), overrides);
  const Deck& deck = modelled.deck;
  const double scale = deck.device.time_scale;
  const PricedSchedule priced{price_valid(modelled_run(deck, modelled.hardware)), scale};
  StepTimes simulated;
  priced.simulate(Rank{0}, std::nullopt, simulated);
  if (world.rank() == 0) {
    fmt::print("{}: a step alone, simulated: {:.2f} s\n", priced.schedule().name, simulated.step.value / scale);
  }
  Steps steps{priced, world, device_capacity(deck, modelled.hardware)};
  compare(steps, number(1, 5), number(2, 3), scale, world);
  return ExitCode::finished;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return static_cast<int>(penstock::with_mpi(&argc, &argv, [&](const penstock::Communicator& world) {
    return penstock::measure({argv + 1, argv + argc}, world);
  }));
}
