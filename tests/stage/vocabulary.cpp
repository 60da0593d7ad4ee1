// SPDX-License-Identifier: Apache-2.0
//
// A vocabulary shared by ranks, each a thread here: the loss and every gradient are those of a model in one piece.
#include "stage/vocabulary.hpp"

#include <algorithm>
#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "kernels/reference/values.hpp"
#include "mailboxes.hpp"
#include "pipeline.hpp"
#include "support/tensor_near.hpp"

namespace penstock::test {
namespace {

class ThreadPeers : public VocabularyPeers {
 public:
  ThreadPeers(Mailboxes& boxes, Rank own) : boxes_{boxes}, own_{own} {}
  void send(std::span<const std::byte> data, Rank to) override { boxes_.send(data, own_, to); }
  void receive(std::span<std::byte> data, Rank from) override { boxes_.receive(data, from, own_); }
  void exchange(std::span<const std::byte> out, Rank to, std::span<std::byte> in, Rank from) override {
    send(out, to);
    receive(in, from);
  }

 private:
  Mailboxes& boxes_;
  Rank own_;
};

/// All layers as one middle stage on rank 0, between the shares of the vocabulary of some ranks.
class SharedModel {
 public:
  /// Parameters and tokens are those of `whole`, a pipeline of one stage.
  SharedModel(const PipelineShape& shape, const Pipeline& whole, std::int32_t ranks, KernelKind kernels,
              std::int32_t threads = 1)
      : shape_{shape}, whole_{whole}, run_{run_of(shape)}, layers_{run_}, phase_{ranks} {
    for (const Rank rank : all<Rank>(ranks)) {
      shares_.push_back(std::make_unique<Share>(VocabularyShape{run_, ranks, rank, Rank{0}, Rank{ranks - 1}}, boxes_,
                                                kernels, threads));
      Share& share = *shares_.back();
      copy_parameters(share.math.layout(BufferKind::parameters), share.memory(BufferKind::parameters).data(),
                      share.math.shape().rows().begin);
    }
    const StageBytes bytes = layers_.bytes(**shares_.front()->kernels);
    for (const Bytes one : bytes) {
      layer_memory_.emplace_back();
      for (std::int32_t slice = 0; slice < shape.slices; ++slice) layer_memory_.back().emplace_back(one);
    }
    for (std::int32_t slice = 0; slice < shape.slices; ++slice) {
      ends_.emplace_back();
      for (int i = 0; i < 4; ++i) ends_.back().emplace_back(layers_.layout(BufferKind::input).bytes);
    }
    copy_parameters(layers_.layout(BufferKind::parameters), layer(BufferKind::parameters), 0);
  }

  /// Forward and backward of all slices; returns the loss, which all ranks must agree on.
  double run() {
    return together([this](Share& share) {
      share.memory(BufferKind::gradients).fill(std::byte{0});
      if (&share == shares_.front().get()) std::fill_n(layer(BufferKind::gradients), gradient_bytes(), std::byte{0});
      double loss = 0;
      for (const Slice slice : all<Slice>(shape_.slices)) loss += forward(share, slice, Keeps::yes);
      for (std::int32_t slice = shape_.slices; slice-- > 0;) backward(share, Slice{slice});
      return loss;
    });
  }
  /// The losses of a forward that keeps no logits.
  double evaluate() {
    return together([this](Share& share) {
      double loss = 0;
      for (const Slice slice : all<Slice>(shape_.slices)) loss += forward(share, slice, Keeps::no);
      return loss;
    });
  }
  /// After a run: the logits of one row of a slice.
  std::vector<double> logits_of(Slice slice, std::int64_t row) {
    const DType type = shape_.storage == DType::f64 ? DType::f64 : DType::f32;
    Memory out{Bytes{shape_.model.vocabulary * size_of(type)}};
    together([&](Share& share) {
      StageBuffers given = buffers(share, slice);
      given.logits = out.data();
      given.wanted_row = row;
      share.math.form_wanted_logits(**share.kernels, share.peers, given);
      return 0.0;
    });
    std::vector<double> values;
    for (std::int64_t i = 0; i < shape_.model.vocabulary; ++i) {
      values.push_back(reference::element(Matrix{out.data(), type, 1, shape_.model.vocabulary}, 0, i));
    }
    return values;
  }

