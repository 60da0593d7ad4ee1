// SPDX-License-Identifier: Apache-2.0
//
// The operations of a stage, declared once; `reference/` is the executable specification (naive, double accumulation),
// `host/` the fast host one (oneDNN, oneTBB; elementwise bodies from `unified/`), `cuda/` is to come.
//
// Conventions, for all operations:
// * Activations and their gradients have the storage type S (bf16 or f32; f64 with the reference kernels). Statistics
// (1/rms,
//   mean, log-sum-exp), logits and weight gradients have the accumulation type A: f32 for S = bf16 or f32, f64 for S =
//   f64. Parameters have type S. Arithmetic inside an operation is in A; a result is rounded once, when it is stored.
// * Outputs are overwritten, except weight gradients, which are added to (slices and micro-batches share one gradient),
// and
//   where a comment says "adds".
// * T is the number of token rows: sequences x tokens, sequences slowest.
// * Results do not depend on the number of threads: sums are formed in a fixed order over fixed blocks.
// * An implementation may be asynchronous (CUDA): results are there when the stream reaches the point of the call. The
// host
//   implementations return when done. Shapes that disagree throw Error internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/units.hpp"
#include "kernels/targets.hpp"
#include "kernels/tensor.hpp"

namespace penstock {

/// The sequences, heads and widths of one attention call. Row (b * tokens + t) of q is token t of sequence b; its heads
/// lie side by side. Head h of q uses head h / (heads / kv_heads) of k and v. Scores are scaled by 1/sqrt(head_size).
struct AttentionShape {
  std::int64_t sequences = 1;
  std::int64_t query_tokens = 0;
  std::int64_t key_tokens = 0;  ///< of all chunks
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_size = 0;
  /// Query t sees keys 0..t of the newest chunk, which has query_tokens, and all keys of the chunks before; else all.
  bool causal = true;
};

/// The keys and values of consecutive tokens, those of a slice: [sequences * tokens, kv_heads * head_size] with tokens
/// of the chunk. A list of chunks ascends; its last is the newest.
struct KeyValueChunk {
  ConstMatrix k;
  ConstMatrix v;
  /// Gradient calls: sums of type A, shapes of k and v. May be empty for the newest chunk.
  Matrix k_gradient = {};
  Matrix v_gradient = {};
  /// Of each sequence's tokens in k and v, and in the sums, those that belong to the chunk; below 0: all.
  std::int64_t first_token = 0;
  std::int64_t tokens = -1;
};

/// Attention to some of the keys that queries see, of type A: out[Tq, heads*d] over those keys alone,
/// log_sum_exp[heads, Tq] of their scores.
struct AttentionPart {
  ConstMatrix out;
  ConstMatrix log_sum_exp;
};

/// Upper bounds of what will be asked of a Kernels object: the size of its scratch follows from them.
struct KernelLimits {
  std::int64_t tokens = 0;      ///< most rows T of one call
  std::int64_t width = 0;       ///< largest hidden, query, key or ffn width
  std::int64_t vocabulary = 0;  ///< columns of logits
  AttentionShape attention;     ///< the largest attention call
  DType storage = DType::bf16;
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  /// "host (oneDNN 2.6.3, avx512_core_bf16, 2 threads)": for the log.
  virtual std::string description() const = 0;

  /// Scratch memory that calls within `limits` need: a fixed function of `limits` and of the number of threads that the
  /// kernels were made with, whatever the instruction set, so that a plan made elsewhere holds; and the memory itself,
  /// which must outlive the calls. Results never depend on it.
  virtual Bytes scratch_bytes(const KernelLimits& limits) const = 0;
  virtual void bind_scratch(std::span<std::byte> scratch) = 0;

  // --- tables -------------------------------------------------------------------------------------------------------
  /// out[T, C] = token_table[tokens[t]] (+ position_table[positions...]): tokens i32 [1, T]. With a position table (may
  /// be empty), row t of sequence b adds position_table[first_position + t], tokens_per_sequence rows a sequence.
  virtual void embedding(Matrix out, ConstMatrix tokens, ConstMatrix token_table, ConstMatrix position_table,
                         std::int64_t tokens_per_sequence, std::int64_t first_position) = 0;
  /// token_gradient[V, C] += rows of gradient[T, C] by token, in order of t; position_gradient (may be empty) likewise.
  /// A token below 0 is of another table: its row is added to its position alone.
  virtual void embedding_gradient(Matrix token_gradient, Matrix position_gradient, ConstMatrix gradient,
                                  ConstMatrix tokens, std::int64_t tokens_per_sequence,
                                  std::int64_t first_position) = 0;

