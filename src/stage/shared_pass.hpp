// SPDX-License-Identifier: Apache-2.0
//
// What the forward and the backward pass do alike where ranks share the attention of a block
// (stage/shared_attention.hpp): the memory of it, which rows are handed on, and in what order messages are posted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "base/units.hpp"
#include "kernels/kernels.hpp"
#include "stage/block.hpp"
#include "stage/shared_attention.hpp"

namespace penstock {

/// Hands out what a stage's attention works with, one tensor behind the other in a memory; without memory it only
/// counts. Rows are queries or keys.
class SharingArea {
 public:
  SharingArea(std::byte* base, const StageShape& shape);
  Matrix queries(std::int64_t rows) { return take(storage_, rows, query_); }
  Matrix keys(std::int64_t rows) { return take(storage_, rows, kv_); }
  Matrix query_sums(std::int64_t rows) { return take(accumulation_, rows, query_); }
  Matrix key_sums(std::int64_t rows) { return take(accumulation_, rows, kv_); }
  Matrix statistic(std::int64_t rows) { return take(accumulation_, heads_, rows); }
  std::int64_t used() const { return used_; }

 private:
  Matrix take(DType type, std::int64_t rows, std::int64_t columns);

  std::byte* base_;
  std::int64_t used_ = 0;
  DType storage_;
  DType accumulation_;
  std::int64_t heads_;
  std::int64_t query_;
  std::int64_t kv_;
};

/// A block whose attention is shared: what is handed on by whom, and where its keys and values lie.
class SharedBlock {
 protected:
  /// Tokens of each sequence of a chunk that are handed on.
  struct Piece {
    Slice slice;
    std::int64_t first = 0;
    std::int64_t tokens = 0;
  };
  /// Keys and values that go from their owner to one helper.
  struct Range {
    Rank partner;
    std::int64_t query_tokens = 0;  ///< of each sequence of the owner's slice
    std::vector<Piece> pieces;
  };

  explicit SharedBlock(const Block& block);

  Matrix operator[](BlockTensor tensor) const { return block_[tensor]; }
  std::int64_t own_rows() const { return block_.shape.rows(); }
  std::int64_t query_rows(const Range& range) const { return whole_.sequences * range.query_tokens; }
  std::int64_t key_rows(const Range& range) const { return whole_.sequences * key_tokens(range); }

  /// @throws Error internal if more was taken of the area than was planned
  void check_memory() const;

  void send(Rank to, std::span<const Matrix> tensors);
  void receive(Rank from, std::span<const Matrix> tensors);
  void send_keys(const Range& range);
  /// Into k and v piece after piece.
  void receive_keys(const Range& range, const Matrix& k, const Matrix& v);
  /// Adds gradients of a range's keys and values, which lie piece after piece, to the sums of their chunks.
  void add_to_sums(const Range& range, const Matrix& k_gradient, const Matrix& v_gradient);

  /// The chunks that lie one behind the other in k and v; dk and dv are empty or of their shape.
  std::vector<KeyValueChunk> received_chunks(const Range& range, const Matrix& k, const Matrix& v,
                                             const Matrix& dk = {}, const Matrix& dv = {}) const;
  AttentionShape shape_of_taken(const Range& range) const;
  /// The chunks that the rank keeps: all behind what is handed on.
  std::vector<KeyValueChunk> kept_chunks() const;
  AttentionShape shape_of_kept() const;

  const Block& block_;
  const SharedAttention& shared_;
  const StageShape& whole_;
  AttentionMessages& messages_;
  SharingArea area_;
  std::vector<Range> given_;  // by helper, the oldest keys first
  std::vector<Range> taken_;  // by owner

 private:
  std::vector<Range> ranges_of(const std::vector<SharedRange>& shares) const;
  std::vector<Piece> pieces_of(std::int32_t begin, std::int32_t end) const;
  std::int64_t key_tokens(const Range& range) const;
  const KeyValueChunk& chunk_of(const Piece& piece) const;
  template <class Visit>
  void for_each_run(const Piece& piece, const Visit& visit) const;
  template <class Visit>
  void for_each_received_run(const Range& range, const Visit& visit) const;
  void send_tensor(Rank to, const ConstMatrix& tensor);
  void receive_tensor(Rank from, const Matrix& tensor);
};

/// The messages of one pass, in the order that owners and helpers agree on. `Queries`: what an owner hands on beside
/// keys and values. `Part`: what its helper gives back. Both take their tensors of an area, and list them.
template <class Queries, class Part>
class SharedPass : protected SharedBlock {
 public:
  /// Takes what a block of a stage needs at most of an area that counts.
  static void count(SharingArea& area, const StageShape& shape);

 protected:
  /// What another rank handed on, and what becomes of it.
  struct Handed {
    Handed(SharingArea& area, std::int64_t rows, std::int64_t keys)
        : queries{area, rows}, k{area.keys(keys)}, v{area.keys(keys)}, part{area, rows, keys} {}
    Queries queries;
    Matrix k, v;
    Part part;
  };

  explicit SharedPass(const Block& block) : SharedBlock{block} {}

  void post_receives() {
    for (const Range& range : taken_) {
      const Handed& handed = handed_.emplace_back(area_, query_rows(range), key_rows(range));
      receive(range.partner, handed.queries.tensors());
      receive_keys(range, handed.k, handed.v);
    }
    for (const Range& range : given_) {
      const Part& part = returned_.emplace_back(area_, own_rows(), key_rows(range));
      receive(range.partner, part.tensors());
    }
  }

  void hand_on(const Queries& own) {
    for (const Range& range : given_) {
      send(range.partner, own.tensors());
      send_keys(range);
    }
  }

  /// Calls attend(range, handed), which fills the part, for what each other rank handed on, and sends the part back.
  template <class Attend>
  void help(const Attend& attend) {
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      messages_.wait_for(taken_[i].partner);
      attend(taken_[i], handed_[i]);
      send(taken_[i].partner, handed_[i].part.tensors());
    }
  }

  std::vector<Handed> handed_;  // by taken_
  std::vector<Part> returned_;  // by given_
};

/// The first helper and owner have all keys: wherever they lie, they take no more.
template <class Queries, class Part>
void SharedPass<Queries, Part>::count(SharingArea& area, const StageShape& shape) {
  const std::int64_t longest = shape.tokens_of(Slice{0}).count;
  const std::int64_t rows = shape.sequences * longest;
  const auto keys = [&](std::int32_t halves) { return shape.sequences * halves * divide_up(longest, 2); };
  for (std::int32_t i = 0; i < shape.sharing.owners; ++i) Handed{area, rows, i == 0 ? keys(shape.sharing.taken) : 0};
  for (std::int32_t i = 0; i < shape.sharing.helpers; ++i) Part{area, rows, i == 0 ? keys(shape.sharing.given) : 0};
}

/// Bytes that one block's sharing takes at most in each pass.
std::int64_t bytes_to_share_forward(const StageShape& shape);
std::int64_t bytes_to_share_backward(const StageShape& shape);

}  // namespace penstock
