// SPDX-License-Identifier: Apache-2.0
#include "data/tokens.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read as they are");

/// Calls `visit` with a value of the C++ type that `type` names.
template <class Visitor>
auto with_type(TokenType type, Visitor&& visit) {
  switch (type) {
    case TokenType::uint8:
      return visit(std::uint8_t{});
    case TokenType::int8:
      return visit(std::int8_t{});
    case TokenType::int16:
      return visit(std::int16_t{});
    case TokenType::uint16:
      return visit(std::uint16_t{});
    case TokenType::int32:
      return visit(std::int32_t{});
    case TokenType::uint32:
      return visit(std::uint32_t{});
    case TokenType::int64:
      return visit(std::int64_t{});
  }
  fail(ExitCode::internal, "token type {} is none", static_cast<int>(type));
}

template <class Stored>
Stored stored_at(const TokenArray& array, std::int64_t position) {
  Stored value;
  std::memcpy(&value, array.bytes.data() + position * static_cast<std::int64_t>(sizeof(Stored)), sizeof(Stored));
  return value;
}

template <class Stored>
constexpr bool is_id(Stored value) {
  return std::in_range<std::int32_t>(value) && !std::cmp_less(value, 0);
}

template <class Stored>
std::optional<std::int64_t> copy_from(const TokenArray& array, std::int64_t first, std::span<std::int32_t> out) {
  bool all_ids = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto value = stored_at<Stored>(array, first + static_cast<std::int64_t>(i));
    all_ids &= is_id(value);
    out[i] = static_cast<std::int32_t>(value);  // NOLINT(bugprone-signed-char-misuse): a number, no character
  }
  if (all_ids) return std::nullopt;
  while (is_id(stored_at<Stored>(array, first))) ++first;
  return first;
}

}  // namespace

std::int64_t bytes_of(TokenType type) {
  return with_type(type, [](auto value) { return static_cast<std::int64_t>(sizeof(value)); });
}

std::string_view name_of(TokenType type) {
  switch (type) {
    case TokenType::uint8:
      return "uint8";
    case TokenType::int8:
      return "int8";
    case TokenType::int16:
      return "int16";
    case TokenType::uint16:
      return "uint16";
    case TokenType::int32:
      return "int32";
    case TokenType::uint32:
      return "uint32";
    case TokenType::int64:
      return "int64";
  }
  fail(ExitCode::internal, "token type {} is none", static_cast<int>(type));
}

std::int64_t id_bound(TokenType type) {
  constexpr std::int64_t largest_id = std::numeric_limits<std::int32_t>::max();
  return with_type(type, [](auto value) {
    constexpr auto largest = std::numeric_limits<decltype(value)>::max();
    return std::cmp_less(largest, largest_id) ? static_cast<std::int64_t>(largest) + 1 : largest_id + 1;
  });
}

std::optional<std::int64_t> copy_ids(const TokenArray& array, std::int64_t first, std::span<std::int32_t> out) {
  return with_type(array.type, [&](auto value) { return copy_from<decltype(value)>(array, first, out); });
}

std::string value_text(const TokenArray& array, std::int64_t position) {
  return with_type(array.type,
                   [&](auto value) { return fmt::format("{:d}", stored_at<decltype(value)>(array, position)); });
}

TokenSource::TokenSource(std::vector<TokenArray> arrays, std::shared_ptr<const void> owner)
    : arrays_{std::move(arrays)}, owner_{std::move(owner)} {
  starts_.reserve(arrays_.size() + 1);
  starts_.push_back(0);
  for (const TokenArray& array : arrays_) {
    starts_.push_back(starts_.back() + array.size());
    id_bound_ = std::max(id_bound_, penstock::id_bound(array.type));
  }
}

std::size_t TokenSource::array_of(std::int64_t token) const {
  require(token >= 0 && token < size(), "token {} of a stream of {}", token, size());
  // The last array that starts at or before the token: empty ones, which start where the next does, are passed over.
  return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), token) - starts_.begin()) - 1;
}

void TokenSource::read(std::int64_t first, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  require(first >= 0 && first <= size() && count <= size() - first, "{} tokens from {} of a stream of {}", count, first,
          size());
  for (std::int64_t done = 0; done < count;) {
    const std::size_t a = array_of(first + done);
    const std::int64_t here = std::min(count - done, starts_[a + 1] - (first + done));
    const auto part = out.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(here));
    if (const auto bad = copy_ids(arrays_[a], first + done - starts_[a], part)) {
      fail(ExitCode::damaged_input,
           "{}: the value {} is no token id (0 to 2147483647); the file is damaged or of another kind",
           place(starts_[a] + *bad), value_text(arrays_[a], *bad));
    }
    done += here;
  }
}

void TokenSource::read(std::int64_t first, std::span<std::int32_t> out, std::int32_t vocabulary) const {
  read(first, out);
  if (id_bound_ <= vocabulary) return;
  const auto bad = std::find_if(out.begin(), out.end(), [&](std::int32_t id) { return id >= vocabulary; });
  if (bad == out.end()) return;
  fail(ExitCode::damaged_input,
       "{}: the token id {} is outside the model's vocabulary of {}; set model.vocabulary to at least {}, or use data "
       "made "
       "with this model's tokenizer",
       place(first + (bad - out.begin())), *bad, vocabulary, std::int64_t{*bad} + 1);
}

std::string TokenSource::place(std::int64_t token) const {
  const std::size_t a = array_of(token);
  const std::string_view unit = arrays_[a].type == TokenType::uint8 ? "byte" : "token";
  return fmt::format("{}, {} {}", arrays_[a].name, unit, token - starts_[a]);
}

TokenSource source_of(std::vector<std::int32_t> ids, const std::string& name) {
  const auto owner = std::make_shared<const std::vector<std::int32_t>>(std::move(ids));
  return TokenSource{{{name, TokenType::int32, std::as_bytes(std::span{*owner})}}, owner};
}

}  // namespace penstock