  // --- normalization over columns -----------------------------------------------------------------------------------
  /// out[T, C] = in / rms(in) * weight[1, C]; inverse_rms[1, T] is kept.
  virtual void rms_norm(Matrix out, Matrix inverse_rms, ConstMatrix in, ConstMatrix weight, double epsilon) = 0;
  /// in_gradient = d in of out_gradient (in_gradient may be out_gradient's memory); if `residual` is given, in_gradient
  /// = round(residual + round(d in)): the residual add of the backward pass. weight_gradient[1, C] (A) is added to.
  virtual void rms_norm_gradient(Matrix in_gradient, Matrix weight_gradient, ConstMatrix out_gradient, ConstMatrix in,
                                 ConstMatrix inverse_rms, ConstMatrix weight, ConstMatrix residual) = 0;
  /// out = (in - mean) / deviation * weight + bias; mean[1, T] and inverse_deviation[1, T] are kept.
  virtual void layer_norm(Matrix out, Matrix mean, Matrix inverse_deviation, ConstMatrix in, ConstMatrix weight,
                          ConstMatrix bias, double epsilon) = 0;
  virtual void layer_norm_gradient(Matrix in_gradient, Matrix weight_gradient, Matrix bias_gradient,
                                   ConstMatrix out_gradient, ConstMatrix in, ConstMatrix mean,
                                   ConstMatrix inverse_deviation, ConstMatrix weight, ConstMatrix residual) = 0;

  // --- matrix products ----------------------------------------------------------------------------------------------
  /// out[T, N] = in[T, K] · weight[N, K]^T (+ bias[1, N], may be empty). out has type S, or A for logits.
  virtual void linear(Matrix out, ConstMatrix in, ConstMatrix weight, ConstMatrix bias) = 0;
  /// in_gradient[T, K] = out_gradient[T, N] · weight[N, K]; `accumulate` adds to in_gradient instead, rounding the sum
  /// once (branches that share an input: q, k, v; gate, up). out_gradient has type S.
  enum class Write : std::uint8_t { overwrite, accumulate };
  virtual void linear_input_gradient(Matrix in_gradient, ConstMatrix out_gradient, ConstMatrix weight, Write write) = 0;
  /// weight_gradient[N, K] (A) += out_gradient[T, N]^T · in[T, K].
  virtual void linear_weight_gradient(Matrix weight_gradient, ConstMatrix out_gradient, ConstMatrix in) = 0;
  /// bias_gradient[1, N] (A) += column sums of out_gradient[T, N].
  virtual void bias_gradient(Matrix bias_gradient, ConstMatrix out_gradient) = 0;

  // --- attention ----------------------------------------------------------------------------------------------------
  /// In place on x[T, heads * head_size]: rotates pairs (i, i + head_size/2) of every head by the angle
  /// (first_position + t) * theta^(-2 i / head_size); `inverse` rotates back (the gradient).
  enum class Rotation : std::uint8_t { forward, inverse };
  virtual void rotate(Matrix x, std::int64_t heads, std::int64_t tokens_per_sequence, std::int64_t first_position,
                      double theta, Rotation rotation) = 0;
  /// out[Tq, heads*d] = softmax(q k^T) v per head, over the keys of all chunks; log_sum_exp (A) is [heads, Tq]. Chunks
  /// are merged in their order in the accumulation type; the merged result is rounded once. Memory linear in the
  /// tokens. `out` of type A is not rounded: a part of attention, the keys of whose other parts are not among the
  /// chunks.
  virtual void attention(const AttentionShape& shape, Matrix out, Matrix log_sum_exp, ConstMatrix q,
                         std::span<const KeyValueChunk> chunks) = 0;
  /// dq of out_gradient, and dk, dv of the newest chunk, all of type S, overwritten. The gradients of the keys and
  /// values of earlier chunks are added to their sums; those that the newest has in its sums already are part of dk and
  /// dv, which are rounded once.
  virtual void attention_gradient(const AttentionShape& shape, Matrix dq, Matrix dk, Matrix dv,
                                  ConstMatrix out_gradient, ConstMatrix out, ConstMatrix log_sum_exp, ConstMatrix q,
                                  std::span<const KeyValueChunk> chunks) = 0;
  /// out = round(sum of w_i out_i), w_i = e^(lse_i - lse), lse = log(sum of e^lse_i): attention to the keys of all
  /// parts, each key in one of them, added up in their order. log_sum_exp gives the heads; `out` has type S.
  virtual void merge_attention(Matrix out, Matrix log_sum_exp, std::span<const AttentionPart> parts) = 0;
  /// shift[heads, Tq] (A) = out_gradient · out, by head: what the gradients of all parts take from the whole.
  virtual void attention_shift(Matrix shift, ConstMatrix out_gradient, ConstMatrix out) = 0;
  /// The part that some chunks have in the gradient of the whole attention, whose log_sum_exp and shift are given. dq
  /// (A) is overwritten with their part of it; the gradients of all keys and values are added to the chunks' sums,
  /// which the newest must have too.
  virtual void attention_part_gradient(const AttentionShape& shape, Matrix dq, ConstMatrix out_gradient,
                                       ConstMatrix log_sum_exp, ConstMatrix shift, ConstMatrix q,
                                       std::span<const KeyValueChunk> chunks) = 0;
  /// out = round(sum of the parts (A), in their order). `out`, of type A or S, may be one of the parts.
  virtual void add_parts(Matrix out, std::span<const ConstMatrix> parts) = 0;
  /// The same with all keys in one chunk.
  void attention(const AttentionShape& shape, Matrix out, Matrix log_sum_exp, ConstMatrix q, ConstMatrix k,
                 ConstMatrix v) {
    const KeyValueChunk chunk{k, v};
    attention(shape, out, log_sum_exp, q, {&chunk, 1});
  }
  void attention_gradient(const AttentionShape& shape, Matrix dq, Matrix dk, Matrix dv, ConstMatrix out_gradient,
                          ConstMatrix out, ConstMatrix log_sum_exp, ConstMatrix q, ConstMatrix k, ConstMatrix v) {
    const KeyValueChunk chunk{k, v};
    attention_gradient(shape, dq, dk, dv, out_gradient, out, log_sum_exp, q, {&chunk, 1});
  }

