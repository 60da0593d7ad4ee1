// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/files.hpp"

namespace penstock {

/// What the paths of a list lead to: all of them to the same.
enum class DataKind : std::uint8_t {
  text,     ///< files and folders of UTF-8 text
  llmc,     ///< `*.bin`: llm.c token shards
  megatron  ///< a prefix P for which P.idx and P.bin exist
};

std::string_view name_of(DataKind kind);

struct LocatedFile {
  FileRecord record;   ///< of a Megatron prefix: of its .bin, with the prefix as the path
  bool named = false;  ///< by the list itself, not found by a pattern or in a folder
};

struct Located {
  DataKind kind = DataKind::text;
  std::vector<LocatedFile> files;  ///< in the order in which they are read
  std::vector<std::string> notes;
};

/// Finds the files that a deck's list of paths stands for, relative to the working directory.
///
/// A path is taken as it is if it exists, else as a pattern (`*`, `?`, `[...]`). Order: that of the list; within a
/// pattern or a folder by the bytes of the path. Folders are walked to the bottom; hidden files and folders (`.git`),
/// what is no regular file, and symbolic links to folders are passed over; links to files are followed. A file that
/// several paths lead to is read once.
/// @param key  the deck's key, for errors: `data.train`
/// @throws Error bad_input: an empty list, a path that leads nowhere (with what lies near), kinds mixed.
Located locate(const std::vector<std::string>& paths, const std::string& key);

}  // namespace penstock
