// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// How a file stores one token id (little-endian).
enum class TokenType : std::uint8_t { uint8, int8, int16, uint16, int32, uint32, int64 };

std::int64_t bytes_of(TokenType type);
std::string_view name_of(TokenType type);
/// Every id of the type is below this; 2^31 where the type holds more than an id may be.
std::int64_t id_bound(TokenType type);

/// The tokens of one file: a view of its bytes, which live elsewhere.
struct TokenArray {
  std::string name;  ///< the file, as users know it
  TokenType type = TokenType::uint8;
  std::span<const std::byte> bytes;  ///< a multiple of bytes_of(type); no alignment needed
  std::int64_t size() const { return static_cast<std::int64_t>(bytes.size()) / bytes_of(type); }
};

/// Copies the ids [first, first + out.size()) of `array` to `out`. Returns the position of the first one that is no id
/// (negative, or 2^31 and more), if any.
std::optional<std::int64_t> copy_ids(const TokenArray& array, std::int64_t first, std::span<std::int32_t> out);

/// The stored value at `position`, whatever it is, as text: for errors.
std::string value_text(const TokenArray& array, std::int64_t position);

/// A stream of token ids: the arrays of several files one after the other, read at any place.
///
/// Holds views; `owner` keeps alive the bytes that they view (mapped files, a text in memory). Reading is `const`,
/// keeps no state, and may run on several threads at once. 64-bit positions throughout.
class TokenSource {
 public:
  TokenSource() = default;
  TokenSource(std::vector<TokenArray> arrays, std::shared_ptr<const void> owner);

  /// Number of tokens.
  std::int64_t size() const { return starts_.empty() ? 0 : starts_.back(); }

  /// Every id is below this (256 for bytes, 65536 for uint16, else 2^31).
  std::int64_t id_bound() const { return id_bound_; }

  /// Copies the ids of the tokens [first, first + out.size()), which must lie in the stream.
  /// @throws Error damaged_input, with the file and the position, where a stored value is negative or exceeds 2^31 - 1.
  void read(std::int64_t first, std::span<std::int32_t> out) const;

  /// As `read`, and every id must be below `vocabulary`, the model's.
  /// @throws Error damaged_input with the file, the position, the id and the vocabulary.
  void read(std::int64_t first, std::span<std::int32_t> out, std::int32_t vocabulary) const;

  /// Where a token of the stream stands: `fineweb/0001.bin, token 17`, counted from 0.
  std::string place(std::int64_t token) const;

  const std::vector<TokenArray>& arrays() const { return arrays_; }

 private:
  std::size_t array_of(std::int64_t token) const;

  std::vector<TokenArray> arrays_;
  std::vector<std::int64_t> starts_;  ///< of each array in the stream, and the size of the stream
  std::shared_ptr<const void> owner_;
  std::int64_t id_bound_ = 0;
};

/// A stream over ids in memory.
TokenSource source_of(std::vector<std::int32_t> ids, const std::string& name);

}  // namespace penstock
