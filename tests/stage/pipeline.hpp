// SPDX-License-Identifier: Apache-2.0
//
// A model cut into stages and run in one process, without schedule, device or messages: what the tests of `stage` run
// on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "kernels/workers.hpp"
#include "stage/stage.hpp"

namespace penstock::test {

/// A buffer of exactly the planned size and alignment, all bits set at first: reading what nobody wrote gives NaN.
class Memory {
 public:
  Memory() = default;
  explicit Memory(Bytes bytes);
  std::byte* data() const { return data_.get(); }
  void fill(std::byte value) const;
  std::vector<std::byte> bytes() const { return {data(), data() + size_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t size_ = 0;
};

/// The kernels that a test runs on, and the workers that they need.
enum class KernelKind : std::uint8_t { reference, host };
struct KernelsUnderTest {
  explicit KernelsUnderTest(KernelKind kind, std::int32_t threads = 1);
  Kernels& operator*() const { return *kernels; }
  std::unique_ptr<Workers> workers;  ///< host only
  std::unique_ptr<Kernels> kernels;
};
const char* name_of(KernelKind kind);

/// What a test model is made of besides its spec.
struct PipelineShape {
  ModelSpec model;
  std::int64_t sequences = 2;
  std::int64_t tokens = 5;
  DType storage = DType::f64;
  std::vector<std::int32_t> layers_per_stage;  ///< empty: one stage
  std::int32_t slices = 1;
  double key_cost = 0;                    ///< see SequenceCut
  double offload_ratio = 0;               ///< see StageShape
  std::vector<SharingLimits> sharing;     ///< by stage; empty: attention is shared with nobody
  Recompute recompute = Recompute::none;  ///< with `full`, run keeps nothing and fills all again
};

/// Small models of both families whose sizes are no multiples of each other or of a vector's width.
ModelSpec small_llama();
ModelSpec small_gpt2();

/// Element `index` of the test value of the `number`th parameter of the model: a fraction that PyTorch's side
/// (scripts/reference_figures.py) computes alike.
double test_value(const Parameter& parameter, std::int64_t number, std::int64_t index);

/// What tests scale losses by: not 1, and no product with it is rounded.
inline constexpr double test_loss_scale = 0.125;

/// Gradients by canonical name, in double; the head's use of a tied table is "head/weight".
using Gradients = std::map<std::string, std::vector<double>>;

/// The gradient of a parameter: of both uses of a tied table, added in the order of the optimizer.
std::vector<double> whole_gradient(const Gradients& gradients, const std::string& name, bool tied);

/// The Euclidean norm.
double norm_of(const std::vector<double>& values);

/// The tensor of this name; null if the buffer has none. Points into the layout.
const TensorSlot* find_tensor(const BufferLayout& layout, const std::string& name);

/// A tensor of the buffer that begins at `base`.
Matrix matrix_of(const TensorSlot& slot, std::byte* base);

enum class Backward : std::uint8_t { whole, split };

class Pipeline {
 public:
  Pipeline(const PipelineShape& shape, Kernels& kernels);

  /// Sets element `index` of the parameter in every stage that has it.
  void set_parameter(const std::string& name, std::int64_t index, double value);
  double parameter(const std::string& name, std::int64_t index) const;

  /// The sum of the rows' losses of one micro-batch.
  double forward(StageMath::Keep keep);
  /// After a forward that kept its activations: adds to the gradients, for loss_scale x the sum.
  void backward(Backward how, double loss_scale);
  /// A whole pass: gradients set to zero, forward, (recompute,) backward of every stage. Returns the loss.
  double run(Backward how, double loss_scale);

  Gradients gradients() const;
  void zero_gradients();
  std::int64_t counted_targets() const;
  std::size_t stages() const { return stages_.size(); }
  const StageMath& math(std::size_t stage) const { return stages_[stage]->math; }
  const Memory& memory(std::size_t stage, BufferKind kind, Slice slice = Slice{0}) const {
    return stages_[stage]->memory(kind, slice);
  }
  /// Of a forward that keeps activations, or of a backward.
  StageBuffers buffers(std::size_t stage, Slice slice = Slice{0}) const;
  /// No row of the slice counts any more.
  void mask_targets(Slice slice);

 private:
  struct OneStage {
    OneStage(const StageShape& shape, const Kernels& kernels);
    /// Kinds that belong to the stage have one memory, that of slice 0.
    const Memory& memory(BufferKind kind, Slice slice = Slice{0}) const {
      return memories[static_cast<std::size_t>(kind)][static_cast<std::size_t>(slice.value())];
    }
    StageMath math;
    std::vector<std::vector<Memory>> memories;  ///< by kind and slice
  };
  StageBuffers buffers_to_keep_nothing(std::size_t stage, Slice slice) const;
  void backward(Backward how, double loss_scale, std::size_t stage, Slice slice);
  std::size_t first_row(Slice slice) const;
  void spoil_workspaces();
  void recompute_all();
  std::int64_t layer_count(std::size_t stage) const;

  PipelineShape shape_;
  Kernels& kernels_;
  std::vector<std::unique_ptr<OneStage>> stages_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> targets_;
};

}  // namespace penstock::test
