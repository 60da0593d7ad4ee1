// SPDX-License-Identifier: Apache-2.0
#include "execute/compute_work.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "schedule/semantics.hpp"

namespace penstock {

namespace {

std::vector<std::unique_ptr<StageMath>> maths_of(const PlannedSchedule& planned, Rank rank, Pass pass) {
  std::vector<std::unique_ptr<StageMath>> maths;
  const PerStage<StageShape>& stages = planned.stages_of(pass);
  for (const Stage stage : all<Stage>(stages.size())) {
    const bool is_own = planned.schedule.ranks(pass)[stage] == rank;
    maths.push_back(is_own ? std::make_unique<StageMath>(stages[stage]) : nullptr);
  }
  return maths;
}

}  // namespace

ComputeWork::ComputeWork(const PlannedSchedule& planned, Rank rank, Kernels& kernels, Result result,
                         const ParameterFetch* parameters, PipelinePeers* peers)
    : planned_{&planned},
      kernels_{&kernels},
      result_{result},
      parameters_{parameters},
      math_{maths_of(planned, rank, Pass::forward)},
      peers_{peers},
      fresh_{planned.schedule.stepped_stages(), true},
      losses_(static_cast<std::size_t>(planned.schedule.shape.micro_batches * planned.schedule.shape.slices), 0.0) {
  if (planned.schedule.backward) backward_math_ = Maths{maths_of(planned, rank, Pass::backward)};
  if (planned.schedule.shares_vocabulary) {
    require(peers != nullptr, "rank {} shares the vocabulary, but was not given its peers", rank);
    share_ = std::make_unique<VocabularyMath>(planned.shares[rank]);
  }
  check_sizes(rank);
  const Bytes on_host = planned.ranks[rank].host_peak;
  if (on_host.value > 0) {
    on_host_ = HostBlock{on_host, fmt::format("the offloaded activations of rank {}", rank),
                         "offload a smaller share (memory.offload_activations)"};
  }
}

void ComputeWork::share_attention(Rank rank, Transport& transport) {
  std::int64_t layers = std::numeric_limits<std::int64_t>::max();
  for (const StageShape& stage : planned_->stages) {
    layers = std::min<std::int64_t>(layers, stage.end.value() - stage.begin.value());
  }
  sharing_.emplace(planned_->schedule, rank, layers, transport);
}

void ComputeWork::check_sizes(Rank rank) const {
  const auto& plan = planned_->ranks[rank];
  const auto needed = needed_bytes();
  const auto check = [&](const PlannedBuffer& planned) {
    const auto& [kind, stage, micro_batch, slice] = planned.buffer;
    if (!needed.contains(stage)) return;  // persistent, and of another schedule's backward pass
    const Bytes least = needed[stage][static_cast<std::size_t>(kind)];
    require(planned.bytes >= least, "rank {}: the plan gives {} of stage {} {} bytes, but its kernels use {}", rank,
            name_of(kind), stage, planned.bytes.value, least.value);
  };
  std::for_each(plan.persistent.begin(), plan.persistent.end(), check);
  for (const auto& action : plan.actions) std::for_each(action.takes.begin(), action.takes.end(), check);
}

PerStage<StageBytes> ComputeWork::needed_bytes() const {
  PerStage<StageBytes> needed(planned_->schedule.most_stages(), StageBytes{});
  Bytes workspace{0};
  const auto raise_workspace = [&](const StageBytes& bytes, bool speaks) {
    Bytes own = bytes[static_cast<std::size_t>(BufferKind::workspace)];
    if (result_ == Result::logits && speaks) own += generation_logits_bytes(planned_->stages[Stage{0}].model);
    workspace = std::max(workspace, own);
  };
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    for (const Stage stage : all<Stage>(maths(pass).size())) {
      if (!maths(pass)[stage]) continue;
      const StageBytes bytes = math(pass, stage).bytes(*kernels_);
      planned_->raise(needed[stage], bytes, pass);
      raise_workspace(bytes, math(pass, stage).shape().last);
    }
  }
  if (share_) {
    const StageBytes bytes = share_->bytes(*kernels_);
    needed[planned_->schedule.share_of(share_->shape().rank)] = bytes;
    raise_workspace(bytes, share_->shape().is_last());
  }
  for (StageBytes& bytes : needed) {
    auto& tokens = bytes[static_cast<std::size_t>(BufferKind::tokens)];
    tokens = tokens * planned_->schedule.shape.micro_batches;
  }
  // The one workspace of a rank has no stage; its entry is that of stage 0.
  needed[Stage{0}][static_cast<std::size_t>(BufferKind::workspace)] = workspace;
  return needed;
}