  Gradients gradients() const {
    Gradients gradients;
    const auto add = [&](const BufferLayout& layout, std::byte* data) {
      for (const TensorSlot& slot : layout.tensors) {
        for (std::int64_t i = 0; i < slot.rows * slot.columns; ++i) {
          gradients[slot.name].push_back(reference::element(matrix_of(slot, data), i / slot.columns, i % slot.columns));
        }
      }
    };
    for (const auto& share : shares_) {
      add(share->math.layout(BufferKind::gradients), share->memory(BufferKind::gradients).data());
    }
    add(layers_.layout(BufferKind::gradients), layer(BufferKind::gradients));
    return gradients;
  }

 private:
  struct Share {
    Share(const VocabularyShape& shape, Mailboxes& boxes, KernelKind kind, std::int32_t threads)
        : math{shape}, peers{boxes, shape.rank}, kernels{std::make_unique<KernelsUnderTest>(kind, threads)} {
      for (const Bytes bytes : math.bytes(**kernels)) {
        memories.emplace_back();
        for (std::int32_t slice = 0; slice < shape.run.slices; ++slice) memories.back().emplace_back(bytes);
      }
    }
    const Memory& memory(BufferKind kind, Slice slice = Slice{0}) const {
      return memories[static_cast<std::size_t>(kind)][static_cast<std::size_t>(slice.value())];
    }
    VocabularyMath math;
    ThreadPeers peers;
    std::unique_ptr<KernelsUnderTest> kernels;
    std::vector<std::vector<Memory>> memories;
  };
  enum class Keeps : std::uint8_t { no, yes };
  enum End : std::size_t { input, output, input_gradient, output_gradient };

  static StageShape run_of(const PipelineShape& shape) {
    return {.model = shape.model,
            .end = Layer{shape.model.layers},
            .first = false,
            .last = false,
            .sequences = shape.sequences,
            .tokens = shape.tokens,
            .storage = shape.storage,
            .slices = shape.slices};
  }
  std::byte* layer(BufferKind kind, Slice slice = Slice{0}) const {
    return layer_memory_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(slice.value())].data();
  }
  std::byte* end_of(End end, Slice slice) const { return ends_[static_cast<std::size_t>(slice.value())][end].data(); }
  std::int64_t gradient_bytes() const { return layers_.layout(BufferKind::gradients).bytes.value; }

  void copy_parameters(const BufferLayout& layout, std::byte* to, std::int64_t first_row) const {
    for (const TensorSlot& slot : layout.tensors) {
      const bool is_cut = slot.name == "embedding/token/weight" || slot.name == "head/weight";
      for (std::int64_t i = 0; i < slot.rows * slot.columns; ++i) {
        const std::int64_t index = i + (is_cut ? first_row * slot.columns : 0);
        reference::set_element(matrix_of(slot, to), i / slot.columns, i % slot.columns,
                               whole_.parameter(slot.name, index));
      }
    }
  }

  template <class Work>
  double together(const Work& work) {
    std::vector<double> results(shares_.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      threads.emplace_back([&, i] { results[i] = work(*shares_[i]); });
    }
    for (auto& thread : threads) thread.join();
    for (const double result : results) EXPECT_EQ(result, results.front());
    return results.front();
  }

  StageBuffers buffers(const Share& share, Slice slice) const {
    share.memory(BufferKind::workspace).fill(std::byte{0xFF});
    const StageBuffers of_whole = whole_.buffers(0, slice);
    StageBuffers given{.slice = slice,
                       .parameters = share.memory(BufferKind::parameters).data(),
                       .gradients = share.memory(BufferKind::gradients).data(),
                       .logits = share.memory(BufferKind::logits, slice).data(),
                       .workspace = share.memory(BufferKind::workspace).data(),
                       .tokens = of_whole.tokens,
                       .targets = of_whole.targets};
    if (share.math.shape().is_first()) {
      given.output = end_of(input, slice);
      given.output_gradient = end_of(input_gradient, slice);
    }
    if (share.math.shape().is_last()) {
      given.input = end_of(output, slice);
      given.input_gradient = end_of(output_gradient, slice);
    }
    return given;
  }
  StageBuffers layer_buffers(Slice slice) const {
    StageBuffers given{.slice = slice,
                       .parameters = layer(BufferKind::parameters),
                       .gradients = layer(BufferKind::gradients),
                       .input = end_of(input, slice),
                       .output = end_of(output, slice),
                       .activations = layer(BufferKind::activations, slice),
                       .output_gradient = end_of(output_gradient, slice),
                       .input_gradient = end_of(input_gradient, slice),
                       .workspace = layer(BufferKind::workspace)};
    if (slice.value() + 1 < shape_.slices) given.key_value_gradients = layer(BufferKind::key_value_gradients, slice);
    for (const Slice earlier : all<Slice>(slice.value())) {
      given.earlier.push_back(
          {layer(BufferKind::activations, earlier), layer(BufferKind::key_value_gradients, earlier)});
    }
    return given;
  }
  template <class Work>
  void on_first(const Share& share, const Work& work) {
    phase_.arrive_and_wait();
    if (&share == shares_.front().get()) work(**share.kernels);
    phase_.arrive_and_wait();
  }

