// SPDX-License-Identifier: Apache-2.0
#include "app/measured_rates.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "base/host_block.hpp"
#include "comm/transport.hpp"
#include "optimizer/host_stage.hpp"
#include "optimizer/step.hpp"

namespace penstock {
namespace {

constexpr std::array<std::int64_t, 4> product_sizes{256, 512, 1024, 2048};
constexpr AttentionShape attention_shape{
    .sequences = 1, .query_tokens = 2048, .key_tokens = 2048, .heads = 12, .kv_heads = 12, .head_size = 64};
constexpr std::int64_t large_bytes = std::int64_t{64} << 20;

/// Runs `work` for a third of a second, at least three times, all ranks together; the best run of the slowest rank.
Seconds best_of(const Communicator& world, const std::function<void()>& work) {
  constexpr double enough = 0.3;
  work();
  world.barrier();
  double best = std::numeric_limits<double>::infinity();
  const Seconds begin = now();
  for (int tries = 0; tries < 3 || (now() - begin).value < enough; ++tries) {
    const Seconds start = now();
    work();
    best = std::min(best, (now() - start).value);
  }
  return {world.maximum(best)};
}

/// A matrix of ones, or of anything whose bits mean small numbers: rates depend on them as little as the bits can.
class Operand {
 public:
  Operand(DType type, std::int64_t rows, std::int64_t columns)
      : type_{type},
        rows_{rows},
        columns_{columns},
        block_{Bytes{rows * columns * size_of(type)}, "a measured matrix"} {
    constexpr std::uint16_t bf16_one = 0x3F80;
    if (type == DType::bf16) std::fill_n(block_.as<std::uint16_t>(), rows * columns, bf16_one);
    if (type == DType::f32) std::fill_n(block_.as<float>(), rows * columns, 1.0F);
  }
  Matrix matrix() const { return {block_.data(), type_, rows_, columns_}; }

