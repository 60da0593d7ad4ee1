// SPDX-License-Identifier: Apache-2.0
//
// The bodies in this folder are written once for every backend. They see numbers through a type `V`, a pack of floats
// on the host and one float on a GPU, and a row through a `Team`, one host thread or the threads of a GPU block:
//
//   team.each(columns, [&](auto at) { at.store(out, at.load(in) + at.load(bias)); });    every column once
//   team.sum(columns, [&](auto at) { return at.load(in); })                              float, in a fixed order
//   team.maximum(columns, [&](auto at) { return at.load(in); })                          float
//
// load widens to float; store rounds once. Functions that depend on the backend (`exponential`, `fused`, `smaller`,
// `larger`) are found beside V.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define PENSTOCK_BODY __host__ __device__ inline
#else
#define PENSTOCK_BODY inline
#endif
