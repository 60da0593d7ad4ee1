// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/host_kernels.hpp"

namespace penstock::host {
namespace {

void expect_targets(std::string_view operation, const ConstMatrix& logits, const ConstMatrix& targets) {
  expect(operation, "targets", targets, 1, logits.rows, DType::i32);
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    require(targets.as<std::int32_t>()[t] < logits.columns, "{}: target {} at row {} is outside the vocabulary of {}",
            operation, targets.as<std::int32_t>()[t], t, logits.columns);
  }
}

}  // namespace

void HostKernels::cross_entropy(Matrix losses, Matrix log_sum_exp, ConstMatrix logits, ConstMatrix targets) {
  expect("cross_entropy", "losses", losses, 1, logits.rows, DType::f32);
  expect("cross_entropy", "log_sum_exp", log_sum_exp, 1, logits.rows, DType::f32);
  expect("cross_entropy", "logits", logits, logits.rows, logits.columns, DType::f32);
  expect_targets("cross_entropy", logits, targets);
  for_row_blocks(logits.rows, logits.columns, [&](std::int64_t first, std::int64_t rows) {
    rows_->f32.cross_entropy({rows, logits.columns}, losses.as<float>() + first, log_sum_exp.as<float>() + first,
                             rows_of<float>(logits, first), targets.as<std::int32_t>() + first);
  });
}

void HostKernels::cross_entropy_gradient(Matrix logits_gradient, ConstMatrix logits, ConstMatrix log_sum_exp,
                                         ConstMatrix targets, double scale) {
  const char* const name = "cross_entropy_gradient";
  expect(name, "logits", logits, logits_gradient.rows, logits_gradient.columns, DType::f32);
  expect(name, "log_sum_exp", log_sum_exp, 1, logits.rows, DType::f32);
  expect_targets(name, logits, targets);
  with_storage(*rows_, name, logits_gradient.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_row_blocks(logits.rows, logits.columns, [&](std::int64_t first, std::int64_t rows) {
      functions.cross_entropy_gradient({rows, logits.columns}, rows_of<S>(logits_gradient, first),
                                       rows_of<float>(logits, first), log_sum_exp.as<float>() + first,
                                       targets.as<std::int32_t>() + first, static_cast<float>(scale));
    });
  });
}

}  // namespace penstock::host
