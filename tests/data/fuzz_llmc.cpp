// SPDX-License-Identifier: Apache-2.0
// An llm.c shard of any bytes is read or refused by an Error; what is read is all there.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "data/llmc.hpp"
#include "data/tokens.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  try {
    const TokenSource source{{parse_llmc(std::as_bytes(std::span{data, size}), "input")}, nullptr};
    if (source.size() * bytes_of(source.arrays()[0].type) + 1024 != static_cast<std::int64_t>(size)) std::abort();
    std::vector<std::int32_t> ids(static_cast<std::size_t>(source.size()));
    source.read(0, ids, 50257);
  } catch (const Error& error) {
    if (error.code() != ExitCode::damaged_input) std::abort();
  }
  return 0;
}
