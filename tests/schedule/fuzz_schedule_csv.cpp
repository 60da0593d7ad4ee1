// SPDX-License-Identifier: Apache-2.0
//
// Reads any text as a schedule, completes and validates what is accepted. What has no finding must survive the round
// trip through text.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "schedule/passes.hpp"
#include "schedule/text.hpp"
#include "schedule/validator.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try {
    const Schedule written = read_schedule_csv(text, "fuzzed");
    const Schedule schedule = complete(written, {});
    if (!validate(schedule).empty()) return 0;
    if (read_schedule_csv(write_schedule_csv(schedule), "fuzzed") != schedule) __builtin_trap();
  } catch (const Error& error) {
    if (error.code() != ExitCode::damaged_input) __builtin_trap();
  }
  return 0;
}
