// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/describe.hpp"

namespace penstock {

/// The section `data` of a deck. Paths are relative to the working directory.
struct DataOptions {
  std::vector<std::string> train;
  std::vector<std::string> validation;
  std::string tokenizer = "bytes";  ///< make_tokenizer
  friend bool operator==(const DataOptions&, const DataOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, DataOptions& options) {
  visit("train", options.train,
        {.help = "what to train on: text files and folders, llm.c token files (*.bin, may hold * and ?), or Megatron "
                 "prefixes; relative to the working directory; simulate, plan and the priced device need none"});
  visit("validation", options.validation, {.help = "what to validate on, given like train; empty: no validation"});
  visit("tokenizer", options.tokenizer,
        {.help = "what the tokens stand for; bytes: one token a byte, 256 of them; the path of an llm.c tokenizer file "
                 "(*.bin): token files alone, generated tokens are shown as text; none: token files alone, generated "
                 "tokens are shown as numbers"});
}

}  // namespace penstock
