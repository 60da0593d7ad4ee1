// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokens.hpp"

namespace penstock {

/// Builds one stream of bytes from text files: documents in the order in which they are added, one zero byte between
/// two.
///
/// No text contains a zero byte, so a model can learn that it ends a document, and generation can stop at it. Each
/// document is strict UTF-8 (data/utf8). Empty ones leave no trace.
class TextBuilder {
 public:
  /// Memory for the whole text, taken once: growing would hold it twice for a moment.
  void reserve(std::int64_t bytes) { text_.reserve(static_cast<std::size_t>(bytes)); }

  /// Calls `append` with the text, to which it appends a document's bytes, and keeps them if they are text. Else
  /// forgets them, and returns the offset in the document of the first byte that is not.
  template <class Append>
  std::optional<std::int64_t> add(const std::string& name, Append&& append) {
    const std::size_t before = begin_document();
    std::forward<Append>(append)(text_);
    return end_document(name, before);
  }

  /// Bytes so far, with the separators.
  std::int64_t size() const { return static_cast<std::int64_t>(text_.size()); }
  std::string_view text() const { return text_; }

  /// The stream of what was added; the builder is empty after it.
  TokenSource finish();

 private:
  struct Document {
    std::string name;
    std::size_t begin;
  };
  std::size_t begin_document();
  std::optional<std::int64_t> end_document(const std::string& name, std::size_t before);

  std::string text_;
  std::vector<Document> documents_;
};

}  // namespace penstock
