// SPDX-License-Identifier: Apache-2.0
#include "data/entropy.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"

namespace penstock {
namespace {

using Counts = std::vector<std::int64_t>;

/// Calls `visit(before, token)` for every pair of neighbours, in order.
template <class Visitor>
void for_each_pair(const TokenSource& tokens, std::int32_t vocabulary, Visitor&& visit) {
  Counts::size_type filled = 0;
  std::vector<std::int32_t> block(std::size_t{1} << 16U);
  std::int32_t before = 0;
  for (std::int64_t first = 0; first < tokens.size(); first += static_cast<std::int64_t>(filled)) {
    filled = static_cast<std::size_t>(std::min(static_cast<std::int64_t>(block.size()), tokens.size() - first));
    tokens.read(first, std::span{block}.first(filled), vocabulary);
    if (first > 0) visit(before, block[0]);
    for (std::size_t i = 1; i < filled; ++i) visit(block[i - 1], block[i]);
    before = block[filled - 1];
  }
}

Counts count_pairs_densely(const TokenSource& tokens, std::int32_t vocabulary) {
  const auto width = static_cast<std::size_t>(vocabulary);
  Counts counts(width * width);
  for_each_pair(tokens, vocabulary, [&](std::int32_t before, std::int32_t token) {
    ++counts[static_cast<std::size_t>(before) * width + static_cast<std::size_t>(token)];
  });
  return counts;
}

Counts count_pairs_sparsely(const TokenSource& tokens, std::int32_t vocabulary) {
  std::unordered_map<std::uint64_t, std::int64_t> by_pair;
  for_each_pair(tokens, vocabulary, [&](std::int32_t before, std::int32_t token) {
    ++by_pair[(static_cast<std::uint64_t>(before) << 32U) | static_cast<std::uint64_t>(token)];
  });
  Counts counts;
  counts.reserve(by_pair.size());
  for (const auto& [ignored, count] : by_pair) counts.push_back(count);
  return counts;
}

/// sum of n log n. In ascending order of the counts: the bits do not depend on how they were gathered.
double sum_of_n_log_n(Counts counts) {
  std::sort(counts.begin(), counts.end());
  double sum = 0;
  for (const std::int64_t count : counts)
    if (count > 1) sum += static_cast<double>(count) * std::log(static_cast<double>(count));
  return sum;
}

}  // namespace

Entropies entropies_of(const TokenSource& tokens, std::int32_t vocabulary) {
  if (tokens.size() < 2)
    fail(ExitCode::bad_input, "an entropy needs at least 2 tokens; the data have {}", tokens.size());
  constexpr std::int32_t largest_dense = 1024;
  Counts before(static_cast<std::size_t>(vocabulary));
  Counts after(static_cast<std::size_t>(vocabulary));
  for_each_pair(tokens, vocabulary, [&](std::int32_t a, std::int32_t b) {
    ++before[static_cast<std::size_t>(a)];
    ++after[static_cast<std::size_t>(b)];
  });
  Counts pairs =
      vocabulary <= largest_dense ? count_pairs_densely(tokens, vocabulary) : count_pairs_sparsely(tokens, vocabulary);
  const auto total = static_cast<double>(tokens.size() - 1);
  // - sum n/M log(n/M) = (M log M - sum n log n) / M, and likewise for the pairs with m(a) in the place of M.
  const double unigram = std::max(0.0, (total * std::log(total) - sum_of_n_log_n(std::move(after))) / total);
  const double pair_sum = sum_of_n_log_n(std::move(pairs));
  const double conditional = (sum_of_n_log_n(std::move(before)) - pair_sum) / total;
  return {unigram, std::clamp(conditional, 0.0, unigram), tokens.size() - 1};
}

std::string to_text(const Entropies& entropies) {
  const auto both = [](double nats) {
    return fmt::format("{:.3f} nats ({:.3f} bits)", nats, nats / std::numbers::ln2);
  };
  return fmt::format("unigram entropy {}, conditional on the token before {}", both(entropies.unigram),
                     both(entropies.conditional));
}

}  // namespace penstock
