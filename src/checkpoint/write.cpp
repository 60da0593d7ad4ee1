// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/write.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "checkpoint/coverage.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/format.hpp"
#include "comm/agreement.hpp"

namespace penstock {
namespace {

namespace format = checkpoint_format;
using hdf5::checked;
using hdf5::Doing;

Bytes data_bytes(const std::vector<CheckpointDataset>& datasets) {
  std::int64_t elements = 0;
  for (const auto& set : datasets) elements += set.size();
  return {elements * static_cast<std::int64_t>(sizeof(float))};
}

/// Creates the file with all of its metadata, and room for its data, so that a full disk is found before any data is
/// written. Room is tried for first, with an empty file: HDF5 cannot close a file whose metadata meet a full disk.
void create_file(const std::string& partial, const CheckpointContents& contents) {
  constexpr std::int64_t metadata_per_dataset = 4096;  // a bound; about 1 KiB in fact
  const Bytes metadata{metadata_per_dataset * static_cast<std::int64_t>(contents.datasets.size() + 16)};
  if (!std::ofstream{partial, std::ios::binary | std::ios::trunc})
    throw Error{ExitCode::cannot_write, system_error_text("creating the checkpoint " + partial, errno)};
  reserve(partial, data_bytes(contents.datasets) + metadata);
  reserve(partial, format::create(partial, contents));
}

hdf5::File open_for_writing(const Communicator& group, const std::string& path, const Doing& doing) {
  const auto access = hdf5::file_access(H5F_LIBVER_V18, doing);
  checked(H5Pset_sieve_buf_size(access.get(), 0), doing);  // a sieve would read around small writes
  if (group.size() > 1) {
    MPI_Comm communicator = MPI_COMM_NULL;
    void* native = group.native();
    std::memcpy(&communicator, &native, sizeof(MPI_Comm));  // NOLINT(bugprone-sizeof-expression): a pointer
    checked(H5Pset_fapl_mpio(access.get(), communicator, MPI_INFO_NULL), doing);
  }
  return hdf5::File{checked(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get()), doing)};
}

bool is_not_finite(float value) {
  return (std::bit_cast<std::uint32_t>(value) & 0x7F800000U) == 0x7F800000U;
}

bool is_denormal(float value) {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
  return magnitude != 0 && magnitude < 0x00800000U;
}

void refuse_values_not_finite(const CheckpointDataset& set, std::int64_t first, const float* data, std::int64_t count) {
  if (std::count_if(data, data + count, is_not_finite) == 0) return;
  const auto at = std::find_if(data, data + count, is_not_finite) - data;
  fail(ExitCode::not_finite, "the checkpoint is not written: {} is {} at element {}; the checkpoints before stay",
       set.name, data[at], first + at);
}

/// Writes pieces of one rank: independent of the other ranks from here on.
class PieceWriter {
 public:
  PieceWriter(const hdf5::File& file, const std::vector<CheckpointDataset>& datasets, const Doing& doing,
              AfterPart after_part)
      : file_{file}, datasets_{datasets}, doing_{doing}, after_part_{std::move(after_part)} {}

  void write(const SavedPiece& piece) {
    const auto& set = datasets_[static_cast<std::size_t>(piece.dataset)];
    const auto dataset = open(set.name);
    std::vector<std::uint64_t> checksums;
    std::int64_t denormals = 0;
    for (std::int64_t at = 0; at < piece.count; at += chunk_elements) {
      const std::int64_t count = std::min(chunk_elements, piece.count - at);
      refuse_values_not_finite(set, piece.first + at, piece.data + at, count);
      denormals += std::count_if(piece.data + at, piece.data + at + count, is_denormal);
      checksums.push_back(format::checksum(piece.data + at, count));
      write_chunk(dataset, set, piece.first + at, count, piece.data + at);
      after_part_({count * static_cast<std::int64_t>(sizeof(float))});
    }
    write_checksums(set, piece.first / chunk_elements, checksums);
    warn_of_denormals(set, denormals);
  }

 private:
  hdf5::Dataset open(const std::string& path) const {
    return hdf5::Dataset{checked(H5Dopen2(file_.get(), path.c_str(), H5P_DEFAULT), doing_)};
  }

