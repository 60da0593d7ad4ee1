// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Text to token ids and back.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// As a deck names it: `bytes`, `none`, or the path of a tokenizer file.
  virtual std::string name() const = 0;

  /// Whether any text can be encoded; else only ids in angle brackets.
  virtual bool encodes_text() const { return false; }

  /// Number of ids, where it is known.
  virtual std::optional<std::int32_t> vocabulary() const = 0;

  /// The id that stands between documents: a text generated up to it is complete.
  virtual std::optional<std::int32_t> end_of_text() const = 0;

  /// @throws Error bad_input where the text has no ids here.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  /// The bytes of the ids; `<id>`, the number in angle brackets, for an id without any. One token's bytes need not be
  /// whole characters of UTF-8.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
};

/// One token per byte; 0 ends a document.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::int32_t size = 256;
  std::string name() const override { return "bytes"; }
  bool encodes_text() const override { return true; }
  std::optional<std::int32_t> vocabulary() const override { return size; }
  std::optional<std::int32_t> end_of_text() const override { return 0; }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
};

/// For tokens of which nothing is known. Texts are ids in angle brackets: `<50256><464>`.
class NumberTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "none"; }
  std::optional<std::int32_t> vocabulary() const override { return std::nullopt; }
  std::optional<std::int32_t> end_of_text() const override { return std::nullopt; }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
};

/// llm.c's tokenizer file (magic 20240328, version 2): the bytes of every token, without the merges that encoding would
/// need. Encodes ids in angle brackets, like NumberTokenizer.
class LlmcTokenizer final : public Tokenizer {
 public:
  /// @throws Error damaged_input naming the file, what was found and what was expected.
  LlmcTokenizer(std::span<const std::byte> file, std::string name);
  std::string name() const override { return name_; }
  std::optional<std::int32_t> vocabulary() const override { return static_cast<std::int32_t>(tokens_.size()); }
  std::optional<std::int32_t> end_of_text() const override { return end_of_text_; }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;

 private:
  std::string name_;
  std::int32_t end_of_text_;
  std::vector<std::string> tokens_;
};

/// The tokenizer that a deck names: `bytes`, `none`, or the path of an llm.c tokenizer file (`*.bin`).
/// @throws Error bad_input for another name or a missing file, damaged_input for a file that is none.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

/// Whether `name` has the form of a tokenizer's name: `bytes`, `none`, `*.bin`. Looks at no file.
bool is_tokenizer_name(std::string_view name);

/// The tokens of a text to continue, at least one, each below `vocabulary`, the model's. `key` is where the user wrote
/// the text, for errors. @throws Error bad_input
std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view prompt, std::int32_t vocabulary,
                                        std::string_view key);

}  // namespace penstock
