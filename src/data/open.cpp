// SPDX-License-Identifier: Apache-2.0
#include "data/open.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "data/llmc.hpp"
#include "data/megatron.hpp"
#include "data/text.hpp"

namespace penstock {
namespace {

std::string counted_files(std::size_t count) {
  return counted(static_cast<std::int64_t>(count), "file");
}

/// Files of one kind that were passed over: how many, and the first.
struct PassedOver {
  std::size_t count = 0;
  std::string first;
  /// `1 file is`, `2 files are`
  std::string subject() const { return counted_files(count) + (count == 1 ? " is" : " are"); }
  void add(const std::string& place) {
    if (count++ == 0) first = place;
  }
};

/// Reads the text files of a list into one stream.
class TextReader {
 public:
  TextReader(const OpenOptions& options, DataSummary& summary) : options_{options}, summary_{summary} {}

  TokenSource read(const std::vector<LocatedFile>& files) {
    check_limit(files);
    for (const LocatedFile& file : files) read_file(file);
    report();
    return builder_.finish();
  }

 private:
  void check_limit(const std::vector<LocatedFile>& files) {
    Bytes total{0};
    for (const LocatedFile& file : files) total += file.record.bytes;
    if (total > options_.text_limit) {
      const auto largest = std::max_element(files.begin(), files.end(), [](const LocatedFile& a, const LocatedFile& b) {
        return a.record.bytes < b.record.bytes;
      });
      fail(ExitCode::bad_input,
           "{}: {} of text in {} (the largest: {}, {}); text is read into memory and may have at most {}: name fewer "
           "files, or "
           "tokens in llm.c or Megatron files, which are mapped",
           options_.key, to_text(total), counted_files(files.size()), largest->record.path,
           to_text(largest->record.bytes), to_text(options_.text_limit));
    }
    builder_.reserve(total.value + static_cast<std::int64_t>(files.size()));
  }

  void read_file(const LocatedFile& file) {
    const std::string& path = file.record.path;
    const std::int64_t before = builder_.size();
    const Bytes left{options_.text_limit.value - before};
    const auto bad = builder_.add(path, [&](std::string& text) { append_file(path, left, text); });
    if (bad && file.named) fail_encoding(path, *bad);
    if (bad) {
      not_text_.add(fmt::format("{} (at byte {})", path, *bad));
    } else if (builder_.size() == before) {
      empty_.add(path);
    } else {
      summary_.files.push_back(file.record);
    }
  }

  [[noreturn]] static void fail_encoding(const std::string& path, std::int64_t offset) {
    fail(ExitCode::damaged_input,
         "{}: not UTF-8 text: the byte at offset {} is zero or belongs to no character; convert it, "
         "for instance with iconv, or leave it out",
         path, offset);
  }

  void report() {
    if (not_text_.count > 0) {
      summary_.warnings.push_back(fmt::format("{}: {} not UTF-8 text and left out, the first: {}", options_.key,
                                              not_text_.subject(), not_text_.first));
    }
    if (empty_.count > 0) {
      summary_.notes.push_back(
          fmt::format("{}: {} empty, the first: {}", options_.key, empty_.subject(), empty_.first));
    }
  }

  const OpenOptions& options_;
  DataSummary& summary_;
  TextBuilder builder_;
  PassedOver not_text_;
  PassedOver empty_;
};

using Maps = std::vector<std::unique_ptr<const MappedFile>>;

std::span<const std::byte> map(const std::string& path, Maps& maps) {
  return maps.emplace_back(std::make_unique<const MappedFile>(path))->bytes();
}

TokenSource map_tokens(const Located& located, DataSummary& summary) {
  auto maps = std::make_shared<Maps>();
  std::vector<TokenArray> arrays;
  for (const LocatedFile& file : located.files) {
    const std::string& path = file.record.path;
    arrays.push_back(located.kind == DataKind::llmc
                         ? parse_llmc(map(path, *maps), path)
                         : parse_megatron(map(path + ".idx", *maps), map(path + ".bin", *maps), path).tokens);
    summary.files.push_back(file.record);
  }
  return {std::move(arrays), std::move(maps)};
}

/// Text beside a tokenizer that decodes only.
[[noreturn]] void fail_for_text(const Located& located, const OpenOptions& options) {
  fail(
      ExitCode::bad_input,
      "{}: {} is text, and data.tokenizer {} cannot turn text into tokens; name token files instead (llm.c's *.bin, or "
      "Megatron prefixes), or set data.tokenizer: bytes",
      options.key, located.files.empty() ? "it" : located.files.front().record.path, options.tokenizer);
}

/// Names without folders: data that were only moved are the same.
std::uint64_t fingerprint_of(const DataSummary& summary, const TokenSource& tokens) {
  Fingerprint fingerprint;
  fingerprint.add(name_of(summary.kind));
  for (const TokenArray& array : tokens.arrays()) {
    fingerprint.add(std::filesystem::path{array.name}.filename().string());
    fingerprint.add(name_of(array.type));
    fingerprint.add(array.size());
    if (summary.kind == DataKind::text) {
      fingerprint.add(array.bytes);
    } else {
      fingerprint.add_ends(array.bytes);
    }
  }
  return fingerprint.value();
}

}  // namespace

Bytes DataSummary::bytes() const {
  Bytes total{0};
  for (const FileRecord& file : files) total += file.bytes;
  return total;
}

OpenedData open_data(const std::vector<std::string>& paths, const OpenOptions& options) {
  const Located located = locate(paths, options.key);
  if (located.kind == DataKind::text && options.tokenizer != "bytes") fail_for_text(located, options);
  DataSummary summary{.key = options.key, .kind = located.kind, .notes = located.notes};
  TokenSource tokens =
      located.kind == DataKind::text ? TextReader{options, summary}.read(located.files) : map_tokens(located, summary);
  if (tokens.size() == 0) {
    fail(ExitCode::bad_input, "{}: no token in {}{}{}", options.key, counted_files(located.files.size()),
         summary.warnings.empty() ? "" : "; " + summary.warnings.front(),
         located.kind == DataKind::text ? "; folders are searched for UTF-8 text only: name token files as folder/*.bin"
                                        : "");
  }
  summary.tokens = tokens.size();
  summary.fingerprint = fingerprint_of(summary, tokens);
  return {std::make_shared<const TokenSource>(std::move(tokens)), std::move(summary)};
}

std::string description_of(const DataSummary& summary) {
  return fmt::format("{}: {}, {}, {}, {}", summary.key, name_of(summary.kind), counted_files(summary.files.size()),
                     to_text(summary.bytes()), counted(summary.tokens, "token"));
}

std::vector<std::string> shared_files(const DataSummary& one, const DataSummary& other) {
  std::set<FileIdentity> identities;
  for (const FileRecord& file : one.files) identities.insert(file.identity);
  std::vector<std::string> shared;
  for (const FileRecord& file : other.files)
    if (identities.contains(file.identity)) shared.push_back(file.path);
  return shared;
}

}  // namespace penstock
