// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "data/tokens.hpp"

namespace penstock {

/// The little-endian bytes of numbers.
template <class Number>
std::string bytes_of_numbers(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

inline std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t count, std::int32_t fourth = 0) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  header[3] = fourth;
  return bytes_of_numbers(header);
}

/// An llm.c shard: GPT-2's kind for uint16, Llama 3's for uint32.
template <class Number>
std::string llmc_shard(const std::vector<Number>& ids) {
  const auto count = static_cast<std::int32_t>(ids.size());
  return (sizeof(Number) == 2 ? llmc_header(20240520, 1, count) : llmc_header(20240801, 7, count)) +
         bytes_of_numbers(ids);
}

/// The parts of a Megatron index, to be bent out of shape one by one.
struct MegatronIndex {
  std::string magic{"MMIDIDX\0\0", 9};
  std::uint64_t version = 1;
  std::uint8_t type = 4;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> borders;
  std::string modes;

  /// Sequences of these lengths, each a document, of tokens of `item` bytes.
  static MegatronIndex of(std::vector<std::int32_t> lengths, std::uint8_t type, std::int64_t item) {
    MegatronIndex index;
    index.type = type;
    index.borders.push_back(0);
    std::int64_t offset = 0;
    for (const std::int32_t length : lengths) {
      index.offsets.push_back(offset);
      offset += length * item;
      index.borders.push_back(index.borders.back() + 1);
    }
    index.lengths = std::move(lengths);
    return index;
  }

  std::string bytes() const {
    return magic + bytes_of_numbers(std::vector{version}) + bytes_of_numbers(std::vector{type}) +
           bytes_of_numbers(std::vector<std::uint64_t>{lengths.size(), borders.size()}) + bytes_of_numbers(lengths) +
           bytes_of_numbers(offsets) + bytes_of_numbers(borders) + modes;
  }
};

inline std::span<const std::byte> view(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}

/// The ids of the whole stream, or of a part.
inline std::vector<std::int32_t> ids_of(const TokenSource& source, std::int64_t first = 0, std::int64_t count = -1) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count < 0 ? source.size() - first : count));
  source.read(first, ids);
  return ids;
}

/// first, first + 1, ..., `count` of them.
inline std::vector<std::int32_t> counting(std::int64_t count, std::int32_t first = 0) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

inline std::shared_ptr<const TokenSource> stream_of(std::vector<std::int32_t> ids) {
  return std::make_shared<const TokenSource>(source_of(std::move(ids), "memory"));
}

/// The message of the Error that `action` must throw, with this code.
inline std::string error_of(ExitCode code, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no Error";
  return {};
}

}  // namespace penstock
