// SPDX-License-Identifier: Apache-2.0
//
// A tiny training over RankState: the pieces of `penstock train` without data files, checkpoints or metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/communicator.hpp"
#include "execute/rank_state.hpp"
#include "execute/run_plan.hpp"
#include "execute/tiny_run.hpp"
#include "execute/training_work.hpp"
#include "optimizer/reduce.hpp"
#include "support/test_data.hpp"

namespace penstock::test {

/// Inputs and targets of a step, of a whole batch; every eleventh target is not counted.
struct Batch {
  Batch(const RunShape& shape, std::int64_t step) {
    const auto stream = static_cast<std::uint64_t>(step);
    inputs = uniform_integers(shape.global_batch * shape.sequence, shape.model.vocabulary, 2 * stream);
    targets = uniform_integers(shape.global_batch * shape.sequence, shape.model.vocabulary, 2 * stream + 1);
    for (std::size_t i = 0; i < targets.size(); i += 11) targets[i] = -1;
  }
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
};

/// Copies the first sequences of `replica`'s share of a batch to the device, as many as `planned` has.
inline void upload(RankState& state, const ComputeWork& work, const PlannedSchedule& planned, const Batch& batch,
                   std::int32_t replica = 0) {
  const StageShape& any = planned.stages[Stage{0}];
  const auto share = static_cast<std::size_t>(any.rows() * planned.schedule.shape.micro_batches);
  const auto part = [&](const std::vector<std::int32_t>& all_tokens) {
    return std::span{all_tokens}.subspan(share * static_cast<std::size_t>(replica), share);
  };
  for (const Stage stage : work.token_stages()) {
    state.upload_tokens(stage, pack_tokens(part(batch.inputs), part(batch.targets), any, planned.tokens_of(stage)));
  }
}

/// Over the ranks of `world`, which must outlive it.
struct TinyTraining {
  TinyTraining(const RunShape& shape, const Communicator& ranks, DelayOptions delays = {}, std::int32_t threads = 1,
               NonFinite non_finite = NonFinite::stop, double clip = 0.25)
      : world{ranks},
        plan{plan_of(shape, threads)},
        state{plan, ranks, {DeviceKind::host, threads}, delays},
        rule{optimizer(non_finite, clip), 10},
        work{{&plan, state.place().coordinate, &state.kernels(), &state.cpu_workers(), &state.stages(),
              &state.parameter_fetch(), &state.groups(), &rule, state.transport(), &state.vocabulary_peers()}},
        executor{plan.training.schedule, plan.training.ranks[state.place().coordinate], state.resources(work)} {
    for (auto& stage : state.stages()) {
      if (!stage) continue;
      stage->initialize(5, state.cpu_workers());
      stage->refresh_working_copy(state.cpu_workers());
      gather_working_copy(*stage, state.groups().replicas);
    }
    share_tied_table(plan, state.stages(), state.groups().pipeline);
    state.upload_parameters();
    state.publish_parameters(0);
  }

  void step(std::int64_t number, TrainingWork::Poison poison = TrainingWork::Poison::no, Timeline* trace = nullptr) {
    upload(state, work, plan.training, Batch{plan.shape, number}, state.place().replica);
    work.begin_step(number, 1.0 / static_cast<double>(plan.shape.global_batch * plan.shape.sequence), poison);
    executor.run(static_cast<std::int32_t>(number), trace);
    work.end_step();
    state.expect_parameters(number);
  }

  /// The losses of the last run by micro-batch, on every rank (of each replica one after the other).
  std::vector<double> losses() const {
    std::string own;
    if (work.has_losses()) {
      own.resize(work.losses().size() * sizeof(double));
      std::memcpy(own.data(), work.losses().data(), own.size());
    }
    std::string joined;
    for (const auto& part : world.all_gather(own)) joined += part;
    std::vector<double> result(joined.size() / sizeof(double));
    std::memcpy(result.data(), joined.data(), joined.size());
    return result;
  }

  /// The working copies of all parameters, by name, on every rank; of a tied table the copy of the first stage, after
  /// it was compared with that of the last. Of the first replica, after it was compared with the others.
  std::map<std::string, std::string> parameters() {
    std::map<std::string, std::string> all_parameters;
    const PerStage<StageShape>& stages = plan.training.stages_of(Pass::backward);
    for (const Stage stage : all<Stage>(stages.size())) {
      const StageShape& shape = stages[stage];
      std::int32_t index = 0;
      for (const auto& parameter : parameters_of_stage(shape.model, shape.begin, shape.end, shape.first, shape.last)) {
        add(all_parameters, parameter.name, world.all_gather(working_copy(stage, index++)));
      }
    }
    if (work.share() != nullptr) add_shares(all_parameters);
    return all_parameters;
  }

  const Communicator& world;
  const RunPlan plan;
  RankState state;
  UpdateRule rule;
  TrainingWork work;
  Executor executor;

 private:
  static OptimizerOptions optimizer(NonFinite non_finite, double clip) {
    OptimizerOptions options;
    options.learning_rate.peak = 0.01;
    options.clip = clip;  // 0.25 is below the norm of these steps: the factor takes part
    options.non_finite = non_finite;
    return options;
  }
  std::string working_copy(Stage stage, std::int32_t index) {
    const auto& own = state.stages()[stage];
    if (!own) return "";
    const auto bytes = own->working_copy(index);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};  // NOLINT: bytes as text
  }
  /// What shares of the vocabulary hold, one behind the other.
  void add_shares(std::map<std::string, std::string>& to) {
    const auto& shape = work.share()->shape();
    for (const auto& whole : parameters_of_share(shape.run.model, shape.run.model.vocabulary, true, true)) {
      std::int32_t index = 0;
      std::string own;
      for (const auto& parameter :
           parameters_of_share(shape.run.model, shape.rows().count, shape.is_first(), shape.is_last())) {
        if (parameter.name == whole.name) own = working_copy(plan.training.schedule.share_of(shape.rank), index);
        ++index;
      }
      const auto of_ranks = world.all_gather(own);
      std::vector<std::string> of_replicas(static_cast<std::size_t>(plan.shape.replicas));
      for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
        of_replicas[rank / static_cast<std::size_t>(plan.shape.pipeline)] += of_ranks[rank];
      }
      add(to, whole.name, of_replicas);
    }
  }
  static void add(std::map<std::string, std::string>& to, const std::string& name,
                  const std::vector<std::string>& copies) {
    for (const auto& copy : copies) {
      if (copy.empty()) continue;
      const auto [found, is_new] = to.emplace(name, copy);
      if (!is_new) {
        EXPECT_TRUE(found->second == copy) << "two copies of " << name << " differ";
      }
    }
  }
};

}  // namespace penstock::test
