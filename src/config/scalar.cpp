// SPDX-License-Identifier: Apache-2.0
#include "config/scalar.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace penstock::config {
namespace {

/// The whole of `text` as a number; a leading + is taken, as YAML does.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct DurationUnit {
  std::string_view name;
  double seconds;
};

constexpr std::array<DurationUnit, 7> duration_units{
    {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"sec", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}}};

struct SizeUnit {
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array<SizeUnit, 4> size_units{{{"TiB", std::int64_t{1} << 40},
                                              {"GiB", std::int64_t{1} << 30},
                                              {"MiB", std::int64_t{1} << 20},
                                              {"KiB", std::int64_t{1} << 10}}};

/// Whether a text can stand in a deck without quotes, in a list too, and is read back as this text.
bool is_plain(std::string_view text) {
  if (text.empty() || text == "null" || text == "Null" || text == "NULL") return false;
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz/";
  constexpr std::string_view others = "0123456789_.-";
  if (letters.find(text.front()) == std::string_view::npos) return false;
  return text.find_first_not_of(std::string{letters} + std::string{others}) == std::string_view::npos;
}

std::string escaped(char c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\t':
      return "\\t";
    case '\r':
      return "\\r";
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
}

}  // namespace

std::optional<bool> Scalar<bool>::parse(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}
std::string Scalar<bool>::text(bool value) {
  return value ? "true" : "false";
}

std::optional<std::int32_t> Scalar<std::int32_t>::parse(std::string_view text) {
  return parse_number<std::int32_t>(text);
}
std::string Scalar<std::int32_t>::text(std::int32_t value) {
  return fmt::format("{}", value);
}

std::optional<std::uint64_t> Scalar<std::uint64_t>::parse(std::string_view text) {
  return parse_number<std::uint64_t>(text);
}
std::string Scalar<std::uint64_t>::text(std::uint64_t value) {
  return fmt::format("{}", value);
}

std::optional<double> Scalar<double>::parse(std::string_view text) {
  const auto value = parse_number<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}
std::string Scalar<double>::text(double value) {
  return fmt::format("{}", value);
}

std::optional<std::string> Scalar<std::string>::parse(std::string_view text) {
  return std::string{text};
}
std::string Scalar<std::string>::text(const std::string& value) {
  if (is_plain(value)) return value;
  std::string result = "\"";
  for (const char c : value) result += escaped(c);
  return result + '"';
}

std::optional<Bytes> Scalar<Bytes>::parse(std::string_view text) {
  return parse_bytes(text);
}
std::string Scalar<Bytes>::text(Bytes value) {
  for (const auto& unit : size_units) {
    if (value.value != 0 && value.value % unit.bytes == 0) {
      return fmt::format("{} {}", value.value / unit.bytes, unit.name);
    }
  }
  return fmt::format("{}", value.value);
}

std::optional<Seconds> Scalar<Seconds>::parse(std::string_view text) {
  const auto letters = text.find_first_of("dhmsu");
  std::string_view number = text.substr(0, letters);
  while (number.ends_with(' ')) number.remove_suffix(1);
  const auto value = Scalar<double>::parse(number);
  if (!value) return std::nullopt;
  if (letters == std::string_view::npos) return Seconds{*value};
  for (const auto& unit : duration_units) {
    if (unit.name == text.substr(letters) && std::isfinite(*value * unit.seconds))
      return Seconds{*value * unit.seconds};
  }
  return std::nullopt;
}
std::string Scalar<Seconds>::text(Seconds value) {
  return fmt::format("{} s", value.value);
}

std::string list_type(std::string_view item_type, std::size_t fixed_length) {
  if (item_type.find('|') != std::string_view::npos) return fmt::format("a list of {}", item_type);
  std::string_view word = item_type.substr(0, item_type.find(','));
  if (word.starts_with("a ")) word.remove_prefix(2);
  if (fixed_length > 0) return fmt::format("a list of {} {}s", fixed_length, word);
  return fmt::format("a list of {}s", word);
}

std::string text_of(const KeyRange& range, std::string_view unit) {
  const bool has_low = std::isfinite(range.low);
  const bool has_high = std::isfinite(range.high);
  const std::string low = fmt::format("{}{}", range.low, unit);
  const std::string high = fmt::format("{}{}", range.high, unit);
  if (has_low && has_high) {
    return fmt::format("{} {} {} {}", range.low_is_allowed ? "from" : "above", low,
                       range.high_is_allowed ? "to" : "to below", high);
  }
  if (has_low) return fmt::format("{} {}", range.low_is_allowed ? "at least" : "more than", low);
  if (has_high) return fmt::format("{} {}", range.high_is_allowed ? "at most" : "less than", high);
  return {};
}

}  // namespace penstock::config
