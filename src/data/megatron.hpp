// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "data/tokens.hpp"

namespace penstock {

/// A Megatron data set: `prefix.idx` says how the tokens in `prefix.bin` fall into sequences and documents.
struct MegatronData {
  std::int64_t sequences = 0;
  std::int64_t documents = 0;
  TokenArray tokens;  ///< a view of the .bin: all sequences back to back, in order
};

/// Reads and checks both files of `prefix`, given as memory.
///
/// The index must be whole: magic, version 1, an integer token type, lengths of 0 or more whose sum is to the byte the
/// size of the .bin, offsets that follow from the lengths, document borders that do not fall and end at the last
/// sequence.
/// @throws Error damaged_input naming the file, what was found and what was expected.
MegatronData parse_megatron(std::span<const std::byte> idx, std::span<const std::byte> bin, const std::string& prefix);

}  // namespace penstock
