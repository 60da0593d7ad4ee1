// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "data/tokens.hpp"

namespace penstock {

/// The tokens of an llm.c shard: a header of 256 int32 (magic, version, number of tokens), then uint16 (magic 20240520,
/// version 1) or uint32 (20240801, version 7) ids to the end of the file.
///
/// @throws Error damaged_input, naming the file, what was found and what was expected, unless the size is to the byte
/// what the header says.
TokenArray parse_llmc(std::span<const std::byte> file, const std::string& name);

}  // namespace penstock
