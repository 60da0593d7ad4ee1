// SPDX-License-Identifier: Apache-2.0
#include "stage/shared_attention.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "stage/block.hpp"
#include "stage/layout.hpp"

namespace penstock {
namespace {

using Tensor = BlockTensor;

constexpr std::int64_t tensor_alignment = 64;

/// Hands out tensors of a memory, one behind the other; without memory it only counts.
class Area {
 public:
  explicit Area(std::byte* base) : base_{base} {}
  Matrix take(DType type, std::int64_t rows, std::int64_t columns) {
    const Matrix tensor{base_ == nullptr ? nullptr : base_ + used_, type, rows, columns};
    used_ += std::max(round_up(tensor.bytes(), tensor_alignment), tensor_alignment);
    return tensor;
  }
  std::int64_t used() const { return used_; }

 private:
  std::byte* base_;
  std::int64_t used_ = 0;
};

/// The widths and types of the tensors of a stage's attention.
struct Widths {
  explicit Widths(const StageShape& shape)
      : storage{shape.storage},
        accumulation{accumulation_of(shape.storage)},
        heads{shape.model.heads},
        query{shape.model.query_width()},
        kv{shape.model.kv_width()} {}
  Matrix queries(Area& area, DType type, std::int64_t rows) const { return area.take(type, rows, query); }
  Matrix keys(Area& area, DType type, std::int64_t rows) const { return area.take(type, rows, kv); }
  Matrix statistic(Area& area, std::int64_t rows) const { return area.take(accumulation, heads, rows); }
  DType storage;
  DType accumulation;
  std::int64_t heads;
  std::int64_t query;
  std::int64_t kv;
};

/// What was handed on by another rank, and what becomes of it. Rows are queries, `keys` rows of keys.
struct HandedForward {
  HandedForward(Area& area, const Widths& of, std::int64_t rows, std::int64_t keys)
      : q{of.queries(area, of.storage, rows)},
        k{of.keys(area, of.storage, keys)},
        v{of.keys(area, of.storage, keys)},
        out{of.queries(area, of.accumulation, rows)},
        log_sum_exp{of.statistic(area, rows)} {}
  Matrix q, k, v;
  Matrix out, log_sum_exp;
};

struct HandedBackward {
  HandedBackward(Area& area, const Widths& of, std::int64_t rows, std::int64_t keys)
      : q{of.queries(area, of.storage, rows)},
        out_gradient{of.queries(area, of.storage, rows)},
        log_sum_exp{of.statistic(area, rows)},
        shift{of.statistic(area, rows)},
        k{of.keys(area, of.storage, keys)},
        v{of.keys(area, of.storage, keys)},
        dq{of.queries(area, of.accumulation, rows)},
        dk{of.keys(area, of.accumulation, keys)},
        dv{of.keys(area, of.accumulation, keys)} {}
  Matrix q, out_gradient, log_sum_exp, shift, k, v;
  Matrix dq, dk, dv;
};

/// What comes back from a helper; forward also the rank's own part.
struct ReturnedForward {
  ReturnedForward(Area& area, const Widths& of, std::int64_t rows, std::int64_t /*keys*/)
      : out{of.queries(area, of.accumulation, rows)}, log_sum_exp{of.statistic(area, rows)} {}
  Matrix out, log_sum_exp;
};

struct ReturnedBackward {
  ReturnedBackward(Area& area, const Widths& of, std::int64_t rows, std::int64_t keys)
      : dq{of.queries(area, of.accumulation, rows)},
        dk{of.keys(area, of.accumulation, keys)},
        dv{of.keys(area, of.accumulation, keys)} {}
  Matrix dq, dk, dv;
};

/// The rank's own part of a gradient: dk and dv of its newest chunk, where no later slice has left it sums.
struct OwnBackward {
  OwnBackward(Area& area, const Widths& of, std::int64_t rows)
      : parts{area, of, rows, rows}, shift{of.statistic(area, rows)} {}
  ReturnedBackward parts;
  Matrix shift;
};

/// Tokens of each sequence of a chunk that are handed on.
struct Piece {
  Slice slice;
  std::int64_t first = 0;
  std::int64_t tokens = 0;
};

std::int64_t first_half(std::int64_t tokens) {
  return divide_up(tokens, 2);
}

/// The tokens of a range of half chunks, chunk by chunk. A chunk of one token has an empty second half.
std::vector<Piece> pieces_of(const StageShape& whole, std::int32_t begin, std::int32_t end) {
  std::vector<Piece> pieces;
  for (std::int32_t chunk = begin / 2; 2 * chunk < end; ++chunk) {
    const std::int64_t tokens = whole.tokens_of(Slice{chunk}).count;
    const std::int64_t from = 2 * chunk < begin ? first_half(tokens) : 0;
    const std::int64_t to = 2 * chunk + 1 < end ? tokens : first_half(tokens);
    if (from < to) pieces.push_back({Slice{chunk}, from, to - from});
  }
  return pieces;
}

std::int64_t rows_of(const StageShape& whole, const std::vector<Piece>& pieces) {
  std::int64_t tokens = 0;
  for (const Piece& piece : pieces) tokens += piece.tokens;
  return whole.sequences * tokens;
}

/// Calls visit(first row in the chunk, rows) for what lies side by side: a whole chunk, or of each sequence its tokens.
template <class Visit>
void for_each_run(const StageShape& whole, const Piece& piece, const Visit& visit) {
  const std::int64_t of_chunk = whole.tokens_of(piece.slice).count;
  if (piece.tokens == of_chunk) return visit(std::int64_t{0}, whole.sequences * of_chunk);
  for (std::int64_t sequence = 0; sequence < whole.sequences; ++sequence) {
    visit(sequence * of_chunk + piece.first, piece.tokens);
  }
}

template <class AnyMatrix>
AnyMatrix rows_from(const AnyMatrix& matrix, std::int64_t first, std::int64_t rows) {
  return {matrix.data + first * matrix.stride * size_of(matrix.type), matrix.type, rows, matrix.columns};
}

std::span<const std::byte> bytes_of(const ConstMatrix& matrix) {
  return {matrix.data, static_cast<std::size_t>(matrix.size() * size_of(matrix.type))};
}
std::span<std::byte> bytes_of(const Matrix& matrix) {
  return {matrix.data, static_cast<std::size_t>(matrix.bytes())};
}

/// A range with its pieces.
struct Range {
  Rank partner;
  std::int64_t tokens = 0;  ///< of each sequence of the owner's slice
  std::vector<Piece> pieces;
};

/// What both passes do alike.
class Sharing {
 protected:
  explicit Sharing(const Block& block)
      : block_{block},
        shared_{*block.shared},
        whole_{shared_.whole},
        messages_{*shared_.partners.messages},
        widths_{whole_},
        area_{shared_.memory.data()},
        given_{ranges_of(shared_.partners.shares.given)},
        taken_{ranges_of(shared_.partners.shares.taken)} {}

