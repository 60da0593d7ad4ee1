// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/workers.hpp"
#include "optimizer/host_stage.hpp"
#include "optimizer/options.hpp"
#include "optimizer/vector_loops.hpp"

namespace penstock {

/// Elements that one worker takes at a time; no result depends on it.
inline constexpr std::int64_t default_tile = norm_block_elements;

/// Calls body(piece, first, count) for tiles [first, first + count) of all pieces, on the workers.
template <class Body>
void for_each_tile(const std::vector<StatePiece>& pieces, std::int64_t tile, Workers& workers, const Body& body) {
  struct Tile {
    const StatePiece* piece;
    std::int64_t first;
  };
  std::vector<Tile> tiles;
  for (const auto& state : pieces) {
    for (std::int64_t first = 0; first < state.piece.count; first += tile) tiles.push_back({&state, first});
  }
  workers.for_each(static_cast<std::int64_t>(tiles.size()), [&](std::int64_t i) {
    const auto& [state, first] = tiles[static_cast<std::size_t>(i)];
    body(*state, first, std::min(tile, state->piece.count - first));
  });
}

/// The factors of the `adam_step`-th update (from 1): decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight
/// Decay Regularization", ICLR 2019), moments corrected for their zero start.
///
///   g' = clip_factor g            m = b1 m + (1 - b1) g'        v = b2 v + (1 - b2) g'^2
///   p  = p - (rate / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + epsilon) + rate decay p)
///
/// Computed in double, rounded once to the fp32 of the loop. The decay is that of parameters which decay.
AdamWFactors adamw_factors(const OptimizerOptions& options, double learning_rate, std::int64_t adam_step,
                           float clip_factor);

/// The STEP of a stage: updates masters and moments of the owned pieces from the reduced gradients and writes their
/// working copy, in one pass over memory. With several replicas gather_working_copy (optimizer/reduce) follows.
///
/// A stage that keeps the previous states gets the new ones into its second buffer, which then counts: the old ones are
/// neither copied nor lost.
///
/// The bits depend on neither `tile`, threads, sharding, instruction set nor previous states.
void step(HostStage& stage, const AdamWFactors& factors, Workers& workers, std::int64_t tile = default_tile);

/// Takes the last `step` back: masters and moments of the owned pieces are those before it. The working copy stays as
/// the step left it: refresh_working_copy, or another step, follows. @pre `factors` are the step's, and the gradients
/// are still those that it read.
///
/// To the bit where the stage keeps the previous states. Else by inverse arithmetic (SPipe's rollback; the inverse of
/// the formulas above), which divides by b1, b2 and 1 - rate decay. With u = 2^-24, |.| of the values before the step,
/// m', v' and p' those behind it, and c = rate / (1 - b1^t) m' / root what the moments took off a master:
///
///   |error of m| <= u (3 |m| + |m'| / b1)          |error of v| <= u (3 v + v' / b2)
///   |error of p| <= u (4 |p| + 2 |c|) / (1 - rate decay)
///
/// each up to terms in u^2. Ill-conditioned is what a large gradient dwarfed: where v' is far above v, v comes back
/// with a relative error of u v' / (b2 v), and is set to 0 where it would be negative. Infinite moments do not come
/// back.
void take_back(HostStage& stage, const AdamWFactors& factors, Workers& workers, std::int64_t tile = default_tile);

}  // namespace penstock