  // --- elementwise --------------------------------------------------------------------------------------------------
  /// out = round(a + b): the residual stream is rounded after every add. out may be a or b.
  virtual void add(Matrix out, ConstMatrix a, ConstMatrix b) = 0;
  /// out = silu(gate) * up.
  virtual void swiglu(Matrix out, ConstMatrix gate, ConstMatrix up) = 0;
  virtual void swiglu_gradient(Matrix gate_gradient, Matrix up_gradient, ConstMatrix out_gradient, ConstMatrix gate,
                               ConstMatrix up) = 0;
  /// out = gelu(in), the tanh approximation ("gelu_new").
  virtual void gelu(Matrix out, ConstMatrix in) = 0;
  virtual void gelu_gradient(Matrix in_gradient, ConstMatrix out_gradient, ConstMatrix in) = 0;
  /// Sets all bytes of out to zero.
  virtual void zero(Matrix out) = 0;
  /// out = in, to the bit; of one type, not overlapping.
  virtual void copy(Matrix out, ConstMatrix in) = 0;

  // --- loss ---------------------------------------------------------------------------------------------------------
  /// losses[1, T] (A) = log_sum_exp[1, T] - logits[t, target[t]]; logits[T, V] (A); targets i32 [1, T], below 0: not
  /// counted (or target_elsewhere), loss 0.
  virtual void cross_entropy(Matrix losses, Matrix log_sum_exp, ConstMatrix logits, ConstMatrix targets) = 0;
  /// logits_gradient[T, V] (S) = scale * (softmax(logits) - onehot(target)), rows without a target 0; those with
  /// target_elsewhere have no onehot part.
  virtual void cross_entropy_gradient(Matrix logits_gradient, ConstMatrix logits, ConstMatrix log_sum_exp,
                                      ConstMatrix targets, double scale) = 0;
};

class Workers;  // kernels/workers.hpp

/// The naive kernels, any storage type.
std::unique_ptr<Kernels> make_reference_kernels();
/// The fast host kernels, bf16 and f32, on `workers` (which must outlive them). For the calls of one thread at a time.
std::unique_ptr<Kernels> make_host_kernels(Workers& workers);

/// The instruction sets among which the host kernels choose, ascending. The bits of their results are promised per set.
enum class InstructionSet : std::uint8_t { baseline, avx2, avx512, avx512_bf16, amx };
std::string_view name_of(InstructionSet set);
/// The highest that this processor has, DNNL_MAX_CPU_ISA and limit_host_instruction_set allow.
InstructionSet host_instruction_set();
/// Uses no higher set than `limit`: ranks on different processors agree on the lowest. Call it before the first
/// make_host_kernels of the process. @throws Error internal if oneDNN has chosen already.
void limit_host_instruction_set(InstructionSet limit);

}  // namespace penstock
