// SPDX-License-Identifier: Apache-2.0
//
// What cutting a sequence costs: processor seconds of the forward and backward of one micro-batch, a Llama of 12 x 768
// on one stage, in 1, 2, 4 and 8 slices, taken in turns; the best of each counts. Fewer layers take less time and show
// the same.
//
//   benchmark_slices [SEQUENCE [ROUNDS [LAYERS [SEQUENCES]]]]
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <ctime>
#include <vector>

#include <fmt/format.h>

#include "base/host_block.hpp"
#include "base/random.hpp"
#include "kernels/kernels.hpp"
#include "kernels/workers.hpp"
#include "stage/stage.hpp"

namespace penstock {
namespace {

constexpr std::array<std::int32_t, 4> slice_counts{1, 2, 4, 8};

struct Times {
  double forward = 1e9;
  double backward = 1e9;
  double both() const { return forward + backward; }
};

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// All buffers of one micro-batch that is cut into some number of slices.
class MicroBatchRun {
 public:
  MicroBatchRun(const StageShape& shape, Kernels& kernels)
      : kernels_{kernels}, math_{shape}, bytes_{math_.bytes(kernels)} {
    for (const BufferKind kind :
         {BufferKind::parameters, BufferKind::gradients, BufferKind::workspace, BufferKind::tokens}) {
      of_stage_.push_back(block(kind));
    }
    for (std::int32_t slice = 0; slice < shape.slices; ++slice) {
      of_slices_.push_back(
          {block(BufferKind::activations), block(BufferKind::logits), block(BufferKind::key_value_gradients)});
    }
    fill();
  }

  Times run() {
    const double start = processor_seconds();
    for (const Slice slice : all<Slice>(math_.shape().slices)) {
      double loss = 0;
      math_.forward(kernels_, buffers(slice), StageMath::Keep::activations, &loss);
    }
    const double turn = processor_seconds();
    for (std::int32_t slice = math_.shape().slices; slice-- > 0;) {
      math_.backward(kernels_, buffers(Slice{slice}), 1.0);
    }
    return {turn - start, processor_seconds() - turn};
  }

 private:
  struct OfSlice {
    HostBlock activations;
    HostBlock logits;
    HostBlock key_value_gradients;
  };

  /// Its pages are there: a run has them from its first step on.
  HostBlock block(BufferKind kind) const {
    HostBlock block{bytes_[static_cast<std::size_t>(kind)], name_of(kind)};
    std::fill_n(block.data(), block.bytes().value, std::byte{0});
    return block;
  }

  void fill() {
    const CounterRandom random{1, RandomPurpose::tests, 0};
    std::array<std::uint16_t, 4093> weights{};  // bf16: the upper half of the bits of a float
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const auto value = static_cast<float>(0.02 * random.normal(i));
      weights[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
    }
    auto* const parameters = of_stage_[0].as<std::uint16_t>();
    for (std::int64_t i = 0; i < of_stage_[0].bytes().value / 2; ++i) {
      parameters[i] = weights[static_cast<std::size_t>(i % 4093)];
    }
    const StageShape& shape = math_.shape();
    auto* const tokens = of_stage_[3].as<std::int32_t>();
    for (std::int64_t i = 0; i < 2 * shape.rows(); ++i) {
      tokens[i] = static_cast<std::int32_t>((7 * i * i + 3 * i) % shape.model.vocabulary);
    }
  }

  StageBuffers buffers(Slice slice) {
    const StageShape& shape = math_.shape();
    OfSlice& own = of_slices_[static_cast<std::size_t>(slice.value())];
    StageBuffers buffers;
    buffers.slice = slice;
    buffers.parameters = of_stage_[0].data();
    buffers.gradients = of_stage_[1].data();
    buffers.workspace = of_stage_[2].data();
    buffers.tokens = of_stage_[3].as<std::int32_t>() + shape.sequences * shape.tokens_of(slice).begin;
    buffers.targets = buffers.tokens + shape.rows();
    buffers.activations = own.activations.data();
    buffers.logits = own.logits.data();
    buffers.key_value_gradients = own.key_value_gradients.data();
    for (std::int32_t earlier = 0; earlier < slice.value(); ++earlier) {
      OfSlice& of = of_slices_[static_cast<std::size_t>(earlier)];
      buffers.earlier.push_back({of.activations.data(), of.key_value_gradients.data()});
    }
    return buffers;
  }

  Kernels& kernels_;
  StageMath math_;
  StageBytes bytes_;
  std::vector<HostBlock> of_stage_;  // parameters, gradients, workspace, tokens
  std::vector<OfSlice> of_slices_;
};

StageShape shape_of(std::int64_t sequence, std::int64_t sequences, std::int32_t layers, std::int32_t slices) {
  const ModelSpec model{.layers = layers, .hidden = 768, .heads = 12, .kv_heads = 12, .head_size = 64, .ffn = 2048};
  return {.model = model, .end = Layer{layers}, .sequences = sequences, .tokens = sequence, .slices = slices};
}

void print(const std::array<Times, slice_counts.size()>& best) {
  fmt::print("slices   forward  backward      both  of 1 slice\n");
  for (std::size_t i = 0; i < best.size(); ++i) {
    fmt::print("{:>6} {:>9.2f} {:>9.2f} {:>9.2f} {:>10.3f} x\n", slice_counts[i], best[i].forward, best[i].backward,
               best[i].both(), best[i].both() / best[0].both());
  }
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  using namespace penstock;
  const auto argument = [&](int place, long usual) { return argc > place ? std::atol(argv[place]) : usual; };
  Workers workers{1};
  const auto kernels = make_host_kernels(workers);
  std::array<Times, slice_counts.size()> best;
  for (long round = 0; round < argument(2, 2); ++round) {
    for (std::size_t i = 0; i < slice_counts.size(); ++i) {
      const Times times = MicroBatchRun{shape_of(argument(1, 4096), argument(4, 1),
                                                 static_cast<std::int32_t>(argument(3, 12)), slice_counts[i]),
                                        *kernels}
                              .run();
      best[i].forward = std::min(best[i].forward, times.forward);
      best[i].backward = std::min(best[i].backward, times.backward);
    }
  }
  print(best);
}
