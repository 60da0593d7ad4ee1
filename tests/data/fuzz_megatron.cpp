// SPDX-License-Identifier: Apache-2.0
// A Megatron data set of any bytes is read or refused by an Error. The first two bytes of the input say how many of the
// rest are the index; what follows is the .bin.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "data/megatron.hpp"
#include "data/tokens.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  if (size < 2) return 0;
  const auto rest = std::as_bytes(std::span{data, size}).subspan(2);
  const std::size_t split = std::min(rest.size(), static_cast<std::size_t>(data[0] | (data[1] << 8)));
  try {
    const auto read = parse_megatron(rest.first(split), rest.subspan(split), "input");
    const TokenSource source{{read.tokens}, nullptr};
    if (source.size() * bytes_of(read.tokens.type) != static_cast<std::int64_t>(rest.size() - split)) std::abort();
    std::vector<std::int32_t> ids(static_cast<std::size_t>(source.size()));
    source.read(0, ids, 65536);
  } catch (const Error& error) {
    if (error.code() != ExitCode::damaged_input) std::abort();
  }
  return 0;
}
