// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include <xxhash.h>

#include "base/error.hpp"

namespace penstock::checkpoint_format {

static_assert(std::endian::native == std::endian::little, "checksums are of little-endian bytes");

namespace {

using hdf5::checked;
using hdf5::Doing;

/// Data sets from here on begin at a multiple of a page.
constexpr hsize_t align_from = hsize_t{256} << 10U;
constexpr hsize_t alignment = 4096;

std::uint64_t checksum_of(const CheckpointHeader& header) {
  const std::string text = fmt::format("{} {} {} {} {} {} {} {} {} {} {}", header.step, header.adam_steps,
                                       header.tokens, header.data_position, header.seed, header.model_hash,
                                       header.data_fingerprint, std::bit_cast<std::uint64_t>(header.wall_seconds),
                                       header.program_version.size(), header.program_version, header.deck);
  return XXH64(text.data(), text.size(), 0);
}

hdf5::PropertyList data_creation(const Doing& doing) {
  hdf5::PropertyList creation{checked(H5Pcreate(H5P_DATASET_CREATE), doing)};
  checked(H5Pset_layout(creation.get(), H5D_CONTIGUOUS), doing);
  checked(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY), doing);
  checked(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER), doing);
  checked(H5Pset_obj_track_times(creation.get(), false), doing);
  return creation;
}

hdf5::PropertyList link_creation(const Doing& doing) {
  hdf5::PropertyList creation{checked(H5Pcreate(H5P_LINK_CREATE), doing)};
  checked(H5Pset_create_intermediate_group(creation.get(), 1), doing);
  return creation;
}

struct Creation {
  hdf5::PropertyList link;
  hdf5::PropertyList data;
};

void create_dataset(hid_t file, const std::string& path, hid_t type, const std::vector<hsize_t>& shape,
                    const Creation& creation, const Doing& doing) {
  const hdf5::Space space{checked(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), doing)};
  const hdf5::Dataset dataset{checked(
      H5Dcreate2(file, path.c_str(), type, space.get(), creation.link.get(), creation.data.get(), H5P_DEFAULT), doing)};
}

std::vector<hsize_t> shape_of(const CheckpointDataset& dataset) {
  const auto columns = static_cast<hsize_t>(dataset.columns);
  if (dataset.one_dimensional) return {columns};
  return {static_cast<hsize_t>(dataset.rows), columns};
}

void create_datasets(hid_t file, const std::vector<CheckpointDataset>& datasets, const Doing& doing) {
  const Creation creation{link_creation(doing), data_creation(doing)};
  for (const auto& dataset : datasets) {
    create_dataset(file, dataset.name, H5T_IEEE_F32LE, shape_of(dataset), creation, doing);
    create_dataset(file, checksums_path(dataset.name), H5T_STD_U64LE, {static_cast<hsize_t>(dataset.chunks())},
                   creation, doing);
  }
}

}  // namespace

std::string checksums_path(const std::string& dataset) {
  return "checksums/" + dataset;
}

Bytes create(const std::string& path, const CheckpointContents& contents) {
  const Doing doing{ExitCode::cannot_write, "creating the checkpoint " + path};
  const auto access = hdf5::file_access(H5F_LIBVER_V18, doing);
  checked(H5Pset_alignment(access.get(), align_from, alignment), doing);
  {
    const auto file = hdf5::create_file(path, access, doing);
    write_header(file.get(), contents.header, doing);
    create_datasets(file.get(), contents.datasets, doing);
    checked(H5Fflush(file.get(), H5F_SCOPE_LOCAL), doing);
  }
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) fail(doing.code, "{}: {}", doing.what, error.message());
  return {static_cast<std::int64_t>(bytes)};
}

void write_header(hid_t file, const CheckpointHeader& header, const Doing& doing) {
  hdf5::write_attribute(file, "version", version, doing);
  hdf5::write_attribute(file, "step", header.step, doing);
  hdf5::write_attribute(file, "tokens", header.tokens, doing);
  hdf5::write_attribute(file, "adam_steps", header.adam_steps, doing);
  hdf5::write_attribute(file, "data_position", header.data_position, doing);
  hdf5::write_attribute(file, "seed", header.seed, doing);
  hdf5::write_attribute(file, "data_fingerprint", header.data_fingerprint, doing);
  hdf5::write_attribute(file, "program_version", header.program_version, doing);
  hdf5::write_attribute(file, "deck", header.deck, doing);
  hdf5::write_attribute(file, "model_hash", header.model_hash, doing);
  hdf5::write_attribute(file, "wall_seconds", header.wall_seconds, doing);
  hdf5::write_attribute(file, "header_checksum", checksum_of(header), doing);
}

