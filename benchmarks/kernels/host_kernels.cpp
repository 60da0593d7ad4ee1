// SPDX-License-Identifier: Apache-2.0
//
// Rates of the host kernels. `of_onednn` compares the floating-point rate with that of one plain oneDNN product of
// 1024 x 768 x 768 of the same type on as many OpenMP threads, measured just before and after. Machines are shared: on
// one thread both are measured in its processor time, and the best run counts.
#include <algorithm>
#include <array>
#include <bit>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
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
  for (auto _ : state) {
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

void linear(benchmark::State& state, DType type, Pass pass, std::int64_t tokens, std::int64_t in, std::int64_t out) {
  const auto threads = static_cast<int>(state.range(0));
  Setup setup{threads};
  Tensor x{type, tokens, in};
  Tensor weight{type, out, in};
  Tensor weight_gradient{DType::f32, pass == Pass::weight ? out : 0, in};
  Tensor y{out > 10000 && pass == Pass::forward ? DType::f32 : type, tokens, out};
  measure(state, type, threads, 2.0 * static_cast<double>(tokens * in * out), [&] {
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

/// The flops of all keys are counted in half for the causal mask; backward 2.5 times forward.
void attention(benchmark::State& state, DType type, Pass pass, AttentionShape shape) {
  const auto threads = static_cast<int>(state.range(0));
  Setup setup{threads};
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
    measure(state, type, threads, flops, forward);
    return;
  }
  measure(state, type, threads, 2.5 * flops, [&] {
    setup.kernels->attention_gradient(shape, dq.matrix(), dk.matrix(), dv.matrix(), q.matrix(), out.matrix(),
                                      lse.matrix(), q.matrix(), k.matrix(), v.matrix());
  });
}

/// Row-wise operations: nanoseconds an element (of one thread's share) tell more than flops.
template <class Body>
void row_wise(benchmark::State& state, std::int64_t elements, std::int64_t bytes_per_element, const Body& body) {
  const auto threads = static_cast<int>(state.range(0));
  body();
  double best = 1e9;
  for (auto _ : state) {
    const double start = seconds(threads);
    body();
    best = std::min(best, seconds(threads) - start);
  }
  state.counters["Gelement/s"] = static_cast<double>(elements) / best * 1e-9;
  state.counters["GB/s"] = static_cast<double>(elements * bytes_per_element) / best * 1e-9;
}

void register_linear(const std::string& name, DType type, std::int64_t tokens, std::int64_t in, std::int64_t out) {
  const std::array<std::pair<Pass, const char*>, 3> passes{
      {{Pass::forward, "forward"}, {Pass::input, "input_gradient"}, {Pass::weight, "weight_gradient"}}};
  for (const auto& [pass, pass_name] : passes) {
    const std::string full = "linear/" + name + "/" + pass_name + (type == DType::bf16 ? "/bf16" : "/f32");
    const auto run = [=, the_pass = pass](benchmark::State& state) { linear(state, type, the_pass, tokens, in, out); };
    benchmark::RegisterBenchmark(full.c_str(), run)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();
  }
}

void register_attention(const std::string& name, DType type, const AttentionShape& shape) {
  for (const Pass pass : {Pass::forward, Pass::input}) {
    const std::string full = "attention/" + name + (pass == Pass::forward ? "/forward" : "/gradient") +
                             (type == DType::bf16 ? "/bf16" : "/f32");
    const auto run = [=](benchmark::State& state) { attention(state, type, pass, shape); };
    benchmark::RegisterBenchmark(full.c_str(), run)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();
  }
}

void register_row_wise(DType type) {
  const std::string suffix = type == DType::bf16 ? "/bf16" : "/f32";
  const std::int64_t s = size_of(type);
  const auto add = [&](const std::string& name, std::function<void(benchmark::State&, Setup&)> run) {
    const auto body = [=](benchmark::State& state) {
      Setup setup{static_cast<int>(state.range(0))};
      run(state, setup);
    };
    benchmark::RegisterBenchmark((name + suffix).c_str(), body)
        ->Arg(1)
        ->Arg(2)
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
  };
  add("gelu/1024x3072", [=](benchmark::State& state, Setup& setup) {
    Tensor in{type, 1024, 3072};
    Tensor out{type, 1024, 3072};
    row_wise(state, 1024 * 3072, 2 * s, [&] { setup.kernels->gelu(out.matrix(), in.matrix()); });
  });
  add("gelu_gradient/1024x3072", [=](benchmark::State& state, Setup& setup) {
    Tensor in{type, 1024, 3072};
    Tensor out{type, 1024, 3072};
    row_wise(state, 1024 * 3072, 3 * s, [&] { setup.kernels->gelu_gradient(out.matrix(), in.matrix(), in.matrix()); });
  });
  add("add/1024x768", [=](benchmark::State& state, Setup& setup) {
    Tensor in{type, 1024, 768};
    Tensor out{type, 1024, 768};
    row_wise(state, 1024 * 768, 3 * s, [&] { setup.kernels->add(out.matrix(), in.matrix(), in.matrix()); });
  });
  add("bias_gradient/1024x3072", [=](benchmark::State& state, Setup& setup) {
    Tensor in{type, 1024, 3072};
    Tensor out{DType::f32, 1, 3072};
    row_wise(state, 1024 * 3072, s, [&] { setup.kernels->bias_gradient(out.matrix(), in.matrix()); });
  });
  add("layer_norm/1024x768", [=](benchmark::State& state, Setup& setup) {
    Tensor in{type, 1024, 768};
    Tensor out{type, 1024, 768};
    Tensor vector{type, 1, 768};
    Tensor statistics{DType::f32, 1, 1024};
    row_wise(state, 1024 * 768, 2 * s, [&] {
      setup.kernels->layer_norm(out.matrix(), statistics.matrix(), statistics.matrix(), in.matrix(), vector.matrix(),
                                vector.matrix(), 1e-5);
    });
  });
  add("layer_norm_gradient/1024x768", [=](benchmark::State& state, Setup& setup) {
    Tensor in{type, 1024, 768};
    Tensor out{type, 1024, 768};
    Tensor vector{type, 1, 768};
    Tensor gradient{DType::f32, 1, 768};
    Tensor statistics{DType::f32, 1, 1024};
    row_wise(state, 1024 * 768, 4 * s, [&] {
      setup.kernels->layer_norm_gradient(out.matrix(), gradient.matrix(), gradient.matrix(), in.matrix(), in.matrix(),
                                         statistics.matrix(), statistics.matrix(), vector.matrix(), in.matrix());
    });
  });
  add("cross_entropy/1024x50257", [=](benchmark::State& state, Setup& setup) {
    Tensor logits{DType::f32, 1024, 50257};
    Tensor vector{DType::f32, 1, 1024};
    Tensor targets{DType::i32, 1, 1024};
    row_wise(state, 1024 * 50257, 4, [&] {
      setup.kernels->cross_entropy(vector.matrix(), vector.matrix(), logits.matrix(), targets.matrix());
    });
  });
  add("cross_entropy_gradient/1024x50257", [=](benchmark::State& state, Setup& setup) {
    Tensor logits{DType::f32, 1024, 50257};
    Tensor gradient{type, 1024, 50257};
    Tensor vector{DType::f32, 1, 1024};
    Tensor targets{DType::i32, 1, 1024};
    row_wise(state, 1024 * 50257, 4 + s, [&] {
      setup.kernels->cross_entropy_gradient(gradient.matrix(), logits.matrix(), vector.matrix(), targets.matrix(), 1.0);
    });
  });
  add("embedding_gradient/1024x768", [=](benchmark::State& state, Setup& setup) {
    Tensor gradient{type, 1024, 768};
    Tensor words{DType::f32, 50257, 768};
    Tensor positions{DType::f32, 1024, 768};
    Tensor tokens{DType::i32, 1, 1024};
    for (int t = 0; t < 1024; ++t) tokens.matrix().as<std::int32_t>()[t] = t * 7919 % 50257;
    row_wise(state, 1024 * 768, 16 + s, [&] {
      setup.kernels->embedding_gradient(words.matrix(), positions.matrix(), gradient.matrix(), tokens.matrix(), 256, 0);
    });
  });
  add("rotate/1024x768", [=](benchmark::State& state, Setup& setup) {
    Tensor x{type, 1024, 768};
    row_wise(state, 1024 * 768, 2 * s,
             [&] { setup.kernels->rotate(x.matrix(), 12, 256, 0, 1e4, Kernels::Rotation::forward); });
  });
  add("swiglu/256x704", [=](benchmark::State& state, Setup& setup) {
    Tensor x{type, 256, 704};
    Tensor y{type, 256, 704};
    row_wise(state, 256 * 704, 3 * s, [&] { setup.kernels->swiglu(y.matrix(), x.matrix(), x.matrix()); });
  });
}

}  // namespace
}  // namespace penstock

int main(int count, char** values) {
  using namespace penstock;
  for (const DType type : {DType::bf16, DType::f32}) {
    register_linear("1024x768x768", type, 1024, 768, 768);
    register_linear("1024x768x3072", type, 1024, 768, 3072);
    register_linear("1024x3072x768", type, 1024, 3072, 768);
    register_linear("256x256x704", type, 256, 256, 704);
    register_linear("head_1024x768x50257", type, 1024, 768, 50257);
    register_attention(
        "4x256x12x64", type,
        {.sequences = 4, .query_tokens = 256, .key_tokens = 256, .heads = 12, .kv_heads = 12, .head_size = 64});
    register_attention(
        "1x256x8x32_grouped", type,
        {.sequences = 1, .query_tokens = 256, .key_tokens = 256, .heads = 8, .kv_heads = 4, .head_size = 32});
    register_attention(
        "1x4096x12x64", type,
        {.sequences = 1, .query_tokens = 4096, .key_tokens = 4096, .heads = 12, .kv_heads = 12, .head_size = 64});
    register_row_wise(type);
  }
  benchmark::Initialize(&count, values);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
