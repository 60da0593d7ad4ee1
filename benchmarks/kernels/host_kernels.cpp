// SPDX-License-Identifier: Apache-2.0
//
// Rates of the host kernels. `of_onednn` compares the floating-point rate with that of one plain oneDNN product of
// 1024 x 768 x 768 of the same type on as many OpenMP threads, measured just before and after. Machines are shared: on
// one thread both are measured in its processor time, and the best run counts.
#include <algorithm>
#include <array>
#include <bit>
#include <ctime>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include <benchmark/benchmark.h>
#include <dnnl.hpp>
#include <omp.h>

#include "base/random.hpp"
#include "kernels/kernels.hpp"
#include "kernels/workers.hpp"

namespace penstock {
namespace {

double clock_seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds(int threads) {
  return clock_seconds(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

/// oneDNN's best rate in 50 ms, in flop/s.
double library_rate(DType type, int threads) {
  omp_set_num_threads(threads);
  const dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  const auto library_type = type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  const auto describe = [&](std::int64_t rows, std::int64_t columns) {
    return dnnl::memory::desc{{rows, columns}, library_type, dnnl::memory::format_tag::ab};
  };
  const dnnl::matmul::desc description{describe(1024, 768), describe(768, 768), describe(1024, 768)};
  dnnl::matmul product{dnnl::matmul::primitive_desc{description, engine}};
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, {describe(1024, 768), engine}},
                                                  {DNNL_ARG_WEIGHTS, {describe(768, 768), engine}},
                                                  {DNNL_ARG_DST, {describe(1024, 768), engine}}};
  for (auto& [key, memory] : arguments)
    std::fill_n(static_cast<char*>(memory.get_data_handle()), memory.get_desc().get_size(), 0);
  double best = 1e9;
  for (const double end = seconds(threads) + 0.05; seconds(threads) < end;) {
    const double start = seconds(threads);
    product.execute(stream, arguments);
    best = std::min(best, seconds(threads) - start);
  }
  return 2.0 * 1024 * 768 * 768 / best;
}

/// A tensor of small random numbers.
class Tensor {
 public:
  Tensor(DType type, std::int64_t rows, std::int64_t columns)
      : type_{type}, rows_{rows}, columns_{columns}, memory_(static_cast<std::size_t>(rows * columns * size_of(type))) {
    const CounterRandom random{1, RandomPurpose::tests, 0};
    std::array<float, 4096> numbers{};
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(random.normal(i));
    for (std::int64_t i = 0; i < rows * columns; ++i) set(i, numbers[static_cast<std::size_t>(i * 7 % 4093)]);
  }
  Matrix matrix() { return {memory_.data(), type_, rows_, columns_}; }
  std::int64_t size() const { return rows_ * columns_; }

