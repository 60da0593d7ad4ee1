// SPDX-License-Identifier: Apache-2.0
#include "trace/svg_style.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace penstock {
namespace {

/// Of a channel of sRGB, as WCAG 2 defines it.
double linear(int channel) {
  const double share = channel / 255.0;
  return share <= 0.04045 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4);
}

double luminance_of(Color color) {
  return 0.2126 * linear(color.red) + 0.7152 * linear(color.green) + 0.0722 * linear(color.blue);
}

}  // namespace

Color color_of(Op op) {
  switch (op) {
    case Op::forward:
      return {78, 126, 190};
    case Op::backward:
      return {62, 145, 82};
    case Op::backward_input:
      return {72, 165, 155};
    case Op::backward_weight:
      return {222, 150, 40};
    case Op::recompute:
      return {150, 104, 170};
    case Op::send_forward:
      return {140, 178, 222};
    case Op::receive_forward:
      return {178, 206, 235};
    case Op::send_backward:
      return {140, 200, 150};
    case Op::receive_backward:
      return {180, 222, 186};
    case Op::send_checkpoint:
      return {196, 160, 214};
    case Op::receive_checkpoint:
      return {214, 190, 228};
    case Op::offload_activations:
      return {236, 208, 160};
    case Op::reload_activations:
      return {222, 186, 208};
    case Op::embed_forward:
    case Op::vocabulary_forward:
      return {96, 150, 196};
    case Op::embed_backward:
    case Op::vocabulary_backward:
      return {104, 176, 120};
    case Op::fetch_forward:
      return {226, 160, 196};
    case Op::fetch_backward:
      return {196, 106, 155};
    case Op::evict_forward:
    case Op::evict_backward:
      return {200, 200, 200};
    case Op::offload_gradients:
      return {240, 196, 130};
    case Op::reduce:
      return {206, 120, 110};
    case Op::validate:
      return {120, 120, 120};
    case Op::step:
      return {190, 66, 62};
    case Op::undo:
      return {232, 112, 70};
  }
  return {0, 0, 0};
}

Color lightened(Color color, double fraction) {
  const auto mix = [fraction](int part) { return static_cast<int>(std::lround(part + (255 - part) * 0.6 * fraction)); };
  return {mix(color.red), mix(color.green), mix(color.blue)};
}

std::string hex(Color color) {
  return fmt::format("#{:02x}{:02x}{:02x}", color.red, color.green, color.blue);
}

double contrast(Color a, Color b) {
  const double first = luminance_of(a) + 0.05;
  const double second = luminance_of(b) + 0.05;
  return std::max(first, second) / std::min(first, second);
}

std::string_view words_for(Op op) {
  switch (op) {
    case Op::forward:
      return "forward";
    case Op::backward:
      return "backward";
    case Op::backward_input:
      return "input gradient";
    case Op::backward_weight:
      return "weight gradient";
    case Op::recompute:
      return "recompute";
    case Op::send_forward:
    case Op::receive_forward:
      return "activations";
    case Op::send_backward:
    case Op::receive_backward:
      return "gradients";
    case Op::send_checkpoint:
    case Op::receive_checkpoint:
      return "stage input";
    case Op::offload_activations:
    case Op::reload_activations:
      return "activations";
    case Op::embed_forward:
    case Op::embed_backward:
      return "embedding";
    case Op::vocabulary_forward:
      return "output layer";
    case Op::vocabulary_backward:
      return "its gradient";
    case Op::fetch_forward:
    case Op::fetch_backward:
    case Op::evict_forward:
    case Op::evict_backward:
      return "parameters";
    case Op::offload_gradients:
      return "gradients";
    case Op::reduce:
      return "over replicas";
    case Op::validate:
      return "norm";
    case Op::step:
      return "optimizer";
    case Op::undo:
      return "undo";
  }
  return {};
}

std::string xml_escaped(std::string_view text) {
  std::string result;
  for (const char character : text) {
    switch (character) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += static_cast<unsigned char>(character) < 0x20 ? ' ' : character;
    }
  }
  return result;
}

}  // namespace penstock
