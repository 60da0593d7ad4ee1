// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "stage/shared_pass.hpp"

namespace penstock {
namespace {

using Tensor = BlockTensor;

struct ForwardQueries {
  ForwardQueries(SharingArea& area, std::int64_t rows) : q{area.queries(rows)} {}
  explicit ForwardQueries(const Matrix& own) : q{own} {}
  std::array<Matrix, 1> tensors() const { return {q}; }
  Matrix q;
};

struct ForwardPart {
  ForwardPart(SharingArea& area, std::int64_t rows, std::int64_t /*keys*/)
      : out{area.query_sums(rows)}, log_sum_exp{area.statistic(rows)} {}
  std::array<Matrix, 2> tensors() const { return {out, log_sum_exp}; }
  Matrix out, log_sum_exp;
};

class ForwardSharing : SharedPass<ForwardQueries, ForwardPart> {
 public:
  using SharedPass::count;
  explicit ForwardSharing(const Block& block) : SharedPass{block} {}

  void run() {
    post_receives();
    hand_on(ForwardQueries{(*this)[Tensor::query]});
    attend();
    help([this](const Range& range, const Handed& handed) {
      block_.kernels.attention(shape_of_taken(range), handed.part.out, handed.part.log_sum_exp, handed.queries.q,
                               received_chunks(range, handed.k, handed.v));
    });
    merge();
    messages_.wait_for_sends();
  }

 private:
  void attend() {
    const bool alone = given_.empty();
    if (!alone) returned_.emplace_back(area_, own_rows(), 0);
    check_memory();
    block_.kernels.attention(shape_of_kept(), alone ? (*this)[Tensor::attention] : returned_.back().out,
                             alone ? (*this)[Tensor::log_sum_exp] : returned_.back().log_sum_exp,
                             (*this)[Tensor::query], kept_chunks());
  }

  /// The parts of the helpers have the oldest keys, in their order; the rank's own is the last.
  void merge() {
    if (given_.empty()) return;
    for (const Range& range : given_) messages_.wait_for(range.partner);
    std::vector<AttentionPart> parts;
    for (const ForwardPart& part : returned_) parts.push_back({part.out, part.log_sum_exp});
    block_.kernels.merge_attention((*this)[Tensor::attention], (*this)[Tensor::log_sum_exp], parts);
  }
};

}  // namespace

std::int64_t bytes_to_share_forward(const StageShape& shape) {
  SharingArea area{nullptr, shape};
  ForwardSharing::count(area, shape);
  ForwardPart{area, shape.sequences * shape.tokens_of(Slice{0}).count, 0};  // the rank's own
  return area.used();
}

void share_attention_forward(const Block& block) {
  ForwardSharing{block}.run();
}

}  // namespace penstock
