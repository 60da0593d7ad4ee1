// SPDX-License-Identifier: Apache-2.0
#include "stage/vocabulary.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "stage/block.hpp"
#include "stage/vocabulary_layout.hpp"

namespace penstock {
namespace {

std::span<const std::byte> bytes_of(const ConstMatrix& matrix) {
  return {matrix.data, static_cast<std::size_t>(matrix.size() * size_of(matrix.type))};
}

std::span<std::byte> bytes_of(const Matrix& matrix) {
  return {matrix.data, static_cast<std::size_t>(matrix.bytes())};
}

/// Rows [first, first + count) of a matrix.
Matrix rows_of(const Matrix& matrix, std::int64_t first, std::int64_t count) {
  return {matrix.data + first * matrix.columns * size_of(matrix.type), matrix.type, count, matrix.columns};
}

double number_at(const Matrix& matrix, std::int64_t row, std::int64_t column) {
  const std::int64_t index = row * matrix.columns + column;
  return matrix.type == DType::f64 ? matrix.as<double>()[index] : double{matrix.as<float>()[index]};
}

void set_number(const Matrix& row, std::int64_t column, double value) {
  if (row.type == DType::f64) {
    row.as<double>()[column] = value;
  } else {
    row.as<float>()[column] = static_cast<float>(value);
  }
}

KernelLimits limits_of(const VocabularyShape& shape) {
  const StageShape& run = shape.run;
  return {.tokens = run.sequences * run.cut().longest(),
          .width = run.model.hidden,
          .vocabulary = shape.rows().count,
          .attention = {},
          .storage = run.storage};
}

/// One call of a share on one slice.
class ShareCall {
 public:
  ShareCall(const VocabularyShape& shape, const ShareLayouts& layouts, Kernels& kernels, VocabularyPeers& peers,
            const StageBuffers& buffers)
      : shape_{shape}, layouts_{layouts}, kernels_{kernels}, peers_{peers}, buffers_{buffers} {
    for (const Rank rank : all<Rank>(shape.ranks)) ends_.push_back(shape.rows_of(rank).end());
  }

  void embed(std::int64_t first_position) const;
  double forward() const;
  /// @param out [1, vocabulary] A, on the last rank
  void form_wanted_logits(std::byte* out) const;
  void backward(double loss_scale) const;
  void embed_backward(std::int64_t first_position) const;

 private:
  Matrix work(const TensorSlot& slot) const { return at(slot, buffers_.workspace); }
  ConstMatrix parameter(const TensorSlot& slot) const { return at(slot, buffers_.parameters); }
  Matrix gradient(const TensorSlot& slot) const { return at(slot, buffers_.gradients); }
  Matrix kept(TensorSlot KeptOutput::*slot) const {
    return buffers_.logits != nullptr ? at(layouts_.kept.*slot, buffers_.logits) : work(layouts_.work.kept.*slot);
  }
  std::int64_t rows() const { return layouts_.run.rows(); }
  const FamilyMath& family() const { return math_of(shape_.run.model.family); }

  Rank owner_of(std::int64_t token) const {
    require(token >= 0 && token < ends_.back(), "stage: token {} is outside the vocabulary of {}", token, ends_.back());
    return Rank{static_cast<std::int32_t>(std::upper_bound(ends_.begin(), ends_.end(), token) - ends_.begin())};
  }
  const std::int32_t* numbers(const std::int32_t* data, const char* name) const {
    require(data != nullptr, "stage: no {} were given", name);
    return data;
  }
  /// The rows' numbers as this share counts them: `elsewhere` for those of other shares, others below 0 as they are.
  Matrix as_own(const TensorSlot& slot, const std::int32_t* numbers, std::int32_t elsewhere) const;

  Matrix embed_own(const Matrix& packed) const;
  void place_embeddings(const Matrix& packed, std::int64_t first_position) const;
  void normalize(const Matrix& hidden) const;
  /// The matrix of rank `from`, on all ranks.
  void spread(const Matrix& matrix, Rank from) const;
  void gather_statistics(const Matrix& statistics) const;
  double combine(const Matrix& statistics) const;
  Matrix sum_of_parts(const Matrix& part) const;
  void normalize_backward(const Matrix& hidden_gradient) const;

