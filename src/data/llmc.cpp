// SPDX-License-Identifier: Apache-2.0
#include "data/llmc.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/error.hpp"

namespace penstock {
namespace {

constexpr std::size_t shard_header_bytes = 1024;

struct Kind {
  std::int32_t magic;
  std::int32_t version;
  TokenType type;
};
constexpr std::array kinds{Kind{20240520, 1, TokenType::uint16}, Kind{20240801, 7, TokenType::uint32}};

/// What the magic numbers of llm.c's other files stand for.
const char* other_kind(std::int32_t magic) {
  switch (magic) {
    case 20240326:
      return " (a model)";
    case 20240327:
      return " (a debug state)";
    case 20240328:
      return " (a tokenizer)";
    case 20240522:
      return " (a multiple-choice evaluation)";
    case 20240527:
      return " (the state of a run)";
    default:
      return "";
  }
}

std::int32_t header_word(std::span<const std::byte> file, std::size_t index) {
  std::int32_t word = 0;
  std::memcpy(&word, file.data() + index * sizeof word, sizeof word);
  return word;
}

Kind kind_of(std::int32_t magic, const std::string& name) {
  for (const Kind& kind : kinds)
    if (kind.magic == magic) return kind;
  fail(ExitCode::damaged_input,
       "{}: no llm.c token file: it begins with {}{}; token files begin with 20240520 (uint16) or 20240801 (uint32)",
       name, magic, other_kind(magic));
}

/// Explains why a body of `found` bytes is not the `tokens` that the header announces.
[[noreturn]] void fail_size(const std::string& name, std::int64_t tokens, const Kind& kind, std::int64_t found) {
  const std::int64_t expected = tokens * bytes_of(kind.type);
  const bool unannounceable = found / bytes_of(kind.type) > std::numeric_limits<std::int32_t>::max();
  fail(ExitCode::damaged_input, "{}: the header says {} {} tokens, so {} bytes should follow it, but {} do; {}", name,
       tokens, name_of(kind.type), expected, found,
       unannounceable     ? "the header cannot hold a count above 2147483647: write several shards"
       : found < expected ? "the file was cut short: copy or write it again"
                          : "the file was not closed properly, or is of another kind");
}

}  // namespace

TokenArray parse_llmc(std::span<const std::byte> file, const std::string& name) {
  if (file.size() < shard_header_bytes) {
    fail(ExitCode::damaged_input, "{}: no llm.c token file: it has {} bytes, its header alone should have {}", name,
         file.size(), shard_header_bytes);
  }
  const Kind kind = kind_of(header_word(file, 0), name);
  if (const std::int32_t version = header_word(file, 1); version != kind.version) {
    fail(ExitCode::damaged_input, "{}: version {} of llm.c's {} token files; this program reads version {}", name,
         version, name_of(kind.type), kind.version);
  }
  const std::int32_t tokens = header_word(file, 2);
  if (tokens < 0) fail(ExitCode::damaged_input, "{}: the header says {} tokens; it should be 0 or more", name, tokens);
  const auto body = file.subspan(shard_header_bytes);
  const auto found = static_cast<std::int64_t>(body.size());
  if (found != tokens * bytes_of(kind.type)) fail_size(name, tokens, kind, found);
  return {name, kind.type, body};
}

}  // namespace penstock
