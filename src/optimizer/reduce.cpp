// SPDX-License-Identifier: Apache-2.0
#include "optimizer/reduce.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "optimizer/step.hpp"
#include "optimizer/vector_loops.hpp"

namespace penstock {
namespace {

constexpr int reduce_tag = 1;
constexpr int gather_tag = 2;

/// The pieces cut to at most `elements`, in order.
std::vector<ShardPiece> messages_of(const std::vector<ShardPiece>& pieces, std::int64_t elements) {
  std::vector<ShardPiece> messages;
  for (const auto& piece : pieces) {
    for (std::int64_t first = 0; first < piece.count; first += elements) {
      messages.push_back({piece.parameter, piece.first + first, std::min(elements, piece.count - first)});
    }
  }
  return messages;
}

/// The messages of every owner, and the length of the longest list: the number of times that all replicas meet.
struct Messages {
  std::vector<std::vector<ShardPiece>> by_owner;
  std::size_t longest = 0;

  Messages(const HostStage& stage, std::int64_t elements) {
    for (std::int32_t owner = 0; owner < stage.shape().replicas; ++owner) {
      by_owner.push_back(messages_of(stage.pieces_of(owner), elements));
      longest = std::max(longest, by_owner.back().size());
    }
  }
  /// The `index`-th of `owner`; null past its last.
  const ShardPiece* of(std::int32_t owner, std::size_t index) const {
    const auto& list = by_owner[static_cast<std::size_t>(owner)];
    return index < list.size() ? &list[index] : nullptr;
  }
};

/// The peers of round `offset` (1 .. replicas - 1) of a full exchange.
struct Round {
  std::int32_t to;
  std::int32_t from;
  Round(const HostStageShape& shape, std::int32_t offset)
      : to{(shape.replica + offset) % shape.replicas},
        from{(shape.replica - offset + shape.replicas) % shape.replicas} {}
};

/// Place of `from`'s message in the staging of `replica`: the other replicas ascending.
std::int32_t slot_of(std::int32_t from, std::int32_t replica) {
  return from < replica ? from : from - 1;
}

/// own = (((s_0 + s_1) + ...) + own) + ...: staged gradients of the replicas below come before this one's.
void add_in_replica_order(std::span<float> own, std::int32_t replica, std::int32_t replicas, ReduceStaging& staging,
                          std::int64_t first, std::int64_t count) {
  const auto total = static_cast<std::int64_t>(own.size());
  const auto staged = [&](std::int32_t slot) { return staging.message(slot, total).data() + first; };
  const VectorLoops& loops = vector_loops();
  float* sum = own.data() + first;
  for (std::int32_t slot = 1; slot < replica; ++slot) loops.add(staged(0), staged(slot), count);
  if (replica > 0) loops.add_two(sum, staged(0), sum, count);
  for (std::int32_t slot = replica; slot < replicas - 1; ++slot) loops.add(sum, staged(slot), count);
}

void check(const HostStage& stage, const Communicator& replicas) {
  require(replicas.size() == stage.shape().replicas && replicas.rank() == stage.shape().replica,
          "{} is laid out for replica {} of {}, but this is rank {} of {}", stage.shape().name, stage.shape().replica,
          stage.shape().replicas, replicas.rank(), replicas.size());
}

template <class Body>
void for_each_range(std::int64_t count, Workers& workers, const Body& body) {
  workers.for_each(divide_up(count, default_tile), [&](std::int64_t i) {
    const std::int64_t first = i * default_tile;
    body(first, std::min(default_tile, count - first));
  });
}

}  // namespace

void add_into(std::span<float> embedding, std::span<const float> head, Workers& workers) {
  require(embedding.size() == head.size(), "tied gradients of {} and {} elements", embedding.size(), head.size());
  for_each_range(static_cast<std::int64_t>(embedding.size()), workers, [&](std::int64_t first, std::int64_t count) {
    vector_loops().add(embedding.data() + first, head.data() + first, count);
  });
}

ReduceStaging::ReduceStaging(std::int32_t replicas)
    : message_elements_{message_elements(replicas)}, block_{bytes(replicas), "the staging of the gradient reduction"} {}

Bytes ReduceStaging::bytes(std::int32_t replicas) {
  return Bytes{(replicas - 1) * message_elements(replicas) * size_of(DType::f32)};
}

std::int64_t ReduceStaging::message_elements(std::int32_t replicas) {
  if (replicas <= 1) return chunk_elements;
  const std::int64_t share = 4 * chunk_elements / (replicas - 1);
  return std::clamp(share / norm_block_elements * norm_block_elements, norm_block_elements, chunk_elements);
}

std::span<float> ReduceStaging::message(std::int32_t i, std::int64_t count) {
  return {block_.as<float>() + i * message_elements_, static_cast<std::size_t>(count)};
}

void reduce_gradients(const HostStage& stage, const Communicator& replicas, ReduceStaging& staging, Workers& workers) {
  check(stage, replicas);
  const HostStageShape& shape = stage.shape();
  if (shape.replicas == 1) return;
  const Messages messages{stage, ReduceStaging::message_elements(shape.replicas)};
  for (std::size_t index = 0; index < messages.longest; ++index) {
    const ShardPiece* own = messages.of(shape.replica, index);
    for (std::int32_t offset = 1; offset < shape.replicas; ++offset) {
      const Round round{shape, offset};
      const ShardPiece* out = messages.of(round.to, index);
      const auto sent = out != nullptr ? stage.gradient(*out) : std::span<float>{};
      const auto received =
          own != nullptr ? staging.message(slot_of(round.from, shape.replica), own->count) : std::span<float>{};
      replicas.exchange(std::as_bytes(sent), round.to, std::as_writable_bytes(received), round.from, reduce_tag);
    }
    if (own == nullptr) continue;
    for_each_range(own->count, workers, [&](std::int64_t first, std::int64_t count) {
      add_in_replica_order(stage.gradient(*own), shape.replica, shape.replicas, staging, first, count);
    });
  }
}

void gather_working_copy(const HostStage& stage, const Communicator& replicas) {
  check(stage, replicas);
  const HostStageShape& shape = stage.shape();
  if (shape.replicas == 1) return;
  const Messages messages{stage, chunk_elements};
  for (std::size_t index = 0; index < messages.longest; ++index) {
    const ShardPiece* own = messages.of(shape.replica, index);
    for (std::int32_t offset = 1; offset < shape.replicas; ++offset) {
      const Round round{shape, offset};
      const ShardPiece* in = messages.of(round.from, index);
      replicas.exchange(own != nullptr ? stage.working_copy(*own) : std::span<std::byte>{}, round.to,
                        in != nullptr ? stage.working_copy(*in) : std::span<std::byte>{}, round.from, gather_tag);
    }
  }
}

}  // namespace penstock