  void check_memory() const {
    require(area_.used() <= static_cast<std::int64_t>(shared_.memory.size()),
            "stage: sharing attention takes {} bytes, but {} were planned", area_.used(), shared_.memory.size());
  }

  std::int64_t own_rows() const { return block_.shape.rows(); }

  void send_keys(const Range& range) {
    for (const Piece& piece : range.pieces) {
      const KeyValueChunk& chunk = block_.earlier[static_cast<std::size_t>(piece.slice.value())];
      for_each_run(whole_, piece, [&](std::int64_t first, std::int64_t rows) {
        messages_.send(range.partner, bytes_of(rows_from(chunk.k, first, rows)));
        messages_.send(range.partner, bytes_of(rows_from(chunk.v, first, rows)));
      });
    }
  }

  /// Into k and v piece after piece.
  void receive_keys(const Range& range, const Matrix& k, const Matrix& v) {
    for_each_received_run(range, [&](const Piece&, std::int64_t, std::int64_t to, std::int64_t rows) {
      messages_.receive(range.partner, bytes_of(rows_from(k, to, rows)));
      messages_.receive(range.partner, bytes_of(rows_from(v, to, rows)));
    });
  }

  /// Calls visit(piece, first row in the chunk, first row where all pieces lie one behind the other, rows).
  template <class Visit>
  void for_each_received_run(const Range& range, const Visit& visit) const {
    std::int64_t joint = 0;
    for (const Piece& piece : range.pieces) {
      for_each_run(whole_, piece, [&](std::int64_t first, std::int64_t rows) {
        visit(piece, first, joint, rows);
        joint += rows;
      });
    }
  }

