// SPDX-License-Identifier: Apache-2.0
#include "data/text.hpp"

#include <memory>
#include <span>

#include "data/utf8.hpp"

namespace penstock {

/// Returns the size of the text before the document and its separator.
std::size_t TextBuilder::begin_document() {
  const std::size_t before = text_.size();
  if (!documents_.empty()) text_.push_back('\0');
  return before;
}

std::optional<std::int64_t> TextBuilder::end_document(const std::string& name, std::size_t before) {
  const std::size_t begin = before + (documents_.empty() ? 0 : 1);
  const auto bad = first_non_text(std::string_view{text_}.substr(begin));
  if (bad || text_.size() == begin) {
    text_.resize(before);
    return bad;
  }
  documents_.push_back({name, begin});
  return std::nullopt;
}

TokenSource TextBuilder::finish() {
  const auto owner = std::make_shared<const std::string>(std::move(text_));
  const auto bytes = std::as_bytes(std::span{owner->data(), owner->size()});
  std::vector<TokenArray> arrays;
  for (std::size_t i = 0; i < documents_.size(); ++i) {
    // A document's separator is its last byte.
    const std::size_t end = i + 1 < documents_.size() ? documents_[i + 1].begin : bytes.size();
    arrays.push_back(
        {documents_[i].name, TokenType::uint8, bytes.subspan(documents_[i].begin, end - documents_[i].begin)});
  }
  text_.clear();
  documents_.clear();
  return {std::move(arrays), owner};
}

}  // namespace penstock
