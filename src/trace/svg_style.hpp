// SPDX-License-Identifier: Apache-2.0
//
// Colours and words of pictures.
#pragma once

#include <string>
#include <string_view>

#include "schedule/action.hpp"

namespace penstock {

struct Color {
  int red, green, blue;
};

/// One colour family per kind of work: forwards blue, backwards green, weight gradients amber, recompute violet;
/// messages and copies pale; CPU work red and grey.
Color color_of(Op op);

/// From the colour itself (0) to three fifths of the way to white (1).
Color lightened(Color color, double fraction);

/// "#4271ae"
std::string hex(Color color);

/// Of the numbers in boxes: on every colour of a computation, however much lightened, its contrast is 4.5 or more
/// (WCAG 2, 1.4.3), so that neighbours need no other.
inline constexpr Color label_color{0, 0, 0};

/// (brighter + 0.05) / (darker + 0.05) of the relative luminances of two sRGB colours, from 1 to 21 (WCAG 2).
double contrast(Color a, Color b);

/// A few words on an op, for a legend: "forward".
std::string_view words_for(Op op);

/// The text with the characters that XML reserves, or that no XML can hold, replaced.
std::string xml_escaped(std::string_view text);

}  // namespace penstock