void ComputeWork::begin(double loss_scale) {
  loss_scale_ = loss_scale;
  std::fill(losses_.begin(), losses_.end(), 0.0);
  std::fill(fresh_.begin(), fresh_.end(), true);
}

bool ComputeWork::has_losses() const {
  return math_[planned_->schedule.last_stage()] != nullptr;
}

std::vector<Stage> ComputeWork::token_stages() const {
  if (share_) return {planned_->schedule.share_of(share_->shape().rank)};
  std::vector<Stage> stages;
  for (const Stage stage : all<Stage>(planned_->schedule.most_stages())) {
    const auto has_end = [&](Pass pass) {
      const Maths& own = maths(pass);
      if (!own.contains(stage) || !own[stage]) return false;
      return own[stage]->shape().first || own[stage]->shape().last;
    };
    if (has_end(Pass::forward) || has_end(Pass::backward)) stages.push_back(stage);
  }
  return stages;
}

Seconds ComputeWork::compute(const Action& action, const StageBuffers& buffers) {
  run(action, of_slice(action, buffers));
  Seconds waited{0};
  if (sharing_) waited += sharing_->take_waited();
  if (peers_ != nullptr) waited += peers_->take_waited();
  return waited;
}

void ComputeWork::run(const Action& action, const StageBuffers& own) {
  if (is_collective(action.op)) return compute_share(action, own);
  const StageMath& math = this->math(pass_of(action.op), action.stage);
  switch (action.op) {
    case Op::forward:
      forward(action, own);
      break;
    case Op::recompute:
      math.recompute(*kernels_, own);
      break;
    case Op::backward:
      start_gradients(action.stage, own);
      math.backward(*kernels_, own, loss_scale_);
      break;
    case Op::backward_input:
      start_gradients(action.stage, own);
      math.backward_input(*kernels_, own, loss_scale_);
      break;
    case Op::backward_weight:
      math.backward_weight(*kernels_, own, products_of(action));
      break;
    default:
      fail(ExitCode::internal, "{} is no compute action", name_of(action.op));
  }
}

void ComputeWork::forward_for_logits(const Action& action, const StageBuffers& buffers) {
  const StageMath& math = this->math(Pass::forward, action.stage);
  const TokenRange slice = math.shape().tokens_of(action.slice);
  if (slice.begin > wanted_position_) return;
  auto own = buffers;
  own.targets = nullptr;
  if (math.shape().last && wanted_position_ < slice.begin + slice.count) {
    own.wanted_row = wanted_position_ - slice.begin;
    own.logits = wanted_logits(action.stage, buffers);
  }
  math.forward(*kernels_, own, StageMath::Keep::nothing, nullptr);
}

std::byte* ComputeWork::wanted_logits(Stage stage, const StageBuffers& buffers) const {
  const Bytes end = planned_->bytes[stage][static_cast<std::size_t>(BufferKind::workspace)];
  return buffers.workspace + (end - generation_logits_bytes(planned_->stages[Stage{0}].model)).value;
}

void ComputeWork::share_for_logits(const Action& action, const StageBuffers& buffers) {
  const TokenRange slice = share_->shape().run.tokens_of(action.slice);
  if (slice.begin > wanted_position_) return;
  if (action.op == Op::embed_forward) return share_->embed(*kernels_, *peers_, buffers);
  if (wanted_position_ >= slice.begin + slice.count) return;
  auto own = buffers;
  own.wanted_row = wanted_position_ - slice.begin;
  if (share_->shape().is_last()) own.logits = wanted_logits(action.stage, buffers);
  share_->form_wanted_logits(*kernels_, *peers_, own);
}

void ComputeWork::compute_share(const Action& action, const StageBuffers& buffers) {
  if (result_ == Result::logits) return share_for_logits(action, buffers);
  switch (action.op) {
    case Op::embed_forward:
      return share_->embed(*kernels_, *peers_, buffers);
    case Op::vocabulary_forward:
      losses_[index_of(action)] = share_->forward(*kernels_, *peers_, buffers);
      return;
    case Op::vocabulary_backward:
      start_gradients(action.stage, buffers);
      return share_->backward(*kernels_, *peers_, buffers, loss_scale_);
    default:
      return share_->embed_backward(*kernels_, *peers_, buffers);
  }
}

