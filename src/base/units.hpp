// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

/// A number of bytes, of a buffer or of a memory.
struct Bytes {
  std::int64_t value = 0;
  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.value + b.value}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.value - b.value}; }
  friend constexpr Bytes operator*(Bytes a, std::int64_t count) { return {a.value * count}; }
  constexpr Bytes& operator+=(Bytes other) {
    value += other.value;
    return *this;
  }
};

/// A duration or a point on the machine's monotonic clock, in seconds.
struct Seconds {
  double value = 0;
  friend constexpr auto operator<=>(Seconds, Seconds) = default;
  friend constexpr Seconds operator+(Seconds a, Seconds b) { return {a.value + b.value}; }
  friend constexpr Seconds operator-(Seconds a, Seconds b) { return {a.value - b.value}; }
  friend constexpr Seconds operator*(Seconds a, double factor) { return {a.value * factor}; }
  constexpr Seconds& operator+=(Seconds other) {
    value += other.value;
    return *this;
  }
};

/// Floating-point operations, a multiply-add counted as two.
struct Flops {
  double value = 0;
  friend constexpr auto operator<=>(Flops, Flops) = default;
  friend constexpr Flops operator+(Flops a, Flops b) { return {a.value + b.value}; }
  friend constexpr Flops operator*(Flops a, double factor) { return {a.value * factor}; }
};

/// `2.00 GiB`, `704.0 KiB`, `12 B`: for people.
std::string to_text(Bytes bytes);

/// Reads `2 GiB`, `2GB`, `512 MiB`, `1.5 GiB`, `4096`, `4096 B`; powers of 1024 for KiB.., of 1000 for KB... Empty when
/// the text is no number of bytes, is negative, or exceeds 2^63 - 1.
std::optional<Bytes> parse_bytes(std::string_view text);

/// The machine's monotonic clock, the same for all processes of a node.
Seconds now();

/// `value` rounded up to a multiple of `unit`.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// value / unit, rounded up.
constexpr std::int64_t divide_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit;
}

}  // namespace penstock
