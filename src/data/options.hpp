// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/describe.hpp"

namespace penstock {

enum class TokenizerKind : std::uint8_t {
  bytes  ///< a token is a byte: 256 of them
};

constexpr std::array<EnumName<TokenizerKind>, 1> enum_names(TokenizerKind) {
  return {{{TokenizerKind::bytes, "bytes"}}};
}

/// The section `data` of a deck. Paths are relative to the working directory.
struct DataOptions {
  std::vector<std::string> train;
  std::vector<std::string> validation;
  TokenizerKind tokenizer = TokenizerKind::bytes;
  friend bool operator==(const DataOptions&, const DataOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, DataOptions& options) {
  visit("train", options.train,
        {.help = "what to train on: text files and folders, llm.c token files (*.bin, may hold * and ?), or Megatron "
                 "prefixes; relative to the working directory",
         .presence = Presence::required});
  visit("validation", options.validation, {.help = "what to validate on, given like train; empty: no validation"});
  visit("tokenizer", options.tokenizer,
        {.help = "how text becomes tokens (token files hold tokens already); bytes: one token a byte, 256 of them"});
}

}  // namespace penstock
