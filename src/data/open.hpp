// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "data/files.hpp"
#include "data/locate.hpp"
#include "data/tokens.hpp"

namespace penstock {

struct OpenOptions {
  std::string key = "data.train";           ///< the deck's key, for errors and notes
  Bytes text_limit{std::int64_t{8} << 30};  ///< text is read into memory, by each rank: more is refused
  std::string tokenizer = "bytes";          ///< the deck's; any other goes with token files alone
};

/// What was opened: for the user, and to tell later whether the data are still the same.
struct DataSummary {
  std::string key;
  DataKind kind = DataKind::text;
  std::vector<FileRecord> files;  ///< that have tokens, in the order in which they are read
  std::int64_t tokens = 0;
  std::uint64_t fingerprint = 0;      ///< of names, sizes and content (of binary files header, first and last 64 KiB)
  std::vector<std::string> notes;     ///< files passed over that need no attention (empty, repeated)
  std::vector<std::string> warnings;  ///< files passed over that may be missed (not UTF-8)
  Bytes bytes() const;
};

struct OpenedData {
  std::shared_ptr<const TokenSource> tokens;
  DataSummary summary;
};

/// Opens the data that a deck's list of paths names (see `locate`): text through the byte tokenizer, read into memory;
/// llm.c shards and Megatron data sets mapped.
///
/// A file found in a folder or by a pattern that is not UTF-8 text is passed over with a warning; one that the list
/// names is an error. Prints nothing: the first rank of a run shows the summary, the others stay quiet.
/// @throws Error bad_input for paths, for text where the tokenizer is another, and when there is no token at all;
/// damaged_input for what the files hold.
OpenedData open_data(const std::vector<std::string>& paths, const OpenOptions& options);

/// `data.train: text, 57 files, 1.3 MiB, 1363148 tokens`
std::string description_of(const DataSummary& summary);

/// Files that are in both: a model is then validated on what it was trained on.
std::vector<std::string> shared_files(const DataSummary& one, const DataSummary& other);

}  // namespace penstock
