// SPDX-License-Identifier: Apache-2.0
#include "execute/training_work.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "optimizer/step.hpp"
#include "schedule/semantics.hpp"

namespace penstock {
namespace {

constexpr int tied_gradient_tag = 1;
constexpr int tied_table_tag = 2;
constexpr const char* table_name = "embedding/token/weight";

std::int32_t index_of_table(const HostStage& stage) {
  const auto& parameters = stage.shape().parameters;
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [](const HostParameter& p) { return p.parameter.name == table_name; });
  require(found != parameters.end(), "{} has no token table", stage.shape().name);
  return static_cast<std::int32_t>(found - parameters.begin());
}

/// The part of `stage` in giving the last stage its copy of the first one's table: the first sends, the last receives,
/// or copies on the same rank.
void pass_tied_table(const Schedule& schedule, Stage stage, PerStage<std::unique_ptr<HostStage>>& stages,
                     const Communicator& pipeline) {
  const auto& ranks = schedule.ranks(Pass::backward);
  const Stage last_stage = schedule.last_stage(Pass::backward);
  const Rank first = ranks[Stage{0}];
  const Rank last = ranks[last_stage];
  const auto table = [&](Stage of) { return stages[of]->working_copy(index_of_table(*stages[of])); };
  if (first == last) {
    if (stage != last_stage) return;
    const auto from = table(Stage{0});
    std::memcpy(table(stage).data(), from.data(), from.size());
  } else if (stage == Stage{0}) {
    pipeline.send(table(stage), last.value(), tied_table_tag);
  } else if (stage == last_stage) {
    pipeline.receive(table(stage), first.value(), tied_table_tag);
  }
}

}  // namespace

void share_tied_table(const RunPlan& plan, PerStage<std::unique_ptr<HostStage>>& stages, const Communicator& pipeline) {
  const auto& schedule = plan.training.schedule;
  if (!plan.shape.model.tie_embeddings || stages.size() == 1 || schedule.shares_vocabulary) return;
  for (const Stage stage : {Stage{0}, schedule.last_stage(Pass::backward)}) {
    if (stages[stage]) pass_tied_table(schedule, stage, stages, pipeline);
  }
}

TrainingWork::TrainingWork(const Parts& parts)
    : ComputeWork{parts.plan->training, parts.rank, *parts.kernels, Result::losses, parts.parameters, parts.peers},
      parts_{parts},
      model_{parameters_of(parts.plan->shape.model)},
      staging_{parts.plan->shape.replicas},
      steps_wait_{steps_wait_of(parts.plan->training.schedule)},
      is_finite_(parts.stages->size(), true) {
  if (!planned().schedule.exchange.shares()) return;
  require(parts.transport != nullptr, "ranks that exchange attention were given no transport");
  share_attention(parts.rank, *parts.transport);
}

void TrainingWork::begin_step(std::int64_t training_step, double loss_scale, Poison poison) {
  begin(loss_scale);
  begun_.training_step = training_step;
  if (stepped_before_norm()) begun_.speculated = parts_.rule->speculate(training_step);
  poison_ = poison;
  sums_.clear();
  norm_ = {};
  compute_busy_ = {};
  if (!sends_head_gradient() || !(*parts_.stages)[Stage{0}]) return;
  const Rank last = planned().schedule.ranks(Pass::backward)[planned().schedule.last_stage(Pass::backward)];
  head_staging_.resize(host(Stage{0}).gradient(index_of_table(host(Stage{0}))).size());
  head_arrival_ = parts_.groups->pipeline.start_receive(std::as_writable_bytes(std::span{head_staging_}), last.value(),
                                                        tied_gradient_tag);
}

Seconds TrainingWork::compute(const Action& action, const StageBuffers& buffers) {
  const Seconds begin = now();
  const Seconds waited = ComputeWork::compute(action, buffers);
  compute_busy_ += now() - begin - waited;
  return waited;
}

void TrainingWork::cpu(const Action& action) {
  switch (action.op) {
    case Op::reduce:
      reduce(action.stage);
      break;
    case Op::validate:
      validate();
      break;
    case Op::step:
      step(action.stage);
      break;
    case Op::undo:
      undo(action.stage);
      break;
    default:
      fail(ExitCode::internal, "{} is no CPU action", name_of(action.op));
  }
}

