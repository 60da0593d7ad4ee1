// SPDX-License-Identifier: Apache-2.0
#include "base/units.hpp"

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

namespace penstock {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 9> units{{{"B", 1},
                                     {"KiB", 1024.0},
                                     {"MiB", 1048576.0},
                                     {"GiB", 1073741824.0},
                                     {"TiB", 1099511627776.0},
                                     {"KB", 1e3},
                                     {"MB", 1e6},
                                     {"GB", 1e9},
                                     {"TB", 1e12}}};

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

}  // namespace

std::string to_text(Bytes bytes) {
  const double value = static_cast<double>(bytes.value);
  if (std::abs(value) >= 1073741824.0) return fmt::format("{:.2f} GiB", value / 1073741824.0);
  if (std::abs(value) >= 1048576.0) return fmt::format("{:.1f} MiB", value / 1048576.0);
  if (std::abs(value) >= 1024.0) return fmt::format("{:.1f} KiB", value / 1024.0);
  return fmt::format("{} B", bytes.value);
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  text = trimmed(text);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) return std::nullopt;
  const auto rest = trimmed(text.substr(static_cast<std::size_t>(end - text.data())));
  double factor = rest.empty() ? 1.0 : 0.0;
  for (const auto& unit : units) {
    if (unit.name == rest) factor = unit.factor;
  }
  const double bytes = number * factor;
  if (factor == 0.0 || bytes >= 9.2233720368547758e18) return std::nullopt;
  return Bytes{std::llround(bytes)};
}

Seconds now() {
  return {std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count()};
}

}  // namespace penstock
