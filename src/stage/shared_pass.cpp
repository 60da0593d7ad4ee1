// SPDX-License-Identifier: Apache-2.0
#include "stage/shared_pass.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "stage/layout.hpp"

namespace penstock {
namespace {

constexpr std::int64_t tensor_alignment = 64;

template <class AnyMatrix>
AnyMatrix rows_from(const AnyMatrix& matrix, std::int64_t first, std::int64_t rows) {
  return {matrix.data + first * matrix.stride * size_of(matrix.type), matrix.type, rows, matrix.columns};
}

}  // namespace

// --- memory ---

Matrix SharingArea::take(DType type, std::int64_t rows, std::int64_t columns) {
  const Matrix tensor{base_ == nullptr ? nullptr : base_ + used_, type, rows, columns};
  used_ += std::max(round_up(tensor.bytes(), tensor_alignment), tensor_alignment);
  return tensor;
}

SharingArea::SharingArea(std::byte* base, const StageShape& shape)
    : base_{base},
      storage_{shape.storage},
      accumulation_{accumulation_of(shape.storage)},
      heads_{shape.model.heads},
      query_{shape.model.query_width()},
      kv_{shape.model.kv_width()} {}

Bytes sharing_bytes(const StageShape& shape) {
  if (!shape.sharing.shares()) return {};
  return {round_up(std::max(bytes_to_share_forward(shape), bytes_to_share_backward(shape)), buffer_alignment)};
}

SharedBlock::SharedBlock(const Block& block)
    : block_{block},
      shared_{*block.shared},
      whole_{shared_.whole},
      messages_{*shared_.partners.messages},
      area_{shared_.memory.data(), whole_},
      given_{ranges_of(shared_.partners.shares.given)},
      taken_{ranges_of(shared_.partners.shares.taken)} {}

void SharedBlock::check_memory() const {
  require(area_.used() <= static_cast<std::int64_t>(shared_.memory.size()),
          "stage: sharing attention takes {} bytes, but {} were planned", area_.used(), shared_.memory.size());
}

// --- what is handed on ---

/// Those with at least one token.
std::vector<SharedBlock::Range> SharedBlock::ranges_of(const std::vector<SharedRange>& shares) const {
  std::vector<Range> ranges;
  for (const SharedRange& share : shares) {
    Range range{share.partner, whole_.tokens_of(share.slice).count, pieces_of(share.begin, share.end)};
    if (!range.pieces.empty()) ranges.push_back(std::move(range));
  }
  return ranges;
}

/// The tokens of a range of half chunks, chunk by chunk. A chunk of one token has an empty second half.
std::vector<SharedBlock::Piece> SharedBlock::pieces_of(std::int32_t begin, std::int32_t end) const {
  std::vector<Piece> pieces;
  for (std::int32_t chunk = begin / 2; 2 * chunk < end; ++chunk) {
    const std::int64_t tokens = whole_.tokens_of(Slice{chunk}).count;
    const std::int64_t from = 2 * chunk < begin ? tokens_of_first_half(tokens) : 0;
    const std::int64_t to = 2 * chunk + 1 < end ? tokens : tokens_of_first_half(tokens);
    if (from < to) pieces.push_back({Slice{chunk}, from, to - from});
  }
  return pieces;
}

std::int64_t SharedBlock::key_tokens(const Range& range) const {
  std::int64_t tokens = 0;
  for (const Piece& piece : range.pieces) tokens += piece.tokens;
  return tokens;
}

const KeyValueChunk& SharedBlock::chunk_of(const Piece& piece) const {
  return block_.earlier[static_cast<std::size_t>(piece.slice.value())];
}

/// Calls visit(first row in the chunk, rows) for what lies side by side: a whole chunk, or of each sequence its tokens.
template <class Visit>
void SharedBlock::for_each_run(const Piece& piece, const Visit& visit) const {
  const std::int64_t of_chunk = whole_.tokens_of(piece.slice).count;
  if (piece.tokens == of_chunk) return visit(std::int64_t{0}, whole_.sequences * of_chunk);
  for (std::int64_t sequence = 0; sequence < whole_.sequences; ++sequence) {
    visit(sequence * of_chunk + piece.first, piece.tokens);
  }
}

/// Calls visit(piece, first row in the chunk, first row where all pieces lie one behind the other, rows).
template <class Visit>
void SharedBlock::for_each_received_run(const Range& range, const Visit& visit) const {
  std::int64_t joint = 0;
  for (const Piece& piece : range.pieces) {
    for_each_run(piece, [&](std::int64_t first, std::int64_t rows) {
      visit(piece, first, joint, rows);
      joint += rows;
    });
  }
}

// --- messages ---

void SharedBlock::send(Rank to, std::span<const Matrix> tensors) {
  for (const Matrix& tensor : tensors) send_tensor(to, tensor);
}

void SharedBlock::receive(Rank from, std::span<const Matrix> tensors) {
  for (const Matrix& tensor : tensors) receive_tensor(from, tensor);
}

void SharedBlock::send_tensor(Rank to, const ConstMatrix& tensor) {
  messages_.send(to, {tensor.data, static_cast<std::size_t>(tensor.size() * size_of(tensor.type))});
}

void SharedBlock::receive_tensor(Rank from, const Matrix& tensor) {
  messages_.receive(from, {tensor.data, static_cast<std::size_t>(tensor.bytes())});
}

void SharedBlock::send_keys(const Range& range) {
  for (const Piece& piece : range.pieces) {
    const KeyValueChunk& chunk = chunk_of(piece);
    for_each_run(piece, [&](std::int64_t first, std::int64_t rows) {
      send_tensor(range.partner, rows_from(chunk.k, first, rows));
      send_tensor(range.partner, rows_from(chunk.v, first, rows));
    });
  }
}

void SharedBlock::receive_keys(const Range& range, const Matrix& k, const Matrix& v) {
  for_each_received_run(range, [&](const Piece&, std::int64_t, std::int64_t to, std::int64_t rows) {
    receive_tensor(range.partner, rows_from(k, to, rows));
    receive_tensor(range.partner, rows_from(v, to, rows));
  });
}

void SharedBlock::add_to_sums(const Range& range, const Matrix& k_gradient, const Matrix& v_gradient) {
  for_each_received_run(range, [&](const Piece& piece, std::int64_t first, std::int64_t from, std::int64_t rows) {
    const auto add_rows = [&](const Matrix& sums, const Matrix& more) {
      const Matrix sum = rows_from(sums, first, rows);
      block_.kernels.add_parts(sum, std::array<ConstMatrix, 2>{sum, rows_from(more, from, rows)});
    };
    add_rows(chunk_of(piece).k_gradient, k_gradient);
    add_rows(chunk_of(piece).v_gradient, v_gradient);
  });
}

// --- what attends to what ---

std::vector<KeyValueChunk> SharedBlock::received_chunks(const Range& range, const Matrix& k, const Matrix& v,
                                                        const Matrix& dk, const Matrix& dv) const {
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

AttentionShape SharedBlock::shape_of_taken(const Range& range) const {
  AttentionShape shape = attention_shape_of(block_);
  shape.query_tokens = range.query_tokens;
  shape.key_tokens = key_tokens(range);
  shape.causal = false;
  return shape;
}

std::vector<KeyValueChunk> SharedBlock::kept_chunks() const {
  std::vector<KeyValueChunk> chunks = chunks_of(block_);
  const auto& given = shared_.partners.shares.given;
  const std::int32_t begin = given.empty() ? 0 : given.back().end;
  chunks.erase(chunks.begin(), chunks.begin() + begin / 2);
  if (begin % 2 == 0) return chunks;
  const std::int64_t tokens = whole_.tokens_of(Slice{begin / 2}).count;
  chunks.front().first_token = tokens_of_first_half(tokens);
  chunks.front().tokens = tokens - tokens_of_first_half(tokens);
  if (chunks.front().tokens == 0) chunks.erase(chunks.begin());
  return chunks;
}

AttentionShape SharedBlock::shape_of_kept() const {
  AttentionShape shape = attention_shape_of(block_);
  for (const Range& range : given_) shape.key_tokens -= key_tokens(range);
  return shape;
}

}  // namespace penstock