void TrainingWork::reduce(Stage stage) {
  step_ = begun_;
  if (poison_ == Poison::yes && stage == Stage{0}) {
    host(stage).gradient(0).front() = std::numeric_limits<float>::quiet_NaN();
  }
  if (parts_.plan->shape.model.tie_embeddings) share_tied_gradient(stage);
  reduce_gradients(host(stage), parts_.groups->replicas, staging_, *parts_.workers);
  const auto sums = block_sums(host(stage), *parts_.workers);
  is_finite_[stage] =
      std::all_of(sums.begin(), sums.end(), [](const BlockSum& block) { return std::isfinite(block.sum); });
  sums_.insert(sums_.end(), sums.begin(), sums.end());
}

void TrainingWork::validate() {
  step_ = begun_;
  auto validated = global_norm(sums_, model_, parts_.groups->world, parts_.report ? parts_.report() : "");
  norm_ = std::move(validated.norm);
  reports_ = std::move(validated.reports);
  update_ = parts_.rule->decide(step_.training_step, norm_);
}

void TrainingWork::step(Stage stage) {
  const Update& update = stepped_before_norm() ? step_.speculated : update_;
  if (!update.skipped) {
    if (is_finite_[stage]) penstock::step(host(stage), update.factors, *parts_.workers);
    share_step(stage);
  }
  if (steps_wait_ != StepsWait::speculative) parts_.parameters->publish(stage, step_.training_step);
}

void TrainingWork::undo(Stage stage) {
  if (update_.skipped || update_.clip_factor != step_.speculated.clip_factor) {
    if (is_finite_[stage]) take_back(host(stage), step_.speculated.factors, *parts_.workers);
    if (update_.skipped) {
      host(stage).refresh_working_copy(*parts_.workers);
    } else {
      penstock::step(host(stage), update_.factors, *parts_.workers);
    }
    share_step(stage);
  }
  parts_.parameters->publish(stage, step_.training_step);
}

/// Gives what this rank has stepped of the stage to whoever has copies of it.
void TrainingWork::share_step(Stage stage) {
  gather_working_copy(host(stage), parts_.groups->replicas);
  if (shares_table()) share_tied_table(stage);
}

bool TrainingWork::shares_table() const {
  const bool is_tied = parts_.plan->shape.model.tie_embeddings;
  return is_tied && parts_.stages->size() > 1 && !planned().schedule.shares_vocabulary;
}

/// Whether the gradient of a tied head goes to the rank of the first stage.
bool TrainingWork::sends_head_gradient() const {
  const PerStage<Rank>& ranks = planned().schedule.ranks(Pass::backward);
  return shares_table() && ranks[Stage{0}] != ranks[planned().schedule.last_stage(Pass::backward)];
}

void TrainingWork::share_tied_gradient(Stage stage) {
  const auto& schedule = planned().schedule;
  if (schedule.shares_vocabulary) {
    if (!schedule.is_share(stage)) return;
    return add_into(host(stage).gradient(index_of_table(host(stage))), head_gradient(stage), *parts_.workers);
  }
  const Stage last_stage = schedule.last_stage(Pass::backward);
  const bool is_remote = sends_head_gradient();
  if (is_remote && stage == last_stage) {
    const Rank first = schedule.ranks(Pass::backward)[Stage{0}];
    parts_.groups->pipeline.send(std::as_bytes(head_gradient(stage)), first.value(), tied_gradient_tag);
  }
  if (stage != Stage{0}) return;
  const auto embedding = host(stage).gradient(index_of_table(host(stage)));
  if (!is_remote) {
    add_into(embedding, head_gradient(last_stage), *parts_.workers);
    return;
  }
  head_arrival_.finish();
  add_into(embedding, head_staging_, *parts_.workers);
}

/// The second accumulator of the tied table: on the last stage, of its own copy; on a stage that is first and last, or
/// a share of the vocabulary, behind the gradients of its parameters.
std::span<float> TrainingWork::head_gradient(Stage stage) const {
  const auto& host_stage = *(*parts_.stages)[stage];
  const bool is_share = planned().schedule.is_share(stage);
  if (!is_share && parts_.stages->size() > 1) return host_stage.gradient(index_of_table(host_stage));
  const auto slot = is_share ? share()->tied_head_gradient() : math(Pass::backward, stage).tied_head_gradient();
  require(slot.has_value(), "a tied model without a second accumulator");
  auto* data = reinterpret_cast<float*>(host_stage.gradients().data() + slot->offset.value);  // NOLINT: raw memory
  return {data, static_cast<std::size_t>(slot->rows * slot->columns)};
}

void TrainingWork::share_tied_table(Stage stage) {
  pass_tied_table(planned().schedule, stage, *parts_.stages, parts_.groups->pipeline);
}

std::span<std::byte> TrainingWork::host_gradients(Stage stage) {
  return host(stage).gradients();
}

}  // namespace penstock
