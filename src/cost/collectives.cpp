// SPDX-License-Identifier: Apache-2.0
#include "cost/collectives.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// Bytes of the stream of one slice on a device, tensor parallelism not applied.
double stream_bytes(const CostShape& shape) {
  return shape.tokens() * shape.model.hidden * storage_bytes(shape.model.precision);
}

Seconds tensor_seconds(const CostShape& shape, const Links& links, WorkPart part) {
  const std::int32_t members = shape.tensor;
  const double bytes = stream_bytes(shape) * (members - 1) / members;
  const double times = part == WorkPart::weight_gradient ? 2 : 4;
  return links.ring_seconds(members, 1, bytes, members - 1) * times;
}

Seconds context_seconds(const CostShape& shape, const Links& links, WorkPart part, double keys) {
  const std::int32_t members = shape.context;
  const double numbers = shape.tokens() * (members - 1) / shape.tensor;
  const double keys_and_values = 2.0 * shape.model.kv_width() * keys;
  const double queries_and_outputs = 2.0 * shape.model.query_width();
  const double bytes = numbers * std::min(keys_and_values, queries_and_outputs) * storage_bytes(shape.model.precision);
  const double times = part == WorkPart::forward ? 1 : 2;  // gradients go the same way
  return links.ring_seconds(members, shape.tensor, bytes, members - 1) * times;
}

Seconds expert_seconds(const CostShape& shape, const Links& links) {
  const std::int32_t members = shape.expert;
  const double bytes = stream_bytes(shape) / shape.tensor * shape.model.active_experts * (members - 1) / members;
  return links.collective_seconds(members, shape.tensor, bytes, members - 1) * 2;
}

}  // namespace

Seconds layer_collectives(const CostShape& shape, const Links& links, WorkPart part, double keys) {
  Seconds seconds = tensor_seconds(shape, links, part) * shape.exposure.tensor;
  if (part == WorkPart::weight_gradient) return seconds;
  seconds += context_seconds(shape, links, part, keys) * shape.exposure.context;
  seconds += expert_seconds(shape, links) * shape.exposure.expert;
  return seconds;
}

Seconds vocabulary_collectives(const CostShape& shape, const Links& links, WorkPart part) {
  if (!shape.vocabulary_parallel || part == WorkPart::weight_gradient) return {};
  const std::int32_t members = shape.pipeline;
  const double bytes = stream_bytes(shape) / shape.tensor * (members - 1) / members;
  return links.collective_seconds(members, shape.rank_stride(), bytes, members - 1) * shape.exposure.vocabulary;
}

double exchange_bytes(const CostShape& shape, double exchanged) {
  if (exchanged == 0) return 0;
  const double numbers = 2.0 * shape.model.query_width() + 2.0 * exchanged * shape.model.kv_width();
  return shape.tokens() / shape.tensor * numbers * storage_bytes(shape.model.precision);
}

Seconds exchange_collectives(const CostShape& shape, const Links& links, WorkPart part, double exchanged) {
  if (part == WorkPart::weight_gradient || exchanged == 0) return {};
  const double times = part == WorkPart::forward ? 1 : 2;  // gradients go the same way
  return links.collective_seconds(shape.pipeline, shape.rank_stride(), exchange_bytes(shape, exchanged), 1) *
         (times * shape.exposure.exchange);
}

Seconds ring_half(const CostShape& shape, const Links& links, double bytes) {
  const std::int32_t members = shape.copies();
  // With the pipeline's ranks side by side the replicas follow behind all of them.
  const bool is_apart = shape.data > 1 && shape.neighbours == Neighbours::pipeline;
  const std::int32_t stride = is_apart ? shape.tensor * shape.pipeline : shape.tensor;
  return links.ring_seconds(members, stride, bytes * (members - 1) / members, members - 1) * shape.exposure.replicas;
}

}  // namespace penstock
