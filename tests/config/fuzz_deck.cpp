// SPDX-License-Identifier: Apache-2.0
//
// Any bytes are a deck or are refused with Error bad_input; a deck that is read is written and read back to the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "config/listing.hpp"
#include "config/reader.hpp"

namespace {

/// The first line may hold an override: "#set training.steps=3".
std::vector<std::string> overrides_in(std::string_view text) {
  if (!text.starts_with("#set ")) return {};
  return {std::string{text.substr(5, text.find('\n') - 5)}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try {
    const auto deck = penstock::parse_deck(text, "fuzz.yaml", overrides_in(text));
    const auto again = penstock::parse_deck(penstock::effective_deck(deck), "again.yaml");
    if (!(again == deck)) std::abort();
  } catch (const penstock::Error& error) {
    if (error.code() != penstock::ExitCode::bad_input) std::abort();
  }
  return 0;
}
