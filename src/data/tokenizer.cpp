// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "data/files.hpp"

namespace penstock {
namespace {

constexpr std::int32_t llmc_magic = 20240328;
constexpr std::int32_t llmc_version = 2;
constexpr std::size_t llmc_header_bytes = 1024;

std::string in_brackets(std::int32_t id) {
  return fmt::format("<{}>", id);
}

[[noreturn]] void fail_encoding(const std::string& tokenizer, std::size_t position) {
  fail(ExitCode::bad_input,
       "tokenizer {} cannot turn text into tokens; write token ids in angle brackets, such as <50256><464> (position "
       "{} of the text is no such id)",
       tokenizer, position);
}

/// Reads `<12><7>`.
std::vector<std::int32_t> ids_in_brackets(std::string_view text, const std::string& tokenizer) {
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '<') fail_encoding(tokenizer, at);
    std::int32_t id = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + at + 1, end, id);
    if (error != std::errc{} || id < 0 || stop == end || *stop != '>') fail_encoding(tokenizer, at);
    ids.push_back(id);
    at = static_cast<std::size_t>(stop + 1 - text.data());
  }
  return ids;
}

std::int32_t word_at(std::span<const std::byte> file, std::size_t index) {
  std::int32_t word = 0;
  std::memcpy(&word, file.data() + index * sizeof word, sizeof word);
  return word;
}

void check_llmc_header(std::span<const std::byte> file, const std::string& name) {
  if (file.size() < llmc_header_bytes) {
    fail(ExitCode::damaged_input, "{}: no llm.c tokenizer: it has {} bytes, its header alone should have {}", name,
         file.size(), llmc_header_bytes);
  }
  if (word_at(file, 0) != llmc_magic || word_at(file, 1) != llmc_version) {
    fail(ExitCode::damaged_input, "{}: no llm.c tokenizer of version 2: it begins with {} and {}; expected {} and {}",
         name, word_at(file, 0), word_at(file, 1), llmc_magic, llmc_version);
  }
}

/// The strings after the header: a byte with the length, then as many bytes.
std::vector<std::string> llmc_strings(std::span<const std::byte> body, std::int32_t count, const std::string& name) {
  std::vector<std::string> strings;
  std::size_t at = 0;
  while (std::cmp_less(strings.size(), count)) {
    const std::size_t length = at < body.size() ? std::to_integer<std::size_t>(body[at]) : 0;
    if (body.size() - at < length + 1) {
      fail(ExitCode::damaged_input, "{}: the header says {} tokens, but the file ends in token {}: it was cut short",
           name, count, strings.size());
    }
    strings.emplace_back(reinterpret_cast<const char*>(body.data() + at + 1), length);
    at += length + 1;
  }
  if (at != body.size()) {
    fail(ExitCode::damaged_input, "{}: {} more than the {} that the header says", name,
         counted(static_cast<std::int64_t>(body.size() - at), "byte"), counted(count, "token"));
  }
  return strings;
}

}  // namespace

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size());
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < size) {
      text += static_cast<char>(static_cast<unsigned char>(id));
    } else {
      text += in_brackets(id);
    }
  }
  return text;
}

std::vector<std::int32_t> NumberTokenizer::encode(std::string_view text) const {
  return ids_in_brackets(text, name());
}

std::string NumberTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += in_brackets(id);
  return text;
}

LlmcTokenizer::LlmcTokenizer(std::span<const std::byte> file, std::string name) : name_{std::move(name)} {
  check_llmc_header(file, name_);
  const std::int32_t count = word_at(file, 2);
  end_of_text_ = word_at(file, 3);
  if (count <= 0) fail(ExitCode::damaged_input, "{}: the header says {} tokens; it should be 1 or more", name_, count);
  if (end_of_text_ < 0 || end_of_text_ >= count) {
    fail(ExitCode::damaged_input, "{}: the header says that token {} ends a text; the tokens are 0 to {}", name_,
         end_of_text_, count - 1);
  }
  tokens_ = llmc_strings(file.subspan(llmc_header_bytes), count, name_);
}

std::vector<std::int32_t> LlmcTokenizer::encode(std::string_view text) const {
  return ids_in_brackets(text, name_);
}

std::string LlmcTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const bool known = id >= 0 && std::cmp_less(id, tokens_.size());
    text += known ? tokens_[static_cast<std::size_t>(id)] : in_brackets(id);
  }
  return text;
}

bool is_tokenizer_name(std::string_view name) {
  return name == "bytes" || name == "none" || name.ends_with(".bin");
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  if (name == "none") return std::make_unique<NumberTokenizer>();
  std::error_code ignored;
  if (!name.ends_with(".bin") || !std::filesystem::is_regular_file(name, ignored)) {
    fail(ExitCode::bad_input,
         "data.tokenizer: {}: {}; it takes bytes, none, or the path of an llm.c tokenizer file (*.bin)", name,
         name.ends_with(".bin") ? "no such file" : "no such tokenizer");
  }
  const MappedFile file{name};
  return std::make_unique<LlmcTokenizer>(file.bytes(), name);
}

std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view prompt, std::int32_t vocabulary,
                                        std::string_view key) {
  if (prompt.empty()) fail(ExitCode::bad_input, "{} is empty: give the text to start from", key);
  try {
    auto ids = tokenizer.encode(prompt);
    const auto beyond = std::find_if(ids.begin(), ids.end(), [&](std::int32_t id) { return id >= vocabulary; });
    if (beyond == ids.end()) return ids;
    fail(ExitCode::bad_input, "its token {} is outside the model's vocabulary: 0 to {}", *beyond, vocabulary - 1);
  } catch (const Error& error) {
    fail(error.code(), "{} `{}`: {}", key, prompt, error.what());
  }
}

}  // namespace penstock