  double forward(Share& share, Slice slice, Keeps keeps) {
    share.math.embed(**share.kernels, share.peers, buffers(share, slice));
    on_first(share, [&](Kernels& kernels) {
      layers_.forward(kernels, layer_buffers(slice), StageMath::Keep::activations, nullptr);
    });
    StageBuffers given = buffers(share, slice);
    if (keeps == Keeps::no) given.logits = nullptr;
    return share.math.forward(**share.kernels, share.peers, given);
  }
  void backward(Share& share, Slice slice) {
    share.math.backward(**share.kernels, share.peers, buffers(share, slice), test_loss_scale);
    on_first(share, [&](Kernels& kernels) { layers_.backward(kernels, layer_buffers(slice), test_loss_scale); });
    share.math.embed_backward(**share.kernels, share.peers, buffers(share, slice));
  }

  PipelineShape shape_;
  const Pipeline& whole_;
  StageShape run_;
  StageMath layers_;
  std::barrier<> phase_;
  Mailboxes boxes_;
  std::vector<std::unique_ptr<Share>> shares_;
  std::vector<std::vector<Memory>> layer_memory_;  // by kind and slice
  std::vector<std::vector<Memory>> ends_;          // by slice and End
};

struct ShareCase {
  std::string name;
  ModelSpec model;
  std::int32_t ranks = 2;
  std::int32_t slices = 1;
};

void PrintTo(const ShareCase& value, std::ostream* stream) {
  *stream << value.name;
}

/// Of eleven tokens each of two or four ranks has five or six, two or three; three slices of seven tokens are uneven.
std::vector<ShareCase> cases() {
  std::vector<ShareCase> cases;
  for (const bool tied : {false, true}) {
    for (const std::int32_t ranks : {1, 2, 4}) {
      for (const std::int32_t slices : {1, 3}) {
        for (ModelSpec model : {small_llama(), small_gpt2()}) {
          model.tie_embeddings = tied;
          const std::string family = model.family == Family::llama ? "llama" : "gpt2";
          cases.push_back({fmt::format("{}_{}_{}_ranks_{}_slices", family, tied ? "tied" : "untied", ranks, slices),
                           model, ranks, slices});
        }
      }
    }
  }
  return cases;
}

class SharedVocabulary : public testing::TestWithParam<ShareCase> {
 protected:
  PipelineShape shape(DType storage) const {
    return {.model = GetParam().model, .sequences = 3, .tokens = 7, .storage = storage, .slices = GetParam().slices};
  }

  void expect_whole(DType storage, KernelKind kind, double loss_tolerance, double gradient_tolerance) const {
    const KernelsUnderTest kernels{kind};
    Pipeline whole{shape(storage), *kernels};
    SharedModel shared{shape(storage), whole, GetParam().ranks, kind};

    const double loss = whole.run(Backward::whole, test_loss_scale);

    EXPECT_NEAR(shared.run(), loss, loss_tolerance * loss);
    const Gradients expected = whole.gradients();
    const Gradients actual = shared.gradients();
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [name, values] : actual) {
      if (name.ends_with("key/bias")) continue;  // zero but for rounding
      EXPECT_GT(norm_of(values), 0) << name;
      EXPECT_TENSOR_NEAR(values, expected.at(name), gradient_tolerance) << name;
    }
  }
};