void ComputeWork::forward(const Action& action, const StageBuffers& buffers) {
  if (result_ == Result::logits) return forward_for_logits(action, buffers);
  const bool keeps = !planned_->schedule.forward_only && !recomputes(planned_->schedule, action.stage);
  const auto keep = keeps ? StageMath::Keep::activations : StageMath::Keep::nothing;
  math(Pass::forward, action.stage).forward(*kernels_, buffers, keep, &losses_[index_of(action)]);
}

void ComputeWork::start_gradients(Stage stage, const StageBuffers& buffers) {
  if (!fresh_[stage]) return;
  fresh_[stage] = false;
  const BufferLayout layout = planned_->schedule.is_share(stage)
                                  ? share_->layout(BufferKind::gradients)
                                  : math(Pass::backward, stage).layout(BufferKind::gradients);
  const std::int64_t bytes = layout.bytes.value;
  kernels_->zero(Matrix{buffers.gradients, DType::f32, 1, bytes / size_of(DType::f32)});
}

ProductRange ComputeWork::products_of(const Action& weight) const {
  const std::int64_t products = math(Pass::backward, weight.stage).weight_products();
  if (weight.part == 0) return {0, products};
  return products_of_part(weight.part, planned_->schedule.parts_of_weight(weight.stage), products);
}

std::size_t ComputeWork::index_of(const Action& action) const {
  const auto slices = static_cast<std::size_t>(planned_->schedule.shape.slices);
  return static_cast<std::size_t>(action.micro_batch.value()) * slices + static_cast<std::size_t>(action.slice.value());
}

StageBuffers ComputeWork::of_slice(const Action& action, const StageBuffers& buffers) const {
  auto own = buffers;
  if (sharing_) own.partners = sharing_->partners_of(action);
  const StageShape& shape =
      is_collective(action.op) ? share_->shape().run : math(pass_of(action.op), action.stage).shape();
  if (buffers.tokens == nullptr || !(shape.first || shape.last)) return own;
  const TokenBlocks blocks = planned_->tokens_of(action.stage);
  const std::int32_t* start = buffers.tokens + action.micro_batch.value() * blocks.count() * shape.rows() +
                              shape.sequences * shape.tokens_of(action.slice).begin;
  own.tokens = shape.first ? start : nullptr;
  own.targets = shape.last ? start + (blocks.count() - 1) * shape.rows() : nullptr;
  return own;
}

void ComputeWork::cpu(const Action& action) {
  fail(ExitCode::internal, "{} in a schedule that only computes", name_of(action.op));
}

std::span<std::byte> ComputeWork::host_gradients(Stage stage) {
  fail(ExitCode::internal, "gradients of stage {} in a schedule that only computes", stage);
}

Event ComputeWork::fetch(const Action& action, const CopyPlace& place, std::vector<Event> after) {
  require(parameters_ != nullptr, "{} in a run that fetches no parameters", name_of(action.op));
  return parameters_->fetch(action, place, std::move(after));
}

std::vector<std::int32_t> pack_tokens(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets,
                                      const StageShape& shape, TokenBlocks blocks) {
  std::vector<std::int32_t> packed;
  packed.reserve(inputs.size() * 2);
  const auto add_slice = [&](std::span<const std::int32_t> from, TokenRange range) {
    for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
      const auto part = from.subspan(static_cast<std::size_t>(sequence * shape.tokens + range.begin),
                                     static_cast<std::size_t>(range.count));
      packed.insert(packed.end(), part.begin(), part.end());
    }
  };
  const auto rows = static_cast<std::size_t>(shape.rows());
  for (std::size_t start = 0; start < inputs.size(); start += rows) {
    for (const auto& [wanted, from] : {std::pair{blocks.inputs, inputs}, std::pair{blocks.targets, targets}}) {
      if (!wanted) continue;
      for (const Slice slice : all<Slice>(shape.slices)) add_slice(from.subspan(start, rows), shape.tokens_of(slice));
    }
  }
  return packed;
}

}  // namespace penstock
