// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trace/timeline.hpp"

namespace penstock::testing {

inline Span span(std::int32_t rank, Op op, std::int32_t micro_batch, double start, double end) {
  return {.step = 0,
          .rank = rank,
          .lane = Lane::compute,
          .peer = -1,
          .action = {op, Stage{rank}, MicroBatch{micro_batch}, Slice{0}},
          .start = {start},
          .end = {end},
          .bytes = {0}};
}

inline Span message(std::int32_t rank, Op op, std::int32_t peer, std::int32_t micro_batch, double start, double end) {
  Span result = span(rank, op, micro_batch, start, end);
  const bool sends = op == Op::send_forward || op == Op::send_backward;
  result.lane = sends ? Lane::send : Lane::receive;
  result.peer = peer;
  result.bytes = {4096};
  return result;
}

/// GPipe with forwards of 1 and backwards of 2 units: every F(m) at rank + m, every B as early as its successor allows.
/// The makespan is 3 (ranks + micro_batches - 1) units, of which each rank works 3 micro_batches.
inline Timeline gpipe_timeline(std::int32_t ranks, std::int32_t micro_batches, double unit = 1.0) {
  Timeline timeline{"gpipe", ranks, {}, {}};
  const double forwards_end = ranks + micro_batches - 1;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    for (std::int32_t m = 0; m < micro_batches; ++m)
      timeline.spans.push_back(span(rank, Op::forward, m, (rank + m) * unit, (rank + m + 1) * unit));
    for (std::int32_t m = 0; m < micro_batches; ++m) {
      const double start = forwards_end + 2 * (ranks - 1 - rank + m);
      timeline.spans.push_back(span(rank, Op::backward, m, start * unit, (start + 2) * unit));
    }
    timeline.memory.push_back({0, rank, {rank * unit}, {1 << 20}});
  }
  return timeline;
}

}  // namespace penstock::testing
