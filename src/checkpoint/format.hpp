// SPDX-License-Identifier: Apache-2.0
//
// The layout of a checkpoint file (doc/files.md), shared by the writer and the reader.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/contents.hpp"
#include "trace/hdf5.hpp"

namespace penstock::checkpoint_format {

inline constexpr std::int64_t version = 1;

/// Where the checksums of a data set lie: "checksums/<name>".
std::string checksums_path(const std::string& dataset);

/// Creates the whole file, serially: attributes, every data set with its room, and those of the checksums. Nothing of
/// the metadata changes afterwards. Returns the file's size.
Bytes create(const std::string& path, const CheckpointContents& contents);

void write_header(hid_t file, const CheckpointHeader& header, const hdf5::Doing& doing);
/// Checks the version and the header's own checksum.
CheckpointHeader read_header(hid_t file, const hdf5::Doing& doing);

std::uint64_t checksum(const float* data, std::int64_t count);

/// Selects `count` elements from `first` on in row-major order and calls `transfer(memory space, file space, offset)`
/// for each part that is a rectangle of the data set: at most three (the end of a row, whole rows, the begin of a row).
void for_each_rectangle(
    const hdf5::Dataset& dataset, const CheckpointDataset& shape, std::int64_t first, std::int64_t count,
    const hdf5::Doing& doing,
    const std::function<void(const hdf5::Space& memory, const hdf5::Space& file, std::int64_t offset)>& transfer);

}  // namespace penstock::checkpoint_format
