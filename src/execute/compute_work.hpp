// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/host_block.hpp"
#include "base/index.hpp"
#include "comm/transport.hpp"
#include "execute/attention_sharing.hpp"
#include "execute/parameter_fetch.hpp"
#include "execute/run_plan.hpp"
#include "execute/stage_work.hpp"
#include "execute/vocabulary_peers.hpp"
#include "kernels/kernels.hpp"
#include "stage/stage.hpp"

namespace penstock {

/// Runs the compute actions of one planned schedule on this rank's stages. Forward-only schedules need nothing else;
/// TrainingWork adds the CPU stages.
class ComputeWork : public MemoryWork {
 public:
  /// What the last stage gives: losses, or the logits of one position, written behind its workspace
  /// (generation_logits_offset), without a loss.
  enum class Result : std::uint8_t { losses, logits };
  /// The arguments outlive the object. `parameters` may be null for a schedule that fetches none, `peers` for one whose
  /// ranks share no vocabulary.
  /// @throws Error internal if the plan gives a buffer less than the kernels use: they would write over its neighbours.
  ComputeWork(const PlannedSchedule& planned, Rank rank, Kernels& kernels, Result result,
              const ParameterFetch* parameters = nullptr, PipelinePeers* peers = nullptr);
  /// What the actions of a schedule that exchanges attention need, before its first run.
  void share_attention(Rank rank, Transport& transport);

  /// Before each run: gradients start from zero at the first backward of each stage; the gradient is that of
  /// `loss_scale` x the sum of all losses.
  void begin(double loss_scale);
  /// Result::logits: of which position of its one sequence they are wanted from now on; of the first at the beginning.
  /// Slices behind it, which it does not see, are not computed.
  void want_logits_of(std::int64_t position) { wanted_position_ = position; }
  /// The sums of the losses of the last run [nats], by micro-batch and in it by slice; zeros where this rank has not
  /// the last stage.
  const std::vector<double>& losses() const { return losses_; }
  /// Whether this rank forms the losses: it has the last stage of the forward pass.
  bool has_losses() const;
  /// The stages whose tokens buffer this rank has: the ends of both passes, as far as they are its own, or its share of
  /// the vocabulary.
  std::vector<Stage> token_stages() const;

  /// Of a stage of this rank.
  const StageMath& math(Pass pass, Stage stage) const { return *maths(pass)[stage]; }
  /// This rank's share of the vocabulary; null where the ranks share none.
  const VocabularyMath* share() const { return share_.get(); }

  Seconds compute(const Action& action, const StageBuffers& buffers) override;
  void cpu(const Action& action) override;
  std::span<std::byte> host_gradients(Stage stage) override;
  std::byte* host_activations() override { return on_host_.data(); }
  Event fetch(const Action& action, const CopyPlace& place, std::vector<Event> after) override;

 protected:
  Kernels& kernels() { return *kernels_; }
  const PlannedSchedule& planned() const { return *planned_; }

 private:
  void check_sizes(Rank rank) const;
  /// Of the whole buffers of this rank's stages, by kind.
  PerStage<StageBytes> needed_bytes() const;
  void run(const Action& action, const StageBuffers& buffers);
  void forward(const Action& action, const StageBuffers& buffers);
  void forward_for_logits(const Action& action, const StageBuffers& buffers);
  void compute_share(const Action& action, const StageBuffers& buffers);
  /// EF or VF of a run that is to give the logits of one position.
  void share_for_logits(const Action& action, const StageBuffers& buffers);
  std::byte* wanted_logits(Stage stage, const StageBuffers& buffers) const;
  ProductRange products_of(const Action& weight) const;  ///< that the W, or the part of one, has
  std::size_t index_of(const Action& action) const;      ///< in the losses
  void start_gradients(Stage stage, const StageBuffers& buffers);
  /// With the tokens and targets of the action's slice.
  StageBuffers of_slice(const Action& action, const StageBuffers& buffers) const;

  using Maths = PerStage<std::unique_ptr<StageMath>>;  // null for the stages of other ranks
  const Maths& maths(Pass pass) const {
    return pass == Pass::backward && planned_->schedule.backward ? backward_math_ : math_;
  }

  const PlannedSchedule* planned_;
  Kernels* kernels_;
  Result result_;
  const ParameterFetch* parameters_;
  Maths math_;                             // of the forward pass, mostly of both
  Maths backward_math_;                    // of a backward pass with stages of its own
  std::unique_ptr<VocabularyMath> share_;  // null where the ranks share no vocabulary
  PipelinePeers* peers_;
  PerStage<bool> fresh_;                     // gradients not yet written in this run
  std::optional<AttentionSharing> sharing_;  // where the schedule exchanges attention
  std::vector<double> losses_;
  HostBlock on_host_;  // of offloaded activations
  double loss_scale_ = 1;
  std::int64_t wanted_position_ = 0;
};

/// Copies a step's tokens, [sequences, tokens], into the layout of the tokens buffer of a stage: micro-batch after
/// micro-batch its `blocks`, inputs before targets; in each slice after slice, with the tokens of a slice sequence
/// after sequence. `shape`: of any stage.
std::vector<std::int32_t> pack_tokens(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets,
                                      const StageShape& shape, TokenBlocks blocks);

}  // namespace penstock