CheckpointHeader read_header(hid_t file, const Doing& doing) {
  const auto found = hdf5::read_signed_attribute(file, "version", doing);
  if (found != version)
    fail(doing.code, "{}: the format has version {}; this program reads version {}", doing.what, found, version);
  CheckpointHeader header;
  header.step = hdf5::read_signed_attribute(file, "step", doing);
  header.tokens = hdf5::read_signed_attribute(file, "tokens", doing);
  header.adam_steps = hdf5::read_signed_attribute(file, "adam_steps", doing);
  header.data_position = hdf5::read_signed_attribute(file, "data_position", doing);
  header.seed = hdf5::read_unsigned_attribute(file, "seed", doing);
  header.data_fingerprint = hdf5::read_unsigned_attribute(file, "data_fingerprint", doing);
  header.program_version = hdf5::read_text_attribute(file, "program_version", doing);
  header.deck = hdf5::read_text_attribute(file, "deck", doing);
  header.model_hash = hdf5::read_unsigned_attribute(file, "model_hash", doing);
  header.wall_seconds = hdf5::read_real_attribute(file, "wall_seconds", doing);
  if (hdf5::read_unsigned_attribute(file, "header_checksum", doing) != checksum_of(header))
    fail(doing.code, "{}: the attributes do not match their checksum: the file is damaged", doing.what);
  return header;
}

std::uint64_t checksum(const float* data, std::int64_t count) {
  return XXH64(data, static_cast<std::size_t>(count) * sizeof(float), 0);
}

namespace {

/// Rows [row, row + rows), columns [column, column + columns).
struct Rectangle {
  std::int64_t row, column, rows, columns;
  std::int64_t size() const { return rows * columns; }
};

/// The rectangles that make up a range of elements, in order.
std::vector<Rectangle> rectangles_of(std::int64_t columns, std::int64_t first, std::int64_t count) {
  std::vector<Rectangle> result;
  while (count > 0) {
    const std::int64_t row = first / columns;
    const std::int64_t column = first % columns;
    const bool is_whole_rows = column == 0 && count >= columns;
    const Rectangle next = is_whole_rows ? Rectangle{row, 0, count / columns, columns}
                                         : Rectangle{row, column, 1, std::min(count, columns - column)};
    result.push_back(next);
    first += next.size();
    count -= next.size();
  }
  return result;
}

void select(const hdf5::Space& space, const Rectangle& part, bool one_dimensional, const Doing& doing) {
  const std::array<hsize_t, 2> start{static_cast<hsize_t>(part.row), static_cast<hsize_t>(part.column)};
  const std::array<hsize_t, 2> count{static_cast<hsize_t>(part.rows), static_cast<hsize_t>(part.columns)};
  const std::size_t skip = one_dimensional ? 1 : 0;
  checked(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data() + skip, nullptr, count.data() + skip, nullptr),
          doing);
}

}  // namespace

void for_each_rectangle(
    const hdf5::Dataset& dataset, const CheckpointDataset& shape, std::int64_t first, std::int64_t count,
    const Doing& doing,
    const std::function<void(const hdf5::Space& memory, const hdf5::Space& file, std::int64_t offset)>& transfer) {
  const hdf5::Space file{checked(H5Dget_space(dataset.get()), doing)};
  std::int64_t offset = 0;
  for (const auto& part : rectangles_of(shape.columns, first, count)) {
    select(file, part, shape.one_dimensional, doing);
    const auto elements = static_cast<hsize_t>(part.size());
    const hdf5::Space memory{checked(H5Screate_simple(1, &elements, nullptr), doing)};
    transfer(memory, file, offset);
    offset += part.size();
  }
}

}  // namespace penstock::checkpoint_format
