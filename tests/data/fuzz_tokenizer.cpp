// SPDX-License-Identifier: Apache-2.0
// An llm.c tokenizer file of any bytes is read or refused by an Error, and so is any text that it is to encode.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "base/error.hpp"
#include "data/tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  try {
    const NumberTokenizer numbers;
    const std::string_view text{reinterpret_cast<const char*>(data), size};
    const auto ids = numbers.encode(text);
    if (numbers.encode(numbers.decode(ids)) != ids) std::abort();
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) std::abort();
  }
  try {
    const LlmcTokenizer tokenizer{std::as_bytes(std::span{data, size}), "input"};
    for (std::int32_t id = -1; id <= *tokenizer.vocabulary(); ++id) tokenizer.decode(std::span{&id, 1});
  } catch (const Error& error) {
    if (error.code() != ExitCode::damaged_input) std::abort();
  }
  return 0;
}