  const VocabularyShape& shape_;
  const ShareLayouts& layouts_;
  Kernels& kernels_;
  VocabularyPeers& peers_;
  const StageBuffers& buffers_;
  std::vector<std::int64_t> ends_;  // of the shares' rows, by rank
};

Matrix ShareCall::as_own(const TensorSlot& slot, const std::int32_t* numbers, std::int32_t elsewhere) const {
  const Matrix own = work(slot);
  const VocabularyRows here = shape_.rows();
  std::transform(numbers, numbers + rows(), own.as<std::int32_t>(), [&](std::int32_t number) {
    if (number < 0) return -1;
    const bool is_here = owner_of(number) == shape_.rank;
    return is_here ? static_cast<std::int32_t>(number - here.begin) : elsewhere;
  });
  return own;
}

// --- embedding ---

/// Embeds the share's tokens, ascending, into rows of `packed`: on the first rank behind those of the ranks before.
Matrix ShareCall::embed_own(const Matrix& packed) const {
  const std::int32_t* tokens = numbers(buffers_.tokens, "tokens");
  auto* const indices = work(layouts_.work.indices).as<std::int32_t>();
  std::int64_t before = 0;
  std::int64_t count = 0;
  for (std::int64_t t = 0; t < rows(); ++t) {
    const Rank owner = owner_of(tokens[t]);
    if (owner < shape_.rank) ++before;
    if (owner == shape_.rank) indices[count++] = static_cast<std::int32_t>(tokens[t] - shape_.rows().begin);
  }
  const Matrix own = rows_of(packed, shape_.is_first() ? before : 0, count);
  if (count == 0) return own;
  Matrix own_indices = work(layouts_.work.indices);
  own_indices.columns = count;
  kernels_.embedding(own, own_indices, parameter(layouts_.parameters.table), {}, count, 0);
  return own;
}

/// Receives the embeddings of the other shares and puts all in the order of the tokens.
void ShareCall::place_embeddings(const Matrix& packed, std::int64_t first_position) const {
  const std::int32_t* tokens = buffers_.tokens;
  std::vector<std::int64_t> next(static_cast<std::size_t>(shape_.ranks) + 1, 0);
  for (std::int64_t t = 0; t < rows(); ++t) ++next[static_cast<std::size_t>(owner_of(tokens[t]).value()) + 1];
  for (const Rank rank : all<Rank>(shape_.ranks)) {
    const auto index = static_cast<std::size_t>(rank.value());
    const std::int64_t count = next[index + 1];
    if (rank != shape_.rank && count > 0) peers_.receive(bytes_of(rows_of(packed, next[index], count)), rank);
    next[index + 1] += next[index];
  }
  const Matrix places = work(layouts_.work.places);
  for (std::int64_t t = 0; t < rows(); ++t) {
    auto& place = next[static_cast<std::size_t>(owner_of(tokens[t]).value())];
    places.as<std::int32_t>()[t] = static_cast<std::int32_t>(place++);
  }
  kernels_.embedding(at(layouts_.stream, buffers_.output), places, packed, parameter(layouts_.parameters.positions),
                     layouts_.run.tokens, first_position);
}

void ShareCall::embed(std::int64_t first_position) const {
  const Matrix packed = work(layouts_.work.packed);
  const Matrix own = embed_own(packed);
  if (shape_.is_first()) {
    place_embeddings(packed, first_position);
  } else if (own.rows > 0) {
    peers_.send(bytes_of(ConstMatrix{own}), shape_.first);
  }
}

void ShareCall::embed_backward(std::int64_t first_position) const {
  const Matrix own = as_own(layouts_.work.own, numbers(buffers_.tokens, "tokens"), -1);
  ConstMatrix stream = work(layouts_.work.gradient);
  if (shape_.is_first()) {
    stream = at(layouts_.stream, buffers_.output_gradient);
    for (const Rank rank : all<Rank>(shape_.ranks)) {
      if (rank != shape_.rank) peers_.send(bytes_of(stream), rank);
    }
  } else {
    peers_.receive(bytes_of(work(layouts_.work.gradient)), shape_.first);
  }
  kernels_.embedding_gradient(gradient(layouts_.gradients.table), gradient(layouts_.gradients.positions), stream, own,
                              layouts_.run.tokens, first_position);
}

// --- output layer and loss ---

void ShareCall::normalize(const Matrix& hidden) const {
  const Norm norm{.in = at(layouts_.stream, buffers_.input),
                  .out = hidden,
                  .mean = kept(&KeptOutput::mean),
                  .inverse = kept(&KeptOutput::inverse),
                  .weight = parameter(layouts_.parameters.norm_weight),
                  .bias = parameter(layouts_.parameters.norm_bias)};
  family().norm(kernels_, norm, shape_.run.model.norm_epsilon);
}

void ShareCall::spread(const Matrix& matrix, Rank from) const {
  if (shape_.rank != from) return peers_.receive(bytes_of(matrix), from);
  for (const Rank rank : all<Rank>(shape_.ranks)) {
    if (rank != from) peers_.send(bytes_of(ConstMatrix{matrix}), rank);
  }
}

/// Each rank has filled its own two rows, and gets those of all others.
void ShareCall::gather_statistics(const Matrix& statistics) const {
  const auto of = [&](std::int32_t rank) { return rows_of(statistics, std::int64_t{2} * rank, 2); };
  const std::int32_t own = shape_.rank.value();
  for (std::int32_t distance = 1; distance < shape_.ranks; ++distance) {
    const std::int32_t to = (own + distance) % shape_.ranks;
    const std::int32_t from = (own - distance + shape_.ranks) % shape_.ranks;
    peers_.exchange(bytes_of(ConstMatrix{of(own)}), Rank{to}, bytes_of(of(from)), Rank{from});
  }
}

/// The log-sum-exp over the whole vocabulary of each row; returns the sum of the losses.
double ShareCall::combine(const Matrix& statistics) const {
  const Matrix log_sum_exp = kept(&KeptOutput::log_sum_exp);
  double losses = 0;
  for (std::int64_t t = 0; t < rows(); ++t) {
    const auto of_share = [&](Rank rank) { return number_at(statistics, std::int64_t{2} * rank.value(), t); };
    double largest = of_share(Rank{0});
    for (const Rank rank : all<Rank>(shape_.ranks)) largest = std::max(largest, of_share(rank));
    double sum = 0;
    for (const Rank rank : all<Rank>(shape_.ranks)) sum += std::exp(of_share(rank) - largest);
    const double whole = largest + std::log(sum);
    set_number(log_sum_exp, t, whole);
    if (buffers_.targets[t] < 0) continue;
    // The share's loss is its log-sum-exp less the target's logit.
    const Rank owner = owner_of(buffers_.targets[t]);
    losses += whole - of_share(owner) + number_at(statistics, std::int64_t{2} * owner.value() + 1, t);
  }
  return losses;
}

double ShareCall::forward() const {
  const Matrix targets = as_own(layouts_.work.targets, numbers(buffers_.targets, "targets"), target_elsewhere);
  const Matrix hidden = kept(&KeptOutput::hidden);
  if (shape_.is_last()) normalize(hidden);
  spread(hidden, shape_.last);
  const Matrix logits = kept(&KeptOutput::logits);
  kernels_.linear(logits, hidden, parameter(layouts_.parameters.head), {});
  const Matrix statistics = work(layouts_.work.statistics);
  const std::int64_t own = std::int64_t{2} * shape_.rank.value();
  kernels_.cross_entropy(rows_of(statistics, own + 1, 1), rows_of(statistics, own, 1), logits, targets);
  gather_statistics(statistics);
  return combine(statistics);
}

void ShareCall::form_wanted_logits(std::byte* out) const {
  const std::int64_t row = buffers_.wanted_row;
  require(row >= 0 && row < rows(), "stage: no row {} of {} whose logits are wanted", row, rows());
  const Matrix all_hidden = work(layouts_.work.kept.hidden);
  if (shape_.is_last()) normalize(all_hidden);
  const Matrix hidden = rows_of(all_hidden, row, 1);
  spread(hidden, shape_.last);
  const DType type = accumulation_of(shape_.run.storage);
  const auto part_of = [&](Rank rank, std::byte* base, std::int64_t first) {
    return Matrix{base + first * size_of(type), type, 1, shape_.rows_of(rank).count};
  };
  if (!shape_.is_last()) {
    const Matrix part = part_of(shape_.rank, work(layouts_.work.kept.logits).data, 0);
    kernels_.linear(part, hidden, parameter(layouts_.parameters.head), {});
    return peers_.send(bytes_of(ConstMatrix{part}), shape_.last);
  }
  for (const Rank rank : all<Rank>(shape_.ranks)) {
    const Matrix part = part_of(rank, out, shape_.rows_of(rank).begin);
    if (rank == shape_.rank) {
      kernels_.linear(part, hidden, parameter(layouts_.parameters.head), {});
    } else {
      peers_.receive(bytes_of(part), rank);
    }
  }
}

/// On the last rank: the parts of all ranks added in their order.
Matrix ShareCall::sum_of_parts(const Matrix& part) const {
  const Matrix sum = work(layouts_.work.sum);
  const Matrix arriving = work(layouts_.work.arriving);
  if (shape_.ranks == 1) return part;
  for (const Rank rank : all<Rank>(shape_.ranks)) {
    const bool is_own = rank == shape_.rank;
    if (!is_own) peers_.receive(bytes_of(rank == Rank{0} ? sum : arriving), rank);
    if (rank == Rank{0}) {
      if (is_own) std::memcpy(sum.data, part.data, bytes_of(part).size());
    } else {
      kernels_.add(sum, sum, is_own ? part : arriving);
    }
  }
  return sum;
}

void ShareCall::normalize_backward(const Matrix& hidden_gradient) const {
  const Norm norm{.in = at(layouts_.stream, buffers_.input),
                  .mean = kept(&KeptOutput::mean),
                  .inverse = kept(&KeptOutput::inverse),
                  .weight = parameter(layouts_.parameters.norm_weight)};
  family().norm_gradient(kernels_, norm,
                         {.in = at(layouts_.stream, buffers_.input_gradient),
                          .out = hidden_gradient,
                          .weight = gradient(layouts_.gradients.norm_weight),
                          .bias = gradient(layouts_.gradients.norm_bias)});
}

void ShareCall::backward(double loss_scale) const {
  const Matrix targets = as_own(layouts_.work.targets, numbers(buffers_.targets, "targets"), target_elsewhere);
  const Matrix logits_gradient = work(layouts_.work.logits_gradient);
  const Matrix part = work(layouts_.work.part);
  kernels_.cross_entropy_gradient(logits_gradient, kept(&KeptOutput::logits), kept(&KeptOutput::log_sum_exp), targets,
                                  loss_scale);
  kernels_.linear_input_gradient(part, logits_gradient, parameter(layouts_.parameters.head), Kernels::Write::overwrite);
  kernels_.linear_weight_gradient(gradient(layouts_.gradients.head), logits_gradient, kept(&KeptOutput::hidden));
  if (shape_.is_last()) {
    normalize_backward(sum_of_parts(part));
  } else {
    peers_.send(bytes_of(ConstMatrix{part}), shape_.last);
  }
}

}  // namespace

VocabularyMath::VocabularyMath(const VocabularyShape& shape)
    : shape_{shape}, layouts_{std::make_shared<const ShareLayoutsByTokens>(shape)} {}

BufferLayout VocabularyMath::layout(BufferKind kind) const {
  switch (kind) {
    case BufferKind::parameters:
      return layouts_->longest().parameters.buffer;
    case BufferKind::gradients:
      return layouts_->longest().gradients.buffer;
    case BufferKind::tokens: {
      StageShape ends = shape_.run;
      ends.first = true;
      ends.last = true;
      return tokens_layout(ends);
    }
    case BufferKind::logits:
      return layouts_->longest().kept_buffer;
    case BufferKind::workspace:
      return layouts_->longest().work_buffer;
    default:
      return {};
  }
}

StageBytes VocabularyMath::bytes(const Kernels& kernels) const {
  StageBytes bytes;
  for (int kind = 0; kind < buffer_kind_count; ++kind) {
    bytes[static_cast<std::size_t>(kind)] = layout(static_cast<BufferKind>(kind)).bytes;
  }
  const std::int64_t scratch = round_up(kernels.scratch_bytes(limits_of(shape_)).value, buffer_alignment);
  bytes[static_cast<std::size_t>(BufferKind::workspace)] += Bytes{scratch};
  return bytes;
}

std::optional<TensorSlot> VocabularyMath::tied_head_gradient() const {
  if (!shape_.run.model.tie_embeddings) return std::nullopt;
  return layouts_->longest().gradients.head;
}

const ShareLayouts& VocabularyMath::begin_call(Kernels& kernels, const StageBuffers& buffers) const {
  require(buffers.workspace != nullptr, "stage: no workspace was given");
  const auto scratch = static_cast<std::size_t>(kernels.scratch_bytes(limits_of(shape_)).value);
  kernels.bind_scratch({buffers.workspace + layouts_->longest().work_buffer.bytes.value, scratch});
  return layouts_->of(shape_.run.tokens_of(buffers.slice).count);
}

void VocabularyMath::embed(Kernels& kernels, VocabularyPeers& peers, const StageBuffers& buffers) const {
  ShareCall{shape_, begin_call(kernels, buffers), kernels, peers, buffers}.embed(first_position(buffers.slice));
}

double VocabularyMath::forward(Kernels& kernels, VocabularyPeers& peers, const StageBuffers& buffers) const {
  return ShareCall{shape_, begin_call(kernels, buffers), kernels, peers, buffers}.forward();
}

void VocabularyMath::form_wanted_logits(Kernels& kernels, VocabularyPeers& peers, const StageBuffers& buffers) const {
  StageBuffers nothing_kept = buffers;
  nothing_kept.logits = nullptr;
  ShareCall{shape_, begin_call(kernels, buffers), kernels, peers, nothing_kept}.form_wanted_logits(buffers.logits);
}

void VocabularyMath::backward(Kernels& kernels, VocabularyPeers& peers, const StageBuffers& buffers,
                              double loss_scale) const {
  ShareCall{shape_, begin_call(kernels, buffers), kernels, peers, buffers}.backward(loss_scale);
}

void VocabularyMath::embed_backward(Kernels& kernels, VocabularyPeers& peers, const StageBuffers& buffers) const {
  ShareCall{shape_, begin_call(kernels, buffers), kernels, peers, buffers}.embed_backward(
      first_position(buffers.slice));
}

}  // namespace penstock