  /// The chunks that lie one behind the other in k and v; dk and dv are empty or of their shape.
  std::vector<KeyValueChunk> received_chunks(const Range& range, const Matrix& k, const Matrix& v,
                                             const Matrix& dk = {}, const Matrix& dv = {}) const {
    std::vector<KeyValueChunk> chunks;
    std::int64_t first = 0;
    for (const Piece& piece : range.pieces) {
      const std::int64_t rows = whole_.sequences * piece.tokens;
      chunks.push_back({rows_from(k, first, rows), rows_from(v, first, rows)});
      if (dk) chunks.back().k_gradient = rows_from(dk, first, rows);
      if (dv) chunks.back().v_gradient = rows_from(dv, first, rows);
      first += rows;
    }
    return chunks;
  }

  AttentionShape shape_of_taken(const Range& range) const {
    AttentionShape shape = attention_shape_of(block_);
    shape.query_tokens = range.tokens;
    shape.key_tokens = rows_of(whole_, range.pieces) / whole_.sequences;
    shape.causal = false;
    return shape;
  }

  /// The chunks that the rank keeps: all behind what is handed on.
  std::vector<KeyValueChunk> kept_chunks() const {
    std::vector<KeyValueChunk> chunks = chunks_of(block_);
    const auto& given = shared_.partners.shares.given;
    const std::int32_t begin = given.empty() ? 0 : given.back().end;
    chunks.erase(chunks.begin(), chunks.begin() + begin / 2);
    if (begin % 2 == 0) return chunks;
    const std::int64_t tokens = whole_.tokens_of(Slice{begin / 2}).count;
    chunks.front().first_token = first_half(tokens);
    chunks.front().tokens = tokens - first_half(tokens);
    if (chunks.front().tokens == 0) chunks.erase(chunks.begin());
    return chunks;
  }

  AttentionShape shape_of_kept() const {
    AttentionShape shape = attention_shape_of(block_);
    for (const Range& range : given_) shape.key_tokens -= rows_of(whole_, range.pieces) / whole_.sequences;
    return shape;
  }

  Matrix operator[](Tensor tensor) const { return block_[tensor]; }

  const Block& block_;
  const SharedAttention& shared_;
  const StageShape& whole_;
  AttentionMessages& messages_;
  Widths widths_;
  Area area_;
  std::vector<Range> given_;
  std::vector<Range> taken_;

 private:
  /// Those with at least one token.
  std::vector<Range> ranges_of(const std::vector<SharedRange>& shares) const {
    std::vector<Range> ranges;
    for (const SharedRange& share : shares) {
      Range range{share.partner, whole_.tokens_of(share.slice).count, pieces_of(whole_, share.begin, share.end)};
      if (!range.pieces.empty()) ranges.push_back(std::move(range));
    }
    return ranges;
  }
};

class ForwardSharing : Sharing {
 public:
  explicit ForwardSharing(const Block& block) : Sharing{block} {}

  void run() {
    post();
    attend();
    help();
    merge();
    messages_.wait_for_sends();
  }

 private:
  void post() {
    for (const Range& range : taken_) {
      const std::int64_t rows = whole_.sequences * range.tokens;
      const auto& handed = handed_.emplace_back(area_, widths_, rows, rows_of(whole_, range.pieces));
      messages_.receive(range.partner, bytes_of(handed.q));
      receive_keys(range, handed.k, handed.v);
    }
    for (const Range& range : given_) {
      const auto& returned = returned_.emplace_back(area_, widths_, own_rows(), 0);
      messages_.receive(range.partner, bytes_of(returned.out));
      messages_.receive(range.partner, bytes_of(returned.log_sum_exp));
    }
    for (const Range& range : given_) {
      messages_.send(range.partner, bytes_of(ConstMatrix{(*this)[Tensor::query]}));
      send_keys(range);
    }
  }