TEST_P(SharedVocabulary, GivesTheLossAndEveryGradientInDouble) {
  expect_whole(DType::f64, KernelKind::reference, 1e-12, 1e-12);
}

TEST_P(SharedVocabulary, GivesTheLossAndEveryGradientOnTheHost) {
  expect_whole(DType::f32, KernelKind::host, 1e-6, 1e-5);
}

TEST_P(SharedVocabulary, GivesTheSameBitsOnTwoThreadsAndWithNothingKept) {
  for (const DType storage : {DType::f32, DType::bf16}) {
    const KernelsUnderTest kernels{KernelKind::host};
    const Pipeline whole{shape(storage), *kernels};
    SharedModel one{shape(storage), whole, GetParam().ranks, KernelKind::host};
    SharedModel two{shape(storage), whole, GetParam().ranks, KernelKind::host, 2};

    const double loss = one.run();

    EXPECT_EQ(one.evaluate(), loss);
    EXPECT_EQ(two.run(), loss);
    EXPECT_EQ(two.gradients(), one.gradients());
  }
}

TEST_P(SharedVocabulary, FormsTheLogitsOfOneRow) {
  const KernelsUnderTest kernels{KernelKind::reference};
  Pipeline whole{shape(DType::f64), *kernels};
  SharedModel shared{shape(DType::f64), whole, GetParam().ranks, KernelKind::reference};
  const Slice last{GetParam().slices - 1};
  whole.forward(StageMath::Keep::activations);
  shared.evaluate();

  const auto logits = shared.logits_of(last, 1);

  const auto layout = whole.math(0).layout(BufferKind::logits);
  const Matrix expected = matrix_of(layout.tensors.front(), whole.memory(0, BufferKind::logits, last).data());
  for (std::int64_t i = 0; i < GetParam().model.vocabulary; ++i) {
    EXPECT_NEAR(logits[static_cast<std::size_t>(i)], reference::element(expected, 1, i), 1e-12) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, SharedVocabulary, testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.name; });

TEST(AShare, HasItsPartOfTheLogitsAndOfTheRows) {
  const ModelSpec model{.layers = 4, .hidden = 256, .ffn = 704, .vocabulary = 4096};
  const StageShape run{.model = model, .end = Layer{4}, .tokens = 1024, .slices = 8};
  const auto bytes_of = [&](std::int32_t ranks, BufferKind kind) {
    return VocabularyMath{{run, ranks, Rank{1 % ranks}, Rank{0}, Rank{ranks - 1}}}.layout(kind).bytes.value;
  };
  constexpr std::int64_t rows = 128;
  constexpr std::int64_t hidden = rows * 256 * 2;

  // Logits in fp32 and a log-sum-exp a row; beside them the hidden states, which all ranks have whole.
  EXPECT_EQ(bytes_of(4, BufferKind::logits), rows * 1024 * 4 + hidden + rows * 4);
  EXPECT_EQ(bytes_of(8, BufferKind::logits), rows * 512 * 4 + hidden + rows * 4);
  EXPECT_EQ(bytes_of(4, BufferKind::parameters), 2 * 1024 * 256 * 2);
  EXPECT_EQ(bytes_of(4, BufferKind::gradients), 2 * 1024 * 256 * 4);
}

TEST(AShare, RefusesTokensBeyondTheVocabularyAndMoreRanksThanRows) {
  const PipelineShape shape{.model = small_llama(), .sequences = 1, .tokens = 4};
  const StageShape run{.model = small_llama(), .end = Layer{3}, .sequences = 1, .tokens = 4, .storage = DType::f64};
  const KernelsUnderTest kernels{KernelKind::reference};
  Mailboxes boxes;
  ThreadPeers peers{boxes, Rank{0}};
  const VocabularyMath math{{run, 1, Rank{0}, Rank{0}, Rank{0}}};
  const Memory memory{math.bytes(*kernels)[static_cast<std::size_t>(BufferKind::workspace)]};
  const std::vector<std::int32_t> tokens{1, 2, 11, 3};
  const StageBuffers buffers{.workspace = memory.data(), .tokens = tokens.data()};

  EXPECT_THROW(math.embed(*kernels, peers, buffers), Error);
  EXPECT_THROW((VocabularyMath{{run, 12, Rank{0}, Rank{0}, Rank{11}}}), Error);
}

}  // namespace
}  // namespace penstock::test
