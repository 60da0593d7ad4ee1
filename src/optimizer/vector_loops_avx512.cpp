// SPDX-License-Identifier: Apache-2.0
#define PENSTOCK_LOOPS avx512
#define PENSTOCK_LOOPS_NAME "avx512"
#include "optimizer/vector_loops.inc"
