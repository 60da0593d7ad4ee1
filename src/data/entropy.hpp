// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "data/tokens.hpp"

namespace penstock {

/// How well a stream can be predicted from counts of itself: yardsticks for a validation loss.
///
/// Over the N-1 pairs (x[t-1], x[t]), t = 1 .. N-1, of a stream of N tokens, the targets of validation; n(b) counts the
/// pairs whose second token is b, m(a) those whose first is a, n(a, b) those that are (a, b), and M = N-1:
///
///   unigram      H(x[t])          = - sum_b    n(b)/M    log( n(b) / M )
///   conditional  H(x[t] | x[t-1]) = - sum_a,b  n(a,b)/M  log( n(a,b) / m(a) )
///
/// in nats. Both are empirical (maximum likelihood, no smoothing), and of the same pairs, so 0 <= conditional <=
/// unigram. No model without context, or with one token of context, that is fixed for the stream has a lower mean loss
/// on it.
struct Entropies {
  double unigram = 0;      ///< nats a token
  double conditional = 0;  ///< nats a token
  std::int64_t pairs = 0;  ///< M
};

/// Counts the whole stream once; tokens must be below `vocabulary`. Dense counts for small vocabularies (8 bytes for
/// each of vocabulary^2 pairs, to 1024 ids), else memory for each pair that occurs.
/// @throws Error bad_input when the stream has fewer than 2 tokens, damaged_input for a token outside the vocabulary.
Entropies entropies_of(const TokenSource& tokens, std::int32_t vocabulary);

/// `unigram entropy 3.121 nats (4.503 bits), conditional on the token before 2.301 nats (3.320 bits)`
std::string to_text(const Entropies& entropies);

}  // namespace penstock
