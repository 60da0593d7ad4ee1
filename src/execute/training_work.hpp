// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/transport.hpp"
#include "execute/compute_work.hpp"
#include "kernels/workers.hpp"
#include "optimizer/host_stage.hpp"
#include "optimizer/norm.hpp"
#include "optimizer/reduce.hpp"
#include "optimizer/update.hpp"

namespace penstock {

/// The groups of ranks that the CPU stages talk to; used by the CPU lane only, but for what begin_step posts.
struct OptimizerGroups {
  Communicator world;     ///< all ranks: the global norm
  Communicator pipeline;  ///< this replica's ranks, by coordinate: tied tables
  Communicator replicas;  ///< this coordinate's ranks, by replica: gradients and working copies
};

/// The actions of a training step: the compute actions, and REDUCE, VALIDATE, STEP and UNDO on the host stages.
///
/// Where the schedule steps before VALIDATE, STEP takes the norm to be below its bound. If a stage's own gradients are
/// not finite it takes nothing (SPipe's bypass): the step will be withdrawn. UNDO withdraws what was taken once the
/// norm says so, and steps again with the clip factor.
///
/// A tied table whose head is on another stage: REDUCE of the last stage sends the head's gradient, REDUCE of the first
/// adds it (embedding + head), but its receive is posted when the step begins: a REDUCE waits for no later one; STEP of
/// the first sends the new table, STEP of the last receives it; so do their UNDOs, which all ranks know of. A share of
/// the vocabulary has both of its gradients; its REDUCE adds them.
class TrainingWork : public ComputeWork {
 public:
  struct Parts {
    const RunPlan* plan = nullptr;
    Rank rank;
    Kernels* kernels = nullptr;
    Workers* workers = nullptr;  ///< of the CPU lane
    PerStage<std::unique_ptr<HostStage>>* stages = nullptr;
    const ParameterFetch* parameters = nullptr;
    OptimizerGroups* groups = nullptr;
    UpdateRule* rule = nullptr;
    Transport* transport = nullptr;  ///< of the pipeline's ranks; for schedules that exchange attention
    PipelinePeers* peers = nullptr;  ///< where the ranks share the vocabulary
    /// What this rank tells all others at VALIDATE; called on the CPU lane, once all its compute actions but evictions
    /// are done. Empty: nothing.
    std::function<std::string()> report = {};
  };
  explicit TrainingWork(const Parts& parts);

  /// Before each run. `poison`: a gradient of the first stage becomes NaN at its REDUCE (testing.non_finite_steps).
  enum class Poison : std::uint8_t { no, yes };
  /// STEPs and UNDOs of the run before may still be under way (Executor::run_to_tail).
  void begin_step(std::int64_t training_step, double loss_scale, Poison poison);
  /// After each run. @throws Error not_finite on all ranks if the step ends the run: its weights are then those before
  /// it, unless the schedule's steps neither wait for VALIDATE nor are undone.
  void end_step() const { parts_.rule->check_finite(begun_.training_step, norm_); }

  /// Of the last run: what each rank told at its VALIDATE, in rank order.
  const std::vector<std::string>& reports() const { return reports_; }
  /// Seconds that the compute actions of this run worked so far: without what they waited for other ranks. In a
  /// report, or behind a run.
  Seconds compute_busy() const { return compute_busy_; }
  /// Of the last run, the same on all ranks: the norm before clipping, and what was done.
  const NormResult& norm() const { return norm_; }
  const Update& update() const { return update_; }

  Seconds compute(const Action& action, const StageBuffers& buffers) override;
  void cpu(const Action& action) override;
  std::span<std::byte> host_gradients(Stage stage) override;

 private:
  /// What STEPs and UNDOs of one training step follow.
  struct Begun {
    std::int64_t training_step = 0;
    Update speculated;  ///< what STEPs before VALIDATE do
  };
  void reduce(Stage stage);
  void validate();
  void step(Stage stage);
  void undo(Stage stage);
  void share_step(Stage stage);
  void share_tied_gradient(Stage stage);
  void share_tied_table(Stage stage);
  bool shares_table() const;
  bool sends_head_gradient() const;
  bool stepped_before_norm() const { return steps_wait_ != StepsWait::for_norm; }
  std::span<float> head_gradient(Stage stage) const;
  HostStage& host(Stage stage) { return *(*parts_.stages)[stage]; }

  Parts parts_;
  std::vector<Parameter> model_;
  ReduceStaging staging_;
  std::vector<BlockSum> sums_;
  std::vector<float> head_staging_;
  PendingReceive head_arrival_;  // into head_staging_
  Begun begun_;  // by the main thread; taken over by the CPU lane, behind what it still does for the step before
  Begun step_;
  Poison poison_ = Poison::no;
  NormResult norm_;
  std::vector<std::string> reports_;
  Seconds compute_busy_{0};
  StepsWait steps_wait_;      // as the schedule has it
  Update update_;             // what VALIDATE decided
  PerStage<bool> is_finite_;  // this rank's share of the gradients
};

/// Gives a tied last stage its copy of the first stage's table, outside a step: after initialization or a load. Nothing
/// for models that tie nothing, or within one stage. Collective over the replica's pipeline.
void share_tied_table(const RunPlan& plan, PerStage<std::unique_ptr<HostStage>>& stages, const Communicator& pipeline);

}  // namespace penstock
