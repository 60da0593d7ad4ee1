// SPDX-License-Identifier: Apache-2.0
//
// The types that a key of a deck may have: how each is read, written and called.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/describe.hpp"
#include "base/units.hpp"

namespace penstock::config {

/// What the reader and the dump know of a type with one value. `parse` gives nothing when the text is no such value;
/// `text` gives a plain YAML scalar that `parse` turns into the same value, to the bit; `type` is for people.
template <class T>
struct Scalar;

template <>
struct Scalar<bool> {
  static std::optional<bool> parse(std::string_view text);
  static std::string text(bool value);
  static std::string type() { return "true or false"; }
};

template <>
struct Scalar<std::int32_t> {
  static std::optional<std::int32_t> parse(std::string_view text);
  static std::string text(std::int32_t value);
  static std::string type() { return "a whole number"; }
};

template <>
struct Scalar<std::uint64_t> {
  static std::optional<std::uint64_t> parse(std::string_view text);
  static std::string text(std::uint64_t value);
  static std::string type() { return "a whole number, at least 0"; }
};

template <>
struct Scalar<double> {
  static std::optional<double> parse(std::string_view text);
  static std::string text(double value);
  static std::string type() { return "a number"; }
};

template <>
struct Scalar<std::string> {
  static std::optional<std::string> parse(std::string_view text);
  static std::string text(const std::string& value);
  static std::string type() { return "a text"; }
};

template <>
struct Scalar<Bytes> {
  static std::optional<Bytes> parse(std::string_view text);
  static std::string text(Bytes value);
  static std::string type() { return "a size such as 2 GiB, 512MB or 4096"; }
  static constexpr std::string_view range_unit = " B";
};

template <>
struct Scalar<Seconds> {
  static std::optional<Seconds> parse(std::string_view text);
  static std::string text(Seconds value);
  static std::string type() { return "a duration such as 90 s, 5 min or 2 h"; }
  static constexpr std::string_view range_unit = " s";
};

template <class T>
concept Enumeration = std::is_enum_v<T>;

template <Enumeration E>
struct Scalar<E> {
  static std::optional<E> parse(std::string_view text) {
    for (const auto& entry : enum_names(E{})) {
      if (entry.name == text) return entry.value;
    }
    return std::nullopt;
  }
  static std::string text(E value) {
    for (const auto& entry : enum_names(E{})) {
      if (entry.value == value) return std::string{entry.name};
    }
    return {};
  }
  static std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const auto& entry : enum_names(E{})) names.emplace_back(entry.name);
    return names;
  }
  static std::string type() {
    std::string joined;
    for (const auto& name : names()) joined += (joined.empty() ? "" : " | ") + name;
    return joined;
  }
};

/// A list of values of one type, of any length or of a fixed one, and what may be left out.
template <class T>
struct IsList : std::false_type {};
template <class T>
struct IsList<std::vector<T>> : std::true_type {
  static std::string type();
};
template <class T, std::size_t N>
struct IsList<std::array<T, N>> : std::true_type {
  static std::string type();
};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
concept List = IsList<T>::value;
template <class T>
concept Optional = IsOptional<T>::value;

/// A struct with a describe function: a section, or one inside a section.
struct NullVisitor {
  template <class T>
  void operator()(std::string_view, T&, const KeyInfo&) {}
};
template <class T>
concept Described = requires(NullVisitor& visitor, T& options) {
  describe(visitor, options);
};

/// "a list of whole numbers", "2 numbers".
std::string list_type(std::string_view item_type, std::size_t fixed_length);

template <class T>
std::string IsList<std::vector<T>>::type() {
  return list_type(Scalar<T>::type(), 0);
}
template <class T, std::size_t N>
std::string IsList<std::array<T, N>>::type() {
  return list_type(Scalar<T>::type(), N);
}

/// The number that a key's range speaks of; none for texts, enums and truth values.
template <class T>
std::optional<double> number_of(const T& value) {
  if constexpr (std::is_same_v<T, Bytes> || std::is_same_v<T, Seconds>) {
    return static_cast<double>(value.value);
  } else if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    return static_cast<double>(value);
  } else {
    return std::nullopt;
  }
}

/// "at least 1", "from 1 to 4096", "more than 0 s"; empty for any number.
std::string text_of(const KeyRange& range, std::string_view unit);

/// The same for a key of type T, whose range may speak of bytes or seconds.
template <class T>
std::string range_text(const KeyRange& range) {
  if constexpr (Optional<T> || List<T>) {
    return range_text<typename T::value_type>(range);
  } else if constexpr (requires { Scalar<T>::range_unit; }) {
    return text_of(range, Scalar<T>::range_unit);
  } else {
    return text_of(range, "");
  }
}

/// "a whole number", "a list of texts".
template <class T>
std::string type_text() {
  if constexpr (Optional<T>) {
    return type_text<typename T::value_type>();
  } else if constexpr (List<T>) {
    return IsList<T>::type();
  } else {
    return Scalar<T>::type();
  }
}

/// Type and range: what a fault says was expected.
template <class T>
std::string expected_text(const KeyRange& range) {
  const std::string limits = range_text<T>(range);
  return limits.empty() ? type_text<T>() : type_text<T>() + ", " + limits;
}

}  // namespace penstock::config
