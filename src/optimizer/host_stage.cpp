// SPDX-License-Identifier: Apache-2.0
#include "optimizer/host_stage.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "optimizer/step.hpp"
#include "optimizer/vector_loops.hpp"

namespace penstock {
namespace {

constexpr std::int64_t state_alignment = 64;  // elements; a piece's state starts on its own cache lines

std::vector<std::int64_t> mastered_sizes(const HostStageShape& shape) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(shape.parameters.size());
  for (const auto& entry : shape.parameters) sizes.push_back(entry.mastered ? entry.parameter.size() : 0);
  return sizes;
}

/// Elements of each state array, the gaps between pieces included.
std::int64_t state_elements(const std::vector<ShardPiece>& pieces) {
  std::int64_t elements = 0;
  for (const auto& piece : pieces) elements += round_up(piece.count, state_alignment);
  return elements;
}

void check(const HostStageShape& shape) {
  require(shape.storage == DType::bf16 || shape.storage == DType::f32, "{}: a working copy is bf16 or f32", shape.name);
  for (const auto& entry : shape.parameters) {
    const std::int64_t size = entry.parameter.size();
    const std::int64_t working_end = entry.working_offset.value + size * size_of(shape.storage);
    const std::int64_t gradient_end = entry.gradient_offset.value + size * size_of(DType::f32);
    require(entry.working_offset.value % size_of(shape.storage) == 0 && working_end <= shape.working_bytes.value &&
                entry.gradient_offset.value % size_of(DType::f32) == 0 && gradient_end <= shape.gradient_bytes.value,
            "{}: {} ends at byte {} of {} (parameters) and {} of {} (gradients), or is not aligned", shape.name,
            entry.parameter.name, working_end, shape.working_bytes.value, gradient_end, shape.gradient_bytes.value);
  }
}

}  // namespace

std::vector<HostParameter> host_parameters(const std::vector<Parameter>& stage, std::int32_t begin,
                                           const std::vector<Bytes>& working_offsets,
                                           const std::vector<Bytes>& gradient_offsets, bool is_first_stage) {
  require(working_offsets.size() >= stage.size() && gradient_offsets.size() >= stage.size(),
          "a stage of {} parameters, but {} offsets of parameters and {} of gradients", stage.size(),
          working_offsets.size(), gradient_offsets.size());
  std::vector<HostParameter> entries;
  entries.reserve(stage.size());
  for (std::size_t i = 0; i < stage.size(); ++i) {
    const bool is_copy = stage[i].role == ParameterRole::token_embedding && !is_first_stage;
    const std::int32_t canonical = is_copy ? 0 : begin + static_cast<std::int32_t>(i);  // the table is the first of all
    entries.push_back({stage[i], canonical, working_offsets[i], gradient_offsets[i], !is_copy});
  }
  return entries;
}

HostBytes host_bytes(const HostStageShape& shape) {
  const auto pieces = shard(mastered_sizes(shape), shape.replicas, shape.replica);
  const Bytes state{state_elements(pieces) * size_of(DType::f32)};
  return {.masters = state,
          .moments = state * 2,
          .previous = shape.keeps_previous ? state * 3 : Bytes{0},
          .working_copy = shape.working_bytes,
          .gradients = shape.gradient_bytes};
}

HostStage::HostStage(HostStageShape shape, std::span<std::byte> working_copy) : shape_{std::move(shape)} {
  check(shape_);
  const auto sizes = mastered_sizes(shape_);
  for (std::int32_t replica = 0; replica < shape_.replicas; ++replica) {
    pieces_.push_back(shard(sizes, shape_.replicas, replica));
  }
  const HostBytes planned = bytes();
  blocks_[0] = reserve_states(planned.masters, shape_.name);
  states_[0] = lay_out(blocks_[0]);
  if (shape_.keeps_previous) {
    blocks_[1] = reserve_states(planned.masters, shape_.name + " before the last step");
    states_[1] = lay_out(blocks_[1]);
  }
  const auto working_bytes = static_cast<std::size_t>(planned.working_copy.value);
  if (working_copy.empty()) {
    own_working_copy_ = HostBlock{planned.working_copy, "the working copy of " + shape_.name};
    working_copy = span_of(own_working_copy_);
  }
  require(working_copy.size() >= working_bytes, "{}: {} bytes for a working copy of {}", shape_.name,
          working_copy.size(), working_bytes);
  working_copy_ = working_copy.first(working_bytes);
  gradients_ = HostBlock{planned.gradients, "the gradients of " + shape_.name};
}

HostStage::StateBlocks HostStage::reserve_states(Bytes each, const std::string& which) {
  return {HostBlock{each, "the fp32 masters of " + which}, HostBlock{each, "the first moments of " + which},
          HostBlock{each, "the second moments of " + which}};
}

std::vector<StatePiece> HostStage::lay_out(const StateBlocks& blocks) const {
  std::vector<StatePiece> state;
  std::int64_t offset = 0;
  for (const auto& piece : pieces_of(shape_.replica)) {
    state.push_back({{blocks.masters.as<float>() + offset, blocks.first_moments.as<float>() + offset,
                      blocks.second_moments.as<float>() + offset},
                     piece});
    offset += round_up(piece.count, state_alignment);
  }
  return state;
}

void HostStage::swap_states() {
  require(shape_.keeps_previous, "{} keeps no states of the step before", shape_.name);
  std::swap(states_[0], states_[1]);
}

std::span<std::byte> HostStage::working_copy(std::int32_t parameter) const {
  return working_copy({parameter, 0, shape_.parameters[static_cast<std::size_t>(parameter)].parameter.size()});
}

std::span<float> HostStage::gradient(std::int32_t parameter) const {
  return gradient({parameter, 0, shape_.parameters[static_cast<std::size_t>(parameter)].parameter.size()});
}

std::span<std::byte> HostStage::working_copy(const ShardPiece& piece) const {
  const auto& entry = shape_.parameters[static_cast<std::size_t>(piece.parameter)];
  const std::int64_t width = size_of(shape_.storage);
  return {working_copy_.data() + entry.working_offset.value + piece.first * width,
          static_cast<std::size_t>(piece.count * width)};
}

std::span<float> HostStage::gradient(const ShardPiece& piece) const {
  const auto& entry = shape_.parameters[static_cast<std::size_t>(piece.parameter)];
  auto* start = reinterpret_cast<float*>(gradients_.data() + entry.gradient_offset.value);
  return {start + piece.first, static_cast<std::size_t>(piece.count)};
}

void HostStage::initialize(std::uint64_t seed, Workers& workers) {
  for_each_tile(state(), default_tile, workers, [&](const StatePiece& state, std::int64_t first, std::int64_t count) {
    const HostParameter& entry = shape_.parameters[static_cast<std::size_t>(state.piece.parameter)];
    Parameter up_to_here = entry.parameter;
    up_to_here.rows += entry.first / up_to_here.columns;
    penstock::initialize(up_to_here, seed, entry.first + state.piece.first + first, count, state.master + first);
  });
}

void HostStage::refresh_working_copy(Workers& workers) {
  for_each_tile(state(), default_tile, workers, [&](const StatePiece& state, std::int64_t first, std::int64_t count) {
    std::byte* out = working_copy(state.piece).data() + first * size_of(shape_.storage);
    if (shape_.storage == DType::bf16) {
      vector_loops().to_bf16(reinterpret_cast<std::uint16_t*>(out), state.master + first, count);
    } else {
      std::copy_n(state.master + first, count, reinterpret_cast<float*>(out));
    }
  });
}

}  // namespace penstock
