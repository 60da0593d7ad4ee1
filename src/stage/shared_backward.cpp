// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>

#include "stage/shared_pass.hpp"

namespace penstock {
namespace {

using Tensor = BlockTensor;

struct BackwardQueries {
  BackwardQueries(SharingArea& area, std::int64_t rows)
      : q{area.queries(rows)},
        out_gradient{area.queries(rows)},
        log_sum_exp{area.statistic(rows)},
        shift{area.statistic(rows)} {}
  BackwardQueries(const Block& own, const Matrix& own_shift)
      : q{own[Tensor::query]},
        out_gradient{own[Tensor::attention_gradient]},
        log_sum_exp{own[Tensor::log_sum_exp]},
        shift{own_shift} {}
  std::array<Matrix, 4> tensors() const { return {q, out_gradient, log_sum_exp, shift}; }
  Matrix q, out_gradient, log_sum_exp, shift;
};

struct BackwardPart {
  BackwardPart(SharingArea& area, std::int64_t rows, std::int64_t keys)
      : dq{area.query_sums(rows)}, dk{area.key_sums(keys)}, dv{area.key_sums(keys)} {}
  std::array<Matrix, 3> tensors() const { return {dq, dk, dv}; }
  Matrix dq, dk, dv;
};

/// The rank's own part where it hands something on: dk and dv of its newest chunk, unless a later slice has left it
/// sums.
struct OwnPart {
  OwnPart(SharingArea& area, std::int64_t rows) : part{area, rows, rows}, shift{area.statistic(rows)} {}
  BackwardPart part;
  Matrix shift;
};

class BackwardSharing : SharedPass<BackwardQueries, BackwardPart> {
 public:
  using SharedPass::count;
  explicit BackwardSharing(const Block& block) : SharedPass{block} {}

  void run() {
    post_receives();
    if (!given_.empty()) hand_own_on();
    check_memory();
    own_ ? attend_in_part() : attend_alone();
    help([this](const Range& range, const Handed& handed) { attend_for(range, handed); });
    if (own_) add_returned();
    messages_.wait_for_sends();
  }

 private:
  void hand_own_on() {
    own_.emplace(area_, own_rows());
    block_.kernels.attention_shift(own_->shift, (*this)[Tensor::attention_gradient], (*this)[Tensor::attention]);
    hand_on(BackwardQueries{block_, own_->shift});
  }

  void attend_alone() {
    block_.kernels.attention_gradient(shape_of_kept(), (*this)[Tensor::query_gradient], (*this)[Tensor::key_gradient],
                                      (*this)[Tensor::value_gradient], (*this)[Tensor::attention_gradient],
                                      (*this)[Tensor::attention], (*this)[Tensor::log_sum_exp], (*this)[Tensor::query],
                                      kept_chunks());
  }

  void attend_in_part() {
    auto chunks = kept_chunks();
    KeyValueChunk& newest = chunks.back();
    if (!newest.k_gradient) {
      newest.k_gradient = own_->part.dk;
      newest.v_gradient = own_->part.dv;
      block_.kernels.zero(newest.k_gradient);
      block_.kernels.zero(newest.v_gradient);
    }
    add_gradients(shape_of_kept(), own_->part, BackwardQueries{block_, own_->shift}, chunks);
    block_.kernels.add_parts((*this)[Tensor::key_gradient], std::array<ConstMatrix, 1>{newest.k_gradient});
    block_.kernels.add_parts((*this)[Tensor::value_gradient], std::array<ConstMatrix, 1>{newest.v_gradient});
  }

  void attend_for(const Range& range, const Handed& handed) {
    block_.kernels.zero(handed.part.dk);
    block_.kernels.zero(handed.part.dv);
    add_gradients(shape_of_taken(range), handed.part, handed.queries,
                  received_chunks(range, handed.k, handed.v, handed.part.dk, handed.part.dv));
  }

  void add_gradients(const AttentionShape& shape, const BackwardPart& part, const BackwardQueries& queries,
                     const std::vector<KeyValueChunk>& chunks) {
    block_.kernels.attention_part_gradient(shape, part.dq, queries.out_gradient, queries.log_sum_exp, queries.shift,
                                           queries.q, chunks);
  }

  /// Those of the helpers in their order, the rank's own last.
  void add_returned() {
    std::vector<ConstMatrix> query_gradients;
    for (std::size_t i = 0; i < given_.size(); ++i) {
      messages_.wait_for(given_[i].partner);
      add_to_sums(given_[i], returned_[i].dk, returned_[i].dv);
      query_gradients.push_back(returned_[i].dq);
    }
    query_gradients.push_back(own_->part.dq);
    block_.kernels.add_parts((*this)[Tensor::query_gradient], query_gradients);
  }

  std::optional<OwnPart> own_;  // if anything is handed on
};

}  // namespace

std::int64_t bytes_to_share_backward(const StageShape& shape) {
  SharingArea area{nullptr, shape};
  BackwardSharing::count(area, shape);
  OwnPart{area, shape.sequences * shape.tokens_of(Slice{0}).count};
  return area.used();
}

void share_attention_backward(const Block& block) {
  BackwardSharing{block}.run();
}

}  // namespace penstock