 private:
  void set(std::int64_t i, float value) {
    if (type_ == DType::f32) {
      matrix().as<float>()[i] = value;
    } else if (type_ == DType::bf16) {
      matrix().as<std::uint16_t>()[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
    }
  }
  DType type_;
  std::int64_t rows_;
  std::int64_t columns_;
  std::vector<std::byte> memory_;
};

/// Kernels on as many threads as asked for, with scratch for everything here.
struct Setup {
  explicit Setup(int threads) : workers{threads}, kernels{make_host_kernels(workers)} {
    const KernelLimits limits{.tokens = 4096,
                              .width = 3072,
                              .vocabulary = 50257,
                              .attention = {.query_tokens = 4096, .key_tokens = 4096, .heads = 12, .head_size = 64}};
    scratch.resize(static_cast<std::size_t>(kernels->scratch_bytes(limits).value));
    kernels->bind_scratch(scratch);
  }
  Workers workers;
  std::unique_ptr<Kernels> kernels;
  std::vector<std::byte> scratch;
};

/// Runs `body` and reports its rate beside oneDNN's; the best iteration counts, as for oneDNN.
template <class Body>
void measure(benchmark::State& state, DType type, int threads, double flops, const Body& body) {
  const double before = library_rate(type, threads);
  body();
  double best = 1e9;
  for ([[maybe_unused]] auto _ : state) {
    const double start = seconds(threads);
    body();
    best = std::min(best, seconds(threads) - start);
  }
  const double library = std::max(before, library_rate(type, threads));
  state.counters["GFLOP/s"] = flops / best * 1e-9;
  state.counters["onednn"] = library * 1e-9;
  state.counters["of_onednn"] = flops / best / library;
}

enum class Pass { forward, input, weight };

/// The arguments of every benchmark here: threads, and bytes of a stored element (2 bf16, 4 f32).
void threads_and_bytes(benchmark::internal::Benchmark* of) {
  of->ArgsProduct({{1, 2}, {2, 4}})->ArgNames({"threads", "bytes"})->Unit(benchmark::kMillisecond)->UseRealTime();
}

int threads_of(const benchmark::State& state) {
  return static_cast<int>(state.range(0));
}
DType type_of(const benchmark::State& state) {
  return state.range(1) == 2 ? DType::bf16 : DType::f32;
}

void linear(benchmark::State& state, Pass pass, std::int64_t tokens, std::int64_t in, std::int64_t out) {
  const DType type = type_of(state);
  Setup setup{threads_of(state)};
  Tensor x{type, tokens, in};
  Tensor weight{type, out, in};
  Tensor weight_gradient{DType::f32, pass == Pass::weight ? out : 0, in};
  Tensor y{out > 10000 && pass == Pass::forward ? DType::f32 : type, tokens, out};
  measure(state, type, threads_of(state), 2.0 * static_cast<double>(tokens * in * out), [&] {
    switch (pass) {
      case Pass::forward:
        setup.kernels->linear(y.matrix(), x.matrix(), weight.matrix(), {});
        break;
      case Pass::input:
        setup.kernels->linear_input_gradient(x.matrix(), y.matrix(), weight.matrix(), Kernels::Write::accumulate);
        break;
      case Pass::weight:
        setup.kernels->linear_weight_gradient(weight_gradient.matrix(), y.matrix(), x.matrix());
        break;
    }
  });
}
BENCHMARK_CAPTURE(linear, forward_1024x768x768, Pass::forward, 1024, 768, 768)->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(linear, input_1024x768x768, Pass::input, 1024, 768, 768)->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(linear, weight_1024x768x768, Pass::weight, 1024, 768, 768)->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(linear, forward_1024x768x3072, Pass::forward, 1024, 768, 3072)->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(linear, input_1024x768x3072, Pass::input, 1024, 768, 3072)->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(linear, weight_1024x768x3072, Pass::weight, 1024, 768, 3072)->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(linear, forward_1024x3072x768, Pass::forward, 1024, 3072, 768)->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(linear, input_1024x3072x768, Pass::input, 1024, 3072, 768)->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(linear, weight_1024x3072x768, Pass::weight, 1024, 3072, 768)->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(linear, forward_256x256x704, Pass::forward, 256, 256, 704)->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(linear, input_256x256x704, Pass::input, 256, 256, 704)->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(linear, weight_256x256x704, Pass::weight, 256, 256, 704)->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(linear, forward_1024x768x50257, Pass::forward, 1024, 768, 50257)->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(linear, input_1024x768x50257, Pass::input, 1024, 768, 50257)->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(linear, weight_1024x768x50257, Pass::weight, 1024, 768, 50257)->Apply(threads_and_bytes);

/// Causal: half of all pairs of query and key are counted. The gradient counts 2.5 times the forward.
void attention(benchmark::State& state, Pass pass, AttentionShape shape) {
  const DType type = type_of(state);
  Setup setup{threads_of(state)};
  const std::int64_t rows = shape.sequences * shape.query_tokens;
  const std::int64_t q_width = shape.heads * shape.head_size;
  const std::int64_t kv_width = shape.kv_heads * shape.head_size;
  Tensor q{type, rows, q_width};
  Tensor k{type, rows, kv_width};
  Tensor v{type, rows, kv_width};
  Tensor out{type, rows, q_width};
  Tensor lse{DType::f32, shape.heads, rows};
  Tensor dq{type, rows, q_width};
  Tensor dk{type, rows, kv_width};
  Tensor dv{type, rows, kv_width};
  const auto forward = [&] {
    setup.kernels->attention(shape, out.matrix(), lse.matrix(), q.matrix(), k.matrix(), v.matrix());
  };
  forward();
  const double flops = 2.0 * static_cast<double>(rows * shape.key_tokens * q_width);
  if (pass == Pass::forward) {
    measure(state, type, threads_of(state), flops, forward);
    return;
  }
  measure(state, type, threads_of(state), 2.5 * flops, [&] {
    setup.kernels->attention_gradient(shape, dq.matrix(), dk.matrix(), dv.matrix(), q.matrix(), out.matrix(),
                                      lse.matrix(), q.matrix(), k.matrix(), v.matrix());
  });
}

AttentionShape causal(std::int64_t sequences, std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads,
                      std::int64_t head_size) {
  return {.sequences = sequences,
          .query_tokens = tokens,
          .key_tokens = tokens,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_size = head_size};
}
BENCHMARK_CAPTURE(attention, forward_4x256, Pass::forward, causal(4, 256, 12, 12, 64))->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(attention, gradient_4x256, Pass::input, causal(4, 256, 12, 12, 64))->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(attention, forward_grouped_1x256, Pass::forward, causal(1, 256, 8, 4, 32))->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(attention, gradient_grouped_1x256, Pass::input, causal(1, 256, 8, 4, 32))->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(attention, forward_1x4096, Pass::forward, causal(1, 4096, 12, 12, 64))->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(attention, gradient_1x4096, Pass::input, causal(1, 4096, 12, 12, 64))->Apply(threads_and_bytes);

/// Causal attention of one sequence in slices, all of them forward, or all of them backward from the last to the first.
/// FLOPs are counted as those of the whole sequence, so that the rates compare.
void sliced_attention(benchmark::State& state, Pass pass, std::int64_t slices, AttentionShape whole) {
  const DType type = type_of(state);
  Setup setup{threads_of(state)};
  const std::int64_t rows = whole.query_tokens / slices;
  const std::int64_t q_width = whole.heads * whole.head_size;
  const std::int64_t kv_width = whole.kv_heads * whole.head_size;
  Tensor q{type, rows, q_width};
  Tensor out{type, rows, q_width};
  Tensor lse{DType::f32, whole.heads, rows};
  Tensor dq{type, rows, q_width};
  Tensor dk{type, rows, kv_width};
  Tensor dv{type, rows, kv_width};
  Tensor k{type, whole.key_tokens, kv_width};
  Tensor sums{DType::f32, whole.key_tokens, kv_width};
  const auto part = [&](Tensor& of, std::int64_t slice) {
    Matrix matrix = of.matrix();
    matrix.rows = rows;
    matrix.data += slice * rows * kv_width * size_of(matrix.type);
    return matrix;
  };
  std::vector<KeyValueChunk> chunks;
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    chunks.push_back({part(k, slice), part(k, slice), part(sums, slice), part(sums, slice)});
  }
  const auto each_slice = [&](const auto& call) {
    for (std::int64_t slice = slices; slice > 0; --slice) {
      AttentionShape shape = whole;
      shape.query_tokens = rows;
      shape.key_tokens = slice * rows;
      call(shape, std::span{chunks}.first(static_cast<std::size_t>(slice)));
    }
  };
  const auto forward = [&](const AttentionShape& shape, std::span<const KeyValueChunk> seen) {
    setup.kernels->attention(shape, out.matrix(), lse.matrix(), q.matrix(), seen);
  };
  each_slice(forward);
  const double flops = 2.0 * static_cast<double>(whole.query_tokens * whole.key_tokens * q_width);
  if (pass == Pass::forward) {
    measure(state, type, threads_of(state), flops, [&] { each_slice(forward); });
    return;
  }
  measure(state, type, threads_of(state), 2.5 * flops, [&] {
    each_slice([&](const AttentionShape& shape, std::span<const KeyValueChunk> seen) {
      setup.kernels->attention_gradient(shape, dq.matrix(), dk.matrix(), dv.matrix(), q.matrix(), out.matrix(),
                                        lse.matrix(), q.matrix(), seen);
    });
  });
}
BENCHMARK_CAPTURE(sliced_attention, forward_8_of_4096, Pass::forward, 8, causal(1, 4096, 12, 12, 64))
    ->Apply(threads_and_bytes);
BENCHMARK_CAPTURE(sliced_attention, gradient_8_of_4096, Pass::input, 8, causal(1, 4096, 12, 12, 64))
    ->Apply(threads_and_bytes);

/// Row-wise operations: elements, and bytes moved, per second.
template <class Body>
void measure_rows(benchmark::State& state, std::int64_t elements, std::int64_t bytes_per_element, const Body& body) {
  const int threads = threads_of(state);
  body();
  double best = 1e9;
  for ([[maybe_unused]] auto _ : state) {
    const double start = seconds(threads);
    body();
    best = std::min(best, seconds(threads) - start);
  }
  state.counters["Gelement/s"] = static_cast<double>(elements) / best * 1e-9;
  state.counters["GB/s"] = static_cast<double>(elements * bytes_per_element) / best * 1e-9;
}

void gelu(benchmark::State& state) {
  Setup setup{threads_of(state)};
  Tensor in{type_of(state), 1024, 3072};
  Tensor out{type_of(state), 1024, 3072};
  measure_rows(state, in.size(), 2 * state.range(1), [&] { setup.kernels->gelu(out.matrix(), in.matrix()); });
}
BENCHMARK(gelu)->Apply(threads_and_bytes);

void gelu_gradient(benchmark::State& state) {
  Setup setup{threads_of(state)};
  Tensor in{type_of(state), 1024, 3072};
  Tensor out{type_of(state), 1024, 3072};
  measure_rows(state, in.size(), 3 * state.range(1),
               [&] { setup.kernels->gelu_gradient(out.matrix(), in.matrix(), in.matrix()); });
}
BENCHMARK(gelu_gradient)->Apply(threads_and_bytes);

void swiglu(benchmark::State& state) {
  Setup setup{threads_of(state)};
  Tensor in{type_of(state), 256, 704};
  Tensor out{type_of(state), 256, 704};
  measure_rows(state, in.size(), 3 * state.range(1),
               [&] { setup.kernels->swiglu(out.matrix(), in.matrix(), in.matrix()); });
}
BENCHMARK(swiglu)->Apply(threads_and_bytes);

void add(benchmark::State& state) {
  Setup setup{threads_of(state)};
  Tensor in{type_of(state), 1024, 768};
  Tensor out{type_of(state), 1024, 768};
  measure_rows(state, in.size(), 3 * state.range(1),
               [&] { setup.kernels->add(out.matrix(), in.matrix(), in.matrix()); });
}
BENCHMARK(add)->Apply(threads_and_bytes);

void rotate(benchmark::State& state) {
  Setup setup{threads_of(state)};
  Tensor x{type_of(state), 1024, 768};
  measure_rows(state, x.size(), 2 * state.range(1),
               [&] { setup.kernels->rotate(x.matrix(), 12, 256, 0, 1e4, Kernels::Rotation::forward); });
}
BENCHMARK(rotate)->Apply(threads_and_bytes);

void bias_gradient(benchmark::State& state) {
  Setup setup{threads_of(state)};
  Tensor in{type_of(state), 1024, 3072};
  Tensor out{DType::f32, 1, 3072};
  measure_rows(state, in.size(), state.range(1), [&] { setup.kernels->bias_gradient(out.matrix(), in.matrix()); });
}
BENCHMARK(bias_gradient)->Apply(threads_and_bytes);

void layer_norm(benchmark::State& state) {
  Setup setup{threads_of(state)};
  Tensor in{type_of(state), 1024, 768};
  Tensor out{type_of(state), 1024, 768};
  Tensor vector{type_of(state), 1, 768};
  Tensor statistics{DType::f32, 1, 1024};
  measure_rows(state, in.size(), 2 * state.range(1), [&] {
    setup.kernels->layer_norm(out.matrix(), statistics.matrix(), statistics.matrix(), in.matrix(), vector.matrix(),
                              vector.matrix(), 1e-5);
  });
}
BENCHMARK(layer_norm)->Apply(threads_and_bytes);

void layer_norm_gradient(benchmark::State& state) {
  Setup setup{threads_of(state)};
  Tensor in{type_of(state), 1024, 768};
  Tensor out{type_of(state), 1024, 768};
  Tensor vector{type_of(state), 1, 768};
  Tensor gradient{DType::f32, 1, 768};
  Tensor statistics{DType::f32, 1, 1024};
  measure_rows(state, in.size(), 4 * state.range(1), [&] {
    setup.kernels->layer_norm_gradient(out.matrix(), gradient.matrix(), gradient.matrix(), in.matrix(), in.matrix(),
                                       statistics.matrix(), statistics.matrix(), vector.matrix(), in.matrix());
  });
}
BENCHMARK(layer_norm_gradient)->Apply(threads_and_bytes);

void embedding_gradient(benchmark::State& state) {
  Setup setup{threads_of(state)};
  Tensor gradient{type_of(state), 1024, 768};
  Tensor words{DType::f32, 50257, 768};
  Tensor positions{DType::f32, 1024, 768};
  Tensor tokens{DType::i32, 1, 1024};
  for (int t = 0; t < 1024; ++t) tokens.matrix().as<std::int32_t>()[t] = t * 7919 % 50257;
  measure_rows(state, gradient.size(), 16 + state.range(1), [&] {
    setup.kernels->embedding_gradient(words.matrix(), positions.matrix(), gradient.matrix(), tokens.matrix(), 256, 0);
  });
}
BENCHMARK(embedding_gradient)->Apply(threads_and_bytes);

void cross_entropy(benchmark::State& state) {
  Setup setup{threads_of(state)};
  Tensor logits{DType::f32, 1024, 50257};
  Tensor vector{DType::f32, 1, 1024};
  Tensor targets{DType::i32, 1, 1024};
  measure_rows(state, logits.size(), 4, [&] {
    setup.kernels->cross_entropy(vector.matrix(), vector.matrix(), logits.matrix(), targets.matrix());
  });
}
BENCHMARK(cross_entropy)->Apply(threads_and_bytes);

void cross_entropy_gradient(benchmark::State& state) {
  Setup setup{threads_of(state)};
  Tensor logits{DType::f32, 1024, 50257};
  Tensor gradient{type_of(state), 1024, 50257};
  Tensor vector{DType::f32, 1, 1024};
  Tensor targets{DType::i32, 1, 1024};
  measure_rows(state, logits.size(), 4 + state.range(1), [&] {
    setup.kernels->cross_entropy_gradient(gradient.matrix(), logits.matrix(), vector.matrix(), targets.matrix(), 1.0);
  });
}
BENCHMARK(cross_entropy_gradient)->Apply(threads_and_bytes);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
