// SPDX-License-Identifier: Apache-2.0
#include "data/megatron.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/error.hpp"

namespace penstock {
namespace {

constexpr std::string_view magic{"MMIDIDX\0\0", 9};
constexpr std::size_t index_header_bytes = 34;

template <class Number>
Number number_at(std::span<const std::byte> bytes, std::size_t offset) {
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

/// An array inside the index, at any alignment.
template <class Number>
class IndexArray {
 public:
  IndexArray(std::span<const std::byte> idx, std::int64_t offset, std::int64_t count)
      : bytes_{idx.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count) * sizeof(Number))} {}
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size() / sizeof(Number)); }
  Number operator[](std::int64_t i) const {
    return number_at<Number>(bytes_, static_cast<std::size_t>(i) * sizeof(Number));
  }

 private:
  std::span<const std::byte> bytes_;
};

struct Header {
  TokenType type;
  std::int64_t sequences;
  std::int64_t borders;  ///< documents + 1
};

TokenType type_of(std::uint8_t code, const std::string& name) {
  switch (code) {
    case 1:
      return TokenType::uint8;
    case 2:
      return TokenType::int8;
    case 3:
      return TokenType::int16;
    case 4:
      return TokenType::int32;
    case 5:
      return TokenType::int64;
    case 8:
      return TokenType::uint16;
    case 6:
    case 7:
      fail(ExitCode::damaged_input, "{}: the data are float{}, token ids are integers", name, code == 6 ? 64 : 32);
    default:
      fail(ExitCode::damaged_input, "{}: type code {}; Megatron's are 1 to 8", name, code);
  }
}

void check_start(std::span<const std::byte> idx, const std::string& name) {
  if (idx.size() < index_header_bytes) {
    fail(ExitCode::damaged_input, "{}: no Megatron index: it has {} bytes, its header alone should have {}", name,
         idx.size(), index_header_bytes);
  }
  if (std::memcmp(idx.data(), magic.data(), magic.size()) != 0)
    fail(ExitCode::damaged_input, "{}: no Megatron index: it does not begin with MMIDIDX and two zero bytes", name);
  if (const auto version = number_at<std::uint64_t>(idx, 9); version != 1)
    fail(ExitCode::damaged_input, "{}: version {} of Megatron's index; this program reads version 1", name, version);
}

/// The header, once the arrays that it announces are known to fill the file; each may be followed by a byte per
/// sequence, the mode.
Header header_of(std::span<const std::byte> idx, const std::string& name) {
  check_start(idx, name);
  const TokenType type = type_of(number_at<std::uint8_t>(idx, 17), name);
  const auto sequences = number_at<std::uint64_t>(idx, 18);
  const auto borders = number_at<std::uint64_t>(idx, 26);
  const std::uint64_t body = idx.size() - index_header_bytes;
  // Bounded before they are multiplied: nothing overflows below.
  const bool possible = sequences <= body / 12 && borders <= body / 8;
  const std::uint64_t needed = possible ? 12 * sequences + 8 * borders : 0;
  if (!possible || (body != needed && body != needed + sequences)) {
    fail(ExitCode::damaged_input,
         "{}: the header says {} sequences and {} document borders, 12 and 8 bytes each, but {} bytes follow it; the "
         "file was "
         "cut short or is damaged",
         name, sequences, borders, body);
  }
  return {type, static_cast<std::int64_t>(sequences), static_cast<std::int64_t>(borders)};
}

/// Checks lengths and offsets against each other; returns the sum of the lengths, in bytes of the .bin.
std::int64_t check_sequences(const Header& header, const IndexArray<std::int32_t>& lengths,
                             const IndexArray<std::int64_t>& offsets, const std::string& name) {
  constexpr std::int64_t most =
      std::numeric_limits<std::int64_t>::max() - (std::int64_t{1} << 34);  // a sequence: 2^31 x 8
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < header.sequences; ++i) {
    if (lengths[i] < 0) fail(ExitCode::damaged_input, "{}: sequence {} has the length {}", name, i, lengths[i]);
    if (offsets[i] != end) {
      fail(ExitCode::damaged_input,
           "{}: sequence {} should begin at byte {}, where the one before ends, but the index says {}", name, i, end,
           offsets[i]);
    }
    end += lengths[i] * bytes_of(header.type);
    if (end > most) fail(ExitCode::damaged_input, "{}: the lengths up to sequence {} exceed any file", name, i);
  }
  return end;
}

void check_documents(const Header& header, const IndexArray<std::int64_t>& borders, const std::string& name) {
  if (borders.size() == 0 || borders[borders.size() - 1] != header.sequences) {
    fail(ExitCode::damaged_input, "{}: the last document should end at sequence {}, but the index says {}", name,
         header.sequences, borders.size() == 0 ? std::string{"nothing"} : std::to_string(borders[borders.size() - 1]));
  }
  std::int64_t before = 0;
  for (std::int64_t i = 0; i < borders.size(); ++i) {
    if (borders[i] < before)
      fail(ExitCode::damaged_input, "{}: document border {} is sequence {}, after {}", name, i, borders[i], before);
    before = borders[i];
  }
}

/// A mode byte per sequence says text (0) or else; only text is read.
void check_modes(std::span<const std::byte> modes, const std::string& name) {
  const auto other = std::find_if(modes.begin(), modes.end(), [](std::byte mode) { return mode != std::byte{0}; });
  if (other == modes.end()) return;
  fail(ExitCode::damaged_input, "{}: sequence {} has mode {}: a multimodal data set; this program reads text (mode 0)",
       name, other - modes.begin(), std::to_integer<int>(*other));
}

}  // namespace

MegatronData parse_megatron(std::span<const std::byte> idx, std::span<const std::byte> bin, const std::string& prefix) {
  const std::string name = prefix + ".idx";
  const Header header = header_of(idx, name);
  const auto start = static_cast<std::int64_t>(index_header_bytes);
  const IndexArray<std::int32_t> lengths{idx, start, header.sequences};
  const IndexArray<std::int64_t> offsets{idx, start + 4 * header.sequences, header.sequences};
  const IndexArray<std::int64_t> borders{idx, start + 12 * header.sequences, header.borders};
  const std::int64_t bytes = check_sequences(header, lengths, offsets, name);
  check_documents(header, borders, name);
  check_modes(idx.subspan(index_header_bytes + static_cast<std::size_t>(12 * header.sequences + 8 * header.borders)),
              name);
  if (bytes != static_cast<std::int64_t>(bin.size())) {
    fail(ExitCode::damaged_input, "{0}.bin: {1} bytes, but {0}.idx lists {2} {3} tokens, {4} bytes; {5}", prefix,
         bin.size(), bytes / bytes_of(header.type), name_of(header.type), bytes,
         static_cast<std::int64_t>(bin.size()) < bytes ? "the file was cut short: copy or write it again"
                                                       : "the two files do not belong together");
  }
  return {header.sequences, header.borders - 1, {prefix + ".bin", header.type, bin}};
}

}  // namespace penstock
