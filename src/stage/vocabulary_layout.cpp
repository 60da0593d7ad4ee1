// SPDX-License-Identifier: Apache-2.0
#include "stage/vocabulary_layout.hpp"

#include <string>

#include "base/error.hpp"
#include "stage/layout_builder.hpp"

namespace penstock {
namespace {

TensorSlot& slot_of(ShareParameters& layout, ParameterRole role) {
  switch (role) {
    case ParameterRole::token_embedding:
      return layout.table;
    case ParameterRole::position_embedding:
      return layout.positions;
    case ParameterRole::final_norm_weight:
      return layout.norm_weight;
    case ParameterRole::final_norm_bias:
      return layout.norm_bias;
    case ParameterRole::head_weight:
      return layout.head;
    default:
      fail(ExitCode::internal, "stage: a share of the vocabulary has no parameter of role {}", static_cast<int>(role));
  }
}

enum class Holds : std::uint8_t { parameters, gradients };

ShareParameters parameters_layout(const VocabularyShape& shape, DType type, Holds holds) {
  const ModelSpec& model = shape.run.model;
  LayoutBuilder builder;
  ShareParameters layout;
  for (const Parameter& p : parameters_of_share(model, shape.rows().count, shape.is_first(), shape.is_last())) {
    slot_of(layout, p.role) = builder.add(p.name, type, p.rows, p.columns);
  }
  if (model.tie_embeddings) {
    layout.head =
        holds == Holds::parameters ? layout.table : builder.add("head/weight", type, shape.rows().count, model.hidden);
  }
  layout.buffer = builder.finish();
  return layout;
}

KeptOutput add_kept(LayoutBuilder& builder, const VocabularyShape& shape, const StageShape& run) {
  const DType accumulation = accumulation_of(run.storage);
  KeptOutput kept;
  kept.hidden = builder.add("final_norm/output", run.storage, run.rows(), run.model.hidden);
  if (shape.is_last()) {
    if (run.model.family == Family::gpt2) kept.mean = builder.add("final_norm/mean", accumulation, 1, run.rows());
    kept.inverse = builder.add("final_norm/inverse", accumulation, 1, run.rows());
  }
  kept.logits = builder.add("logits", accumulation, run.rows(), shape.rows().count);
  kept.log_sum_exp = builder.add("logits/log_sum_exp", accumulation, 1, run.rows());
  return kept;
}

void add_embedding_work(LayoutBuilder& builder, const StageShape& run, ShareWork& work) {
  work.packed = builder.add("embedding/packed", run.storage, run.rows(), run.model.hidden);
  work.indices = builder.add("embedding/indices", DType::i32, 1, run.rows());
  work.places = builder.add("embedding/places", DType::i32, 1, run.rows());
}

void add_output_work(LayoutBuilder& builder, const VocabularyShape& shape, const StageShape& run, ShareWork& work) {
  work.kept = add_kept(builder, shape, run);
  work.statistics =
      builder.add("logits/statistics", accumulation_of(run.storage), std::int64_t{2} * shape.ranks, run.rows());
}

void add_gradient_work(LayoutBuilder& builder, const VocabularyShape& shape, const StageShape& run, ShareWork& work) {
  work.logits_gradient = builder.add("logits_gradient", run.storage, run.rows(), shape.rows().count);
  work.part = builder.add("final_norm/gradient/part", run.storage, run.rows(), run.model.hidden);
  if (!shape.is_last()) return;
  work.sum = builder.add("final_norm/gradient", run.storage, run.rows(), run.model.hidden);
  work.arriving = builder.add("final_norm/gradient/arriving", run.storage, run.rows(), run.model.hidden);
}

void add_embedding_gradient_work(LayoutBuilder& builder, const VocabularyShape& shape, const StageShape& run,
                                 ShareWork& work) {
  work.own = builder.add("embedding/own", DType::i32, 1, run.rows());
  if (!shape.is_first()) {
    work.gradient = builder.add("embedding/gradient", run.storage, run.rows(), run.model.hidden);
  }
}

StageShape of_slice(const StageShape& run, Slice slice) {
  StageShape one = run;
  one.tokens = run.tokens_of(slice).count;
  one.slices = 1;
  return one;
}

}  // namespace

ShareLayouts::ShareLayouts(const VocabularyShape& shape, Slice slice)
    : run{of_slice(shape.run, slice)},
      parameters{parameters_layout(shape, run.storage, Holds::parameters)},
      gradients{parameters_layout(shape, accumulation_of(run.storage), Holds::gradients)} {
  LayoutBuilder kept_builder;
  kept = add_kept(kept_builder, shape, run);
  kept_buffer = kept_builder.finish();
  LayoutBuilder builder;
  add_embedding_work(builder, run, work);
  builder.rewind(0);
  work.targets = builder.add("targets/own", DType::i32, 1, run.rows());
  const std::int64_t shared = builder.mark();
  add_output_work(builder, shape, run, work);
  builder.rewind(shared);
  add_gradient_work(builder, shape, run, work);
  builder.rewind(0);
  add_embedding_gradient_work(builder, shape, run, work);
  work_buffer = builder.finish();
  LayoutBuilder stream_builder;
  stream = stream_builder.add("stream", run.storage, run.rows(), run.model.hidden);
}

}  // namespace penstock