 private:
  DType type_;
  std::int64_t rows_;
  std::int64_t columns_;
  HostBlock block_;
};

/// Scratch for everything that is measured here.
HostBlock bound_scratch(Kernels& kernels, DType storage) {
  const KernelLimits limits{.tokens = product_sizes.back(),
                            .width = product_sizes.back(),
                            .vocabulary = 0,
                            .attention = attention_shape,
                            .storage = storage};
  HostBlock scratch{kernels.scratch_bytes(limits), "the scratch of measured kernels"};
  kernels.bind_scratch({scratch.data(), static_cast<std::size_t>(scratch.bytes().value)});
  return scratch;
}

Bytes rate_of(std::int64_t bytes, Seconds seconds) {
  return {static_cast<std::int64_t>(static_cast<double>(bytes) / seconds.value)};
}

HostStageShape stage_of(std::int64_t elements, DType storage) {
  Parameter parameter;
  parameter.name = "layers/0/ffn/up/weight";
  parameter.role = ParameterRole::up_weight;
  parameter.columns = elements;
  parameter.init_deviation = 0.02;
  HostStageShape shape;
  shape.parameters.push_back({parameter, 0, Bytes{0}, Bytes{0}});
  shape.working_bytes = Bytes{elements * size_of(storage)};
  shape.gradient_bytes = Bytes{elements * 4};
  shape.storage = storage;
  return shape;
}

}  // namespace

ProductFigures measure_products(Kernels& kernels, DType storage, const Communicator& world) {
  const HostBlock scratch = bound_scratch(kernels, storage);
  ProductFigures figures;
  std::vector<double> rates;
  for (const std::int64_t size : product_sizes) {
    const Operand in{storage, size, size};
    const Operand weight{storage, size, size};
    const Operand out{storage, size, size};
    const Seconds best = best_of(world, [&] { kernels.linear(out.matrix(), in.matrix(), weight.matrix(), {}); });
    const auto edge = static_cast<double>(size);
    rates.push_back(2 * edge * edge * edge / best.value);
    figures.sizes.push_back(edge);
  }
  figures.peak = *std::max_element(rates.begin(), rates.end());
  for (const double rate : rates) figures.efficiency.push_back(rate / figures.peak);
  return figures;
}

AttentionFigures measure_attention(Kernels& kernels, DType storage, double peak, const Communicator& world) {
  const HostBlock scratch = bound_scratch(kernels, storage);
  const std::int64_t rows = attention_shape.query_tokens;
  const std::int64_t width = attention_shape.heads * attention_shape.head_size;
  const Operand q{storage, rows, width};
  const Operand k{storage, rows, width};
  const Operand v{storage, rows, width};
  const Operand out{storage, rows, width};
  const Operand log_sum_exp{DType::f32, attention_shape.heads, rows};
  const Operand dq{storage, rows, width};
  const Operand dk{storage, rows, width};
  const Operand dv{storage, rows, width};
  const Seconds forward = best_of(world, [&] {
    kernels.attention(attention_shape, out.matrix(), log_sum_exp.matrix(), q.matrix(), k.matrix(), v.matrix());
  });
  const Seconds backward = best_of(world, [&] {
    kernels.attention_gradient(attention_shape, dq.matrix(), dk.matrix(), dv.matrix(), q.matrix(), out.matrix(),
                               log_sum_exp.matrix(), q.matrix(), k.matrix(), v.matrix());
  });
  // Half of all pairs of query and key; two products forward, 2.5 times that backward.
  const double flops = 2.0 * static_cast<double>(rows * rows * width);
  AttentionFigures figures;
  figures.forward = std::min(1.0, flops / forward.value / peak);
  figures.backward = std::min(1.0, 2.5 * flops / backward.value / peak);
  return figures;
}

Bytes measure_bandwidth(Kernels& kernels, const Communicator& world) {
  constexpr std::int64_t columns = 4096;
  constexpr std::int64_t rows = large_bytes / 4 / columns;
  const Operand a{DType::f32, rows, columns};
  const Operand b{DType::f32, rows, columns};
  const Operand sum{DType::f32, rows, columns};
  const Seconds best = best_of(world, [&] { kernels.add(sum.matrix(), a.matrix(), b.matrix()); });
  return rate_of(3 * large_bytes, best);
}

Seconds measure_launch(Device& device, const Communicator& world) {
  constexpr int pieces = 1000;
  const auto queue = device.make_queue("measured");
  const Seconds best = best_of(world, [&] {
    Event last;
    for (int i = 0; i < pieces; ++i) last = queue->submit({}, [] {});
    last.wait();
  });
  return {best.value / pieces};
}

LinkFigures measure_copies(Device& device, Lane lane, const Communicator& world) {
  const HostBlock host{Bytes{large_bytes}, "a measured copy"};
  const HostBlock other{Bytes{large_bytes}, "a measured copy"};
  const auto queue = device.make_queue("measured");
  const auto copy = [&](std::int64_t bytes) {
    const Event copied = lane == Lane::to_device
                             ? device.copy_to_device(*queue, {}, other.data(), host.data(), Bytes{bytes})
                             : device.copy_to_host(*queue, {}, host.data(), other.data(), Bytes{bytes});
    copied.wait();
  };
  const Seconds small = best_of(world, [&] { copy(1); });
  const Seconds large = best_of(world, [&] { copy(large_bytes); });
  // All ranks copied at once: together they used what they share.
  const std::int64_t bytes = large_bytes * world.size();
  return {rate_of(bytes, large - std::min(small, {large.value / 2})), small, world.size()};
}

LinkFigures measure_link(const Communicator& world, int peer) {
  const HostBlock out{Bytes{large_bytes}, "a measured message"};
  const HostBlock in{Bytes{large_bytes}, "a measured message"};
  const auto transport = make_mpi_transport(world, {});
  constexpr auto kind = Transport::Kind::activations;
  // Rank 0 sends, the peer answers with one byte, so that the time is rank 0's own.
  const auto send = [&](std::int64_t bytes) {
    if (world.rank() == 0) {
      const Event sent = transport->send(peer, kind, {}, out.data(), Bytes{bytes});
      const Event own = peer == 0 ? transport->receive(0, kind, {}, in.data(), Bytes{bytes}) : Event{};
      const Event answer = peer == 0 ? Event{} : transport->receive(peer, kind, {}, in.data(), Bytes{1});
      for (const Event& event : {sent, own, answer}) event.wait();
    } else if (world.rank() == peer) {
      transport->receive(0, kind, {}, in.data(), Bytes{bytes}).wait();
      transport->send(0, kind, {}, out.data(), Bytes{1}).wait();
    }
  };
  // A fixed number of tries: both ends must make the same.
  const auto best = [&](std::int64_t bytes, int tries) {
    double shortest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < tries; ++i) {
      const Seconds start = now();
      send(bytes);
      shortest = std::min(shortest, (now() - start).value);
      world.barrier();
    }
    return Seconds{world.all_gather(shortest)[0]};
  };
  const Seconds round_trip = best(1, 50);
  const Seconds large = best(large_bytes, 8);
  const Seconds latency{peer == 0 ? round_trip.value : round_trip.value / 2};
  return {rate_of(large_bytes, large - std::min(round_trip, {large.value / 2})), latency, 1};
}

double measure_optimizer(Workers& workers, DType storage, const Communicator& world) {
  constexpr std::int64_t elements = std::int64_t{1} << 24;
  HostStage stage{stage_of(elements, storage)};
  stage.initialize(1, workers);
  std::fill_n(reinterpret_cast<float*>(stage.gradients().data()), elements, 1e-3F);
  const AdamWFactors factors = adamw_factors({}, 1e-3, 10, 1.0F);
  const Seconds best = best_of(world, [&] { step(stage, factors, workers); });
  return static_cast<double>(elements) / best.value;
}

}  // namespace penstock
