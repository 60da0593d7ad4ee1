// SPDX-License-Identifier: Apache-2.0
//
// One test alone in its process: the choice of an instruction set is made once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "kernels/kernels.hpp"
#include "kernels/workers.hpp"

namespace penstock {
namespace {

TEST(InstructionSet, CanBeLimitedUntilKernelsAreMade) {
  if (host_instruction_set() < InstructionSet::avx2) GTEST_SKIP() << "this processor, or the environment, has no AVX2";

  limit_host_instruction_set(InstructionSet::amx);  // no limit
  limit_host_instruction_set(InstructionSet::avx2);
  Workers workers{1};
  const auto kernels = make_host_kernels(workers);

  EXPECT_EQ(host_instruction_set(), InstructionSet::avx2);
  EXPECT_THAT(kernels->description(), testing::HasSubstr(", avx2, row-wise avx2, 1 thread"));
  EXPECT_THROW(limit_host_instruction_set(InstructionSet::baseline), Error);
}

}  // namespace
}  // namespace penstock
