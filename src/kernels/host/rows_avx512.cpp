// SPDX-License-Identifier: Apache-2.0
#define PENSTOCK_ISA avx512
#define PENSTOCK_PACK 16
#define PENSTOCK_TABLE avx512_rows
#include "kernels/host/rows.inc"