  void attend() {
    if (!given_.empty()) returned_.emplace_back(area_, widths_, own_rows(), 0);
    check_memory();
    const bool alone = given_.empty();
    const auto chunks = kept_chunks();
    block_.kernels.attention(shape_of_kept(), alone ? (*this)[Tensor::attention] : returned_.back().out,
                             alone ? (*this)[Tensor::log_sum_exp] : returned_.back().log_sum_exp,
                             (*this)[Tensor::query], chunks);
  }

  void help() {
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      const Range& range = taken_[i];
      const HandedForward& handed = handed_[i];
      messages_.wait_for(range.partner);
      block_.kernels.attention(shape_of_taken(range), handed.out, handed.log_sum_exp, handed.q,
                               received_chunks(range, handed.k, handed.v));
      messages_.send(range.partner, bytes_of(ConstMatrix{handed.out}));
      messages_.send(range.partner, bytes_of(ConstMatrix{handed.log_sum_exp}));
    }
  }

  /// The parts of the helpers have the oldest keys, in their order; the rank's own is the last.
  void merge() {
    if (given_.empty()) return;
    for (const Range& range : given_) messages_.wait_for(range.partner);
    std::vector<AttentionPart> parts;
    for (const ReturnedForward& part : returned_) parts.push_back({part.out, part.log_sum_exp});
    block_.kernels.merge_attention((*this)[Tensor::attention], (*this)[Tensor::log_sum_exp], parts);
  }

  std::vector<HandedForward> handed_;
  std::vector<ReturnedForward> returned_;
};

class BackwardSharing : Sharing {
 public:
  explicit BackwardSharing(const Block& block) : Sharing{block} {}

  void run() {
    post();
    attend();
    help();
    add_returned();
    messages_.wait_for_sends();
  }

 private:
  void post() {
    for (const Range& range : taken_) {
      const std::int64_t rows = whole_.sequences * range.tokens;
      const auto& handed = handed_.emplace_back(area_, widths_, rows, rows_of(whole_, range.pieces));
      for (const Matrix& tensor : {handed.q, handed.out_gradient, handed.log_sum_exp, handed.shift}) {
        messages_.receive(range.partner, bytes_of(tensor));
      }
      receive_keys(range, handed.k, handed.v);
    }
    for (const Range& range : given_) {
      const auto& returned = returned_.emplace_back(area_, widths_, own_rows(), rows_of(whole_, range.pieces));
      for (const Matrix& tensor : {returned.dq, returned.dk, returned.dv}) {
        messages_.receive(range.partner, bytes_of(tensor));
      }
    }
    if (given_.empty()) return;
    own_.emplace_back(area_, widths_, own_rows());
    block_.kernels.attention_shift(own_.front().shift, (*this)[Tensor::attention_gradient], (*this)[Tensor::attention]);
    for (const Range& range : given_) {
      for (const Matrix& tensor : {(*this)[Tensor::query], (*this)[Tensor::attention_gradient],
                                   (*this)[Tensor::log_sum_exp], own_.front().shift}) {
        messages_.send(range.partner, bytes_of(ConstMatrix{tensor}));
      }
      send_keys(range);
    }
  }

  void attend() {
    check_memory();
    if (given_.empty()) {
      block_.kernels.attention_gradient(shape_of_kept(), (*this)[Tensor::query_gradient], (*this)[Tensor::key_gradient],
                                        (*this)[Tensor::value_gradient], (*this)[Tensor::attention_gradient],
                                        (*this)[Tensor::attention], (*this)[Tensor::log_sum_exp],
                                        (*this)[Tensor::query], kept_chunks());
      return;
    }
    auto chunks = kept_chunks();
    KeyValueChunk& newest = chunks.back();
    if (!newest.k_gradient) {
      newest.k_gradient = own_.front().parts.dk;
      newest.v_gradient = own_.front().parts.dv;
      block_.kernels.zero(newest.k_gradient);
      block_.kernels.zero(newest.v_gradient);
    }
    block_.kernels.attention_part_gradient(shape_of_kept(), own_.front().parts.dq, (*this)[Tensor::attention_gradient],
                                           (*this)[Tensor::log_sum_exp], own_.front().shift, (*this)[Tensor::query],
                                           chunks);
    add((*this)[Tensor::key_gradient], {newest.k_gradient});
    add((*this)[Tensor::value_gradient], {newest.v_gradient});
  }