  void write_chunk(const hdf5::Dataset& dataset, const CheckpointDataset& set, std::int64_t first, std::int64_t count,
                   const float* data) const {
    format::for_each_rectangle(
        dataset, set, first, count, doing_, [&](const auto& memory, const auto& file, auto offset) {
          checked(H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, memory.get(), file.get(), H5P_DEFAULT, data + offset),
                  doing_);
        });
  }

  void write_checksums(const CheckpointDataset& set, std::int64_t first,
                       const std::vector<std::uint64_t>& values) const {
    const auto dataset = open(format::checksums_path(set.name));
    const CheckpointDataset shape{{}, 1, set.chunks(), true};
    const auto count = static_cast<std::int64_t>(values.size());
    format::for_each_rectangle(
        dataset, shape, first, count, doing_, [&](const auto& memory, const auto& file, auto offset) {
          checked(
              H5Dwrite(dataset.get(), H5T_NATIVE_UINT64, memory.get(), file.get(), H5P_DEFAULT, values.data() + offset),
              doing_);
        });
  }

  /// Moments decay to denormals by themselves; in a parameter they have been seen to come from memory that was
  /// overwritten.
  void warn_of_denormals(const CheckpointDataset& set, std::int64_t count) const {
    if (count > 0 && set.name.starts_with("parameters/"))
      log::warning("{} holds {} denormal values (below 1.2e-38); they are saved as they are", set.name, count);
  }

  const hdf5::File& file_;
  const std::vector<CheckpointDataset>& datasets_;
  const Doing& doing_;
  AfterPart after_part_;
};

/// Calls `after_part`, and lets the system begin to write to the disk what it holds in memory: else all of it would be
/// left for the end, and each part would be copied to memory that nobody has touched yet, which takes several times as
/// long as to what the parts before have left.
class PartsToDisk {
 public:
  PartsToDisk(const std::string& path, const AfterPart& after_part) : path_{path}, after_part_{after_part} {}

  void operator()(Bytes part) {
    held_ += part;
    if (held_.value >= most_held) {
      begin_to_synchronize(path_);
      held_ = Bytes{0};
    }
    if (after_part_) after_part_(part);
  }

 private:
  static constexpr std::int64_t most_held = std::int64_t{16} << 20;

  const std::string& path_;
  const AfterPart& after_part_;
  Bytes held_{0};
};

void write_data(const Communicator& group, const std::string& partial, const CheckpointContents& contents,
                const std::vector<SavedPiece>& pieces, const AfterPart& after_part, const BeforeRename& before_rename) {
  const Doing doing{ExitCode::cannot_write, "writing the checkpoint " + partial};
  hdf5::File file;
  jointly(group, [&] { file = open_for_writing(group, partial, doing); });
  jointly(group, [&] {
    PieceWriter writer{file, contents.datasets, doing, PartsToDisk{partial, after_part}};
    for (const auto& piece : pieces) writer.write(piece);
  });
  jointly(group, [&] { hdf5::close_file(std::move(file), doing); });
  jointly(group, [&] {
    synchronize(partial);  // each rank for its node
    if (before_rename) before_rename(contents.header.step);
  });
}

void remove_quietly(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

}  // namespace

CheckpointReport write_checkpoint(const Communicator& group, const CheckpointFolder& folder,
                                  const CheckpointContents& contents, const std::vector<SavedPiece>& pieces,
                                  const AfterPart& after_part, const BeforeRename& before_rename) {
  const Seconds begin = now();
  const bool is_first = group.rank() == 0;
  const std::string path = folder.path + "/" + checkpoint_name(contents.header.step);
  const std::string partial = path + ".partial";
  check_coverage(group, contents.datasets, pieces);
  jointly(group, [&] {
    if (is_first) make_folder(folder.path);
  });
  try {
    jointly(group, [&] {
      if (is_first) create_file(partial, contents);
    });
    write_data(group, partial, contents, pieces, after_part, before_rename);
    jointly(group, [&] {
      if (is_first) publish(partial, path);
    });
  } catch (...) {
    if (is_first) remove_quietly(partial);
    throw;
  }
  if (is_first) prune(folder.path, contents.header.step, folder.keep);
  return {path, data_bytes(contents.datasets), now() - begin};
}

}  // namespace penstock
