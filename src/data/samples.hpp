// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "data/tokens.hpp"

namespace penstock {

/// Training samples: windows of T+1 tokens that overlap by one, in a pseudo-random order that is new in each epoch.
///
/// Window j holds the tokens jT .. jT+T: T inputs, and as targets the token after each input. A stream of N tokens has
/// floor((N-1)/T) windows; the rest, shorter than a window, is not used. Sample i (counted over the whole training:
/// sample k of step s is s x global batch + k) is window SampleOrder{windows, seed, i / windows}[i % windows]: it
/// depends on the data, the seed and i alone, never on ranks, micro-batches or what was read before. A batch may lie
/// across two epochs; none is ever short.
class TrainingSamples {
 public:
  /// @param name  the deck's key, for errors: `data.train`
  /// @throws Error bad_input when the stream has fewer than T+1 tokens, saying how many it has.
  TrainingSamples(std::shared_ptr<const TokenSource> tokens, std::int64_t sequence, std::uint64_t seed,
                  std::int32_t vocabulary, const std::string& name);

  std::int64_t sequence() const { return sequence_; }
  std::int64_t samples_per_epoch() const { return samples_; }
  /// Tokens at the end of the stream that are in no window.
  std::int64_t unused_tokens() const { return tokens_->size() - (samples_ * sequence_ + 1); }

  /// Reads the samples first_sample .. first_sample + count-1: inputs[count, T] and targets[count, T].
  ///
  /// Either may be empty where it is not needed (the first pipeline rank takes inputs, the last targets).
  /// @throws Error damaged_input where a token is outside the vocabulary, naming file, position, id and vocabulary.
  void read_batch(std::int64_t first_sample, std::int64_t count, std::span<std::int32_t> inputs,
                  std::span<std::int32_t> targets) const;

  /// `4899 samples of 256 tokens an epoch, 37 tokens at the end unused`
  std::string description() const;

 private:
  std::shared_ptr<const TokenSource> tokens_;
  std::int64_t sequence_;
  std::int64_t samples_;
  std::uint64_t seed_;
  std::int32_t vocabulary_;
};

/// Validation samples: the same windows in order, and the last, short one too. Every token but the first of the stream
/// is a target exactly once.
class ValidationSamples {
 public:
  /// @throws Error bad_input when the stream has fewer than 2 tokens.
  ValidationSamples(std::shared_ptr<const TokenSource> tokens, std::int64_t sequence, std::int32_t vocabulary,
                    const std::string& name);

  std::int64_t sequence() const { return sequence_; }
  /// ceil((N-1)/T) of N tokens
  std::int64_t windows() const;
  /// N-1
  std::int64_t targets() const { return tokens_->size() - 1; }

  /// Reads the windows first .. first + count-1: inputs[count, T] and targets[count, T], either of which may be empty.
  ///
  /// Past the end of the stream inputs are 0 and targets -1, which counts for nothing: the end of the last window, and
  /// whole windows from windows() on, so that a last batch can be filled up.
  void read_batch(std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
                  std::span<std::int32_t> targets) const;

  /// `24 windows of 256 tokens, 6100 targets`
  std::string description() const;

 private:
  void read_part(std::int64_t first_token, std::span<std::int32_t> out, std::int32_t padding) const;

  std::shared_ptr<const TokenSource> tokens_;
  std::int64_t sequence_;
  std::int32_t vocabulary_;
};

}  // namespace penstock