  void help() {
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      const Range& range = taken_[i];
      const HandedBackward& handed = handed_[i];
      messages_.wait_for(range.partner);
      block_.kernels.zero(handed.dk);
      block_.kernels.zero(handed.dv);
      block_.kernels.attention_part_gradient(shape_of_taken(range), handed.dq, handed.out_gradient, handed.log_sum_exp,
                                             handed.shift, handed.q,
                                             received_chunks(range, handed.k, handed.v, handed.dk, handed.dv));
      for (const Matrix& tensor : {handed.dq, handed.dk, handed.dv}) {
        messages_.send(range.partner, bytes_of(ConstMatrix{tensor}));
      }
    }
  }

  void add_returned() {
    if (given_.empty()) return;
    std::vector<ConstMatrix> query_gradients;
    for (std::size_t i = 0; i < given_.size(); ++i) {
      messages_.wait_for(given_[i].partner);
      add_to_sums(given_[i], returned_[i]);
      query_gradients.push_back(returned_[i].dq);
    }
    query_gradients.push_back(own_.front().parts.dq);
    add((*this)[Tensor::query_gradient], query_gradients);
  }

  void add_to_sums(const Range& range, const ReturnedBackward& returned) {
    for_each_received_run(range, [&](const Piece& piece, std::int64_t first, std::int64_t from, std::int64_t rows) {
      const KeyValueChunk& chunk = block_.earlier[static_cast<std::size_t>(piece.slice.value())];
      const auto add_rows = [&](const Matrix& sums, const Matrix& more) {
        const Matrix sum = rows_from(sums, first, rows);
        add(sum, {sum, rows_from(more, from, rows)});
      };
      add_rows(chunk.k_gradient, returned.dk);
      add_rows(chunk.v_gradient, returned.dv);
    });
  }

  void add(const Matrix& out, const std::vector<ConstMatrix>& parts) { block_.kernels.add_parts(out, parts); }

  std::vector<HandedBackward> handed_;
  std::vector<ReturnedBackward> returned_;
  std::vector<OwnBackward> own_;  // one, if anything is handed on
};

/// The first helper and owner have all keys: wherever they lie, they take no more.
template <class Handed, class Returned>
void count(Area& area, const StageShape& shape) {
  const Widths widths{shape};
  const std::int64_t longest = shape.tokens_of(Slice{0}).count;
  const std::int64_t rows = shape.sequences * longest;
  const auto keys = [&](std::int32_t halves) { return shape.sequences * halves * first_half(longest); };
  for (std::int32_t i = 0; i < shape.sharing.owners; ++i) {
    Handed{area, widths, rows, i == 0 ? keys(shape.sharing.taken) : 0};
  }
  for (std::int32_t i = 0; i < shape.sharing.helpers; ++i) {
    Returned{area, widths, rows, i == 0 ? keys(shape.sharing.given) : 0};
  }
}

}  // namespace

Bytes sharing_bytes(const StageShape& shape) {
  if (!shape.sharing.shares()) return {};
  const Widths widths{shape};
  const std::int64_t rows = shape.sequences * shape.tokens_of(Slice{0}).count;
  Area forward{nullptr};
  count<HandedForward, ReturnedForward>(forward, shape);
  ReturnedForward{forward, widths, rows, 0};
  Area backward{nullptr};
  count<HandedBackward, ReturnedBackward>(backward, shape);
  OwnBackward{backward, widths, rows};
  return {round_up(std::max(forward.used(), backward.used()), buffer_alignment)};
}

void share_attention_forward(const Block& block) {
  ForwardSharing{block}.run();
}

void share_attention_backward(const Block& block) {
  BackwardSharing{block}.run();
}

}  // namespace penstock
