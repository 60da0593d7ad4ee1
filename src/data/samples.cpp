// SPDX-License-Identifier: Apache-2.0
#include "data/samples.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "data/order.hpp"

namespace penstock {
namespace {

void check_batch(std::int64_t first, std::int64_t count, std::int64_t sequence, std::span<const std::int32_t> inputs,
                 std::span<const std::int32_t> targets) {
  require(first >= 0 && count >= 0, "a batch of {} samples from {}", count, first);
  const auto needed = static_cast<std::size_t>(count * sequence);
  require((inputs.empty() || inputs.size() == needed) && (targets.empty() || targets.size() == needed),
          "a batch of {} samples of {} tokens read to {} inputs and {} targets", count, sequence, inputs.size(),
          targets.size());
}

/// Row `row` of a [rows, sequence] array; nothing of an array that is not wanted.
std::span<std::int32_t> row_of(std::span<std::int32_t> array, std::int64_t row, std::int64_t sequence) {
  if (array.empty()) return {};
  return array.subspan(static_cast<std::size_t>(row * sequence), static_cast<std::size_t>(sequence));
}

}  // namespace

TrainingSamples::TrainingSamples(std::shared_ptr<const TokenSource> tokens, std::int64_t sequence, std::uint64_t seed,
                                 std::int32_t vocabulary, const std::string& name)
    : tokens_{std::move(tokens)}, sequence_{sequence}, samples_{0}, seed_{seed}, vocabulary_{vocabulary} {
  require(sequence >= 1, "sequences of {} tokens", sequence);
  samples_ = (tokens_->size() - 1) / sequence;
  if (tokens_->size() > sequence) return;
  fail(ExitCode::bad_input,
       "{}: a sequence of {} needs {} (its last one is a target only), the data have {}; add data or lower "
       "training.sequence",
       name, counted(sequence, "token"), counted(sequence + 1, "token"), tokens_->size());
}

void TrainingSamples::read_batch(std::int64_t first_sample, std::int64_t count, std::span<std::int32_t> inputs,
                                 std::span<std::int32_t> targets) const {
  check_batch(first_sample, count, sequence_, inputs, targets);
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t sample = first_sample + k;
    const SampleOrder order{samples_, seed_, sample / samples_};
    const std::int64_t start = order[sample % samples_] * sequence_;
    tokens_->read(start, row_of(inputs, k, sequence_), vocabulary_);
    tokens_->read(start + 1, row_of(targets, k, sequence_), vocabulary_);
  }
}

std::string TrainingSamples::description() const {
  return fmt::format("{} of {} an epoch, {} at the end unused", counted(samples_, "sample"),
                     counted(sequence_, "token"), counted(unused_tokens(), "token"));
}

ValidationSamples::ValidationSamples(std::shared_ptr<const TokenSource> tokens, std::int64_t sequence,
                                     std::int32_t vocabulary, const std::string& name)
    : tokens_{std::move(tokens)}, sequence_{sequence}, vocabulary_{vocabulary} {
  require(sequence >= 1, "sequences of {} tokens", sequence);
  if (tokens_->size() >= 2) return;
  fail(ExitCode::bad_input, "{}: validation needs at least 2 tokens, an input and a target; the data have {}", name,
       tokens_->size());
}

std::int64_t ValidationSamples::windows() const {
  return divide_up(targets(), sequence_);
}

/// Fills `out` with the stream from `first_token`, and with `padding` past its end.
void ValidationSamples::read_part(std::int64_t first_token, std::span<std::int32_t> out, std::int32_t padding) const {
  const std::int64_t left = std::max(std::int64_t{0}, tokens_->size() - first_token);
  const auto real = std::min(out.size(), static_cast<std::size_t>(left));
  if (real > 0) tokens_->read(first_token, out.first(real), vocabulary_);
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(real), out.end(), padding);
}

void ValidationSamples::read_batch(std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
                                   std::span<std::int32_t> targets) const {
  check_batch(first, count, sequence_, inputs, targets);
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t start = (first + k) * sequence_;
    read_part(start, row_of(inputs, k, sequence_), 0);
    read_part(start + 1, row_of(targets, k, sequence_), -1);
  }
}

std::string ValidationSamples::description() const {
  return fmt::format("{} of {}, {}", counted(windows(), "window"), counted(sequence_, "token"),
                     counted(targets(), "target"));
}

}  // namespace penstock
