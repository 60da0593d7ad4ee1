// SPDX-License-Identifier: Apache-2.0
#include "optimizer/norm.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "optimizer/step.hpp"
#include "optimizer/vector_loops.hpp"

namespace penstock {
namespace {

constexpr int norm_tag = 3;

/// The reports of all ranks, and how many block sums each has.
struct Meeting {
  std::vector<std::string> reports;
  std::vector<std::int64_t> counts;
};

Meeting meet(std::int64_t count, const std::string& report, const Communicator& group) {
  Meeting meeting;
  std::string packed(sizeof count, '\0');
  std::memcpy(packed.data(), &count, sizeof count);
  for (const std::string& text : group.all_gather(packed + report)) {
    std::memcpy(&count, text.data(), sizeof count);
    meeting.counts.push_back(count);
    meeting.reports.push_back(text.substr(sizeof count));
  }
  return meeting;
}

/// Block sums, and the rank that each comes from.
struct Gathered {
  std::vector<BlockSum> sums;
  std::vector<std::int32_t> ranks;
};

/// The block sums of all ranks, on rank 0; elsewhere empty.
Gathered gather(const std::vector<BlockSum>& sums, const std::vector<std::int64_t>& counts, const Communicator& group) {
  if (group.rank() != 0) {
    if (!sums.empty()) group.send(std::as_bytes(std::span{sums}), 0, norm_tag);
    return {};
  }
  Gathered all{sums, std::vector<std::int32_t>(sums.size(), 0)};
  for (int from = 1; from < group.size(); ++from) {
    const auto count = static_cast<std::size_t>(counts[static_cast<std::size_t>(from)]);
    if (count == 0) continue;
    all.sums.resize(all.sums.size() + count);
    all.ranks.resize(all.sums.size(), from);
    group.receive(std::as_writable_bytes(std::span{all.sums}.last(count)), from, norm_tag);
  }
  return all;
}

/// What ranks are told: the norm, and the first parameter with a fault.
struct Verdict {
  double norm = 0;
  std::int32_t parameter = -1;
  std::int32_t rank = -1;
  GradientFault fault = GradientFault::none;
};

/// Positions of `sums` in canonical order; of a block that a border between shares cuts, by rank.
std::vector<std::size_t> canonical_order(const std::vector<BlockSum>& sums) {
  std::vector<std::size_t> order(sums.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&sums](std::size_t a, std::size_t b) {
    return std::tie(sums[a].parameter, sums[a].block) < std::tie(sums[b].parameter, sums[b].block);
  });
  return order;
}

Verdict judge(const Gathered& gathered) {
  Verdict verdict;
  double total = 0;
  for (const std::size_t i : canonical_order(gathered.sums)) {
    const BlockSum& entry = gathered.sums[i];
    total += entry.sum;
    if (std::isfinite(entry.sum)) continue;
    if (verdict.parameter < 0) verdict = {0, entry.parameter, gathered.ranks[i], GradientFault::infinite};
    if (entry.parameter == verdict.parameter && std::isnan(entry.sum)) verdict.fault = GradientFault::not_a_number;
  }
  verdict.norm = std::sqrt(total);
  return verdict;
}

NormResult result_of(const Verdict& verdict, const std::vector<Parameter>& model) {
  NormResult result;
  result.norm = verdict.norm;
  result.finite = verdict.fault == GradientFault::none;
  result.fault = verdict.fault;
  result.first_bad_rank = verdict.rank;
  if (!result.finite) result.first_bad_tensor = model.at(static_cast<std::size_t>(verdict.parameter)).name;
  return result;
}

}  // namespace

std::vector<BlockSum> block_sums(const HostStage& stage, Workers& workers) {
  std::vector<BlockSum> sums;
  std::vector<std::span<const float>> blocks;
  for (const auto& piece : stage.pieces_of(stage.shape().replica)) {
    const auto gradient = stage.gradient(piece);
    const auto& entry = stage.shape().parameters[static_cast<std::size_t>(piece.parameter)];
    const std::int64_t begin = entry.first + piece.first;  // in the whole parameter
    for (std::int64_t first = 0; first < piece.count;) {
      const std::int64_t block = (begin + first) / norm_block_elements;
      const std::int64_t count = std::min((block + 1) * norm_block_elements - begin, piece.count) - first;
      sums.push_back({entry.canonical, static_cast<std::int32_t>(block), 0.0});
      blocks.push_back(gradient.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
      first += count;
    }
  }
  workers.for_each(static_cast<std::int64_t>(sums.size()), [&](std::int64_t i) {
    const auto& block = blocks[static_cast<std::size_t>(i)];
    sums[static_cast<std::size_t>(i)].sum =
        vector_loops().sum_of_squares(block.data(), static_cast<std::int64_t>(block.size()));
  });
  return sums;
}

NormResult combine(const std::vector<BlockSum>& sums, const std::vector<Parameter>& model) {
  return result_of(judge({sums, std::vector<std::int32_t>(sums.size(), 0)}), model);
}

Validated global_norm(const std::vector<BlockSum>& sums, const std::vector<Parameter>& model, const Communicator& group,
                      const std::string& report) {
  auto meeting = meet(static_cast<std::int64_t>(sums.size()), report, group);
  Verdict verdict;
  const auto all = gather(sums, meeting.counts, group);
  if (group.rank() == 0) verdict = judge(all);
  group.broadcast(std::as_writable_bytes(std::span{&verdict, 1}), 0);
  return {result_of(verdict, model), std::move(meeting.reports)};
}

}  // namespace penstock
