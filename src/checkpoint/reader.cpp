// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/reader.hpp"

#include <algorithm>
#include <exception>

#include "base/error.hpp"
#include "base/log.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/format.hpp"
#include "comm/agreement.hpp"

namespace penstock {
namespace {

namespace format = checkpoint_format;
using hdf5::checked;
using hdf5::Doing;

constexpr hdf5::FileKind checkpoint_kind{"a checkpoint", "checkpoints/step_*.h5 of a run's folder", "parameters"};

/// A damaged size must not become an allocation: no model's parameter has this many elements on one dimension.
constexpr hsize_t largest_extent = hsize_t{1} << 40U;

std::vector<hsize_t> extent_of(const hdf5::Dataset& dataset, const Doing& doing) {
  const hdf5::Space space{checked(H5Dget_space(dataset.get()), doing)};
  const int dimensions = checked(H5Sget_simple_extent_ndims(space.get()), doing);
  std::vector<hsize_t> extent(static_cast<std::size_t>(dimensions));
  checked(H5Sget_simple_extent_dims(space.get(), extent.data(), nullptr), doing);
  return extent;
}

std::vector<hsize_t> extent_of(const CheckpointDataset& set) {
  const auto columns = static_cast<hsize_t>(set.columns);
  if (set.one_dimensional) return {columns};
  return {static_cast<hsize_t>(set.rows), columns};
}

/// Opens a data set that must have this type; a missing one is named as such.
hdf5::Dataset open_dataset(hid_t file, const std::string& path, hid_t type, const Doing& doing) {
  hid_t id = H5I_INVALID_HID;
  H5E_BEGIN_TRY {
    id = H5Dopen2(file, path.c_str(), H5P_DEFAULT);
  }
  H5E_END_TRY
  if (id < 0) fail(doing.code, "{}: the data set /{} is missing or damaged", doing.what, path);
  hdf5::Dataset dataset{id};
  const hdf5::Type found{checked(H5Dget_type(id), doing)};
  if (checked(H5Tequal(found.get(), type), doing) == 0)
    fail(doing.code, "{}: the data set /{} has an unexpected type of element", doing.what, path);
  return dataset;
}

/// One data set of an open file, with its checksums.
class VerifiedDataset {
 public:
  VerifiedDataset(hid_t file, const CheckpointDataset& shape, const Doing& doing)
      : shape_{shape}, doing_{doing}, dataset_{open_dataset(file, shape.name, H5T_IEEE_F32LE, doing)} {
    check_shape();
    read_checksums(file);
  }

  /// Reads a whole chunk into `target` (room for a chunk) and verifies it. Returns its number of elements.
  std::int64_t read_chunk(std::int64_t chunk, float* target) const {
    const std::int64_t first = chunk * chunk_elements;
    const std::int64_t count = std::min(chunk_elements, shape_.size() - first);
    format::for_each_rectangle(
        dataset_, shape_, first, count, doing_, [&](const auto& memory, const auto& file, auto at) {
          checked(H5Dread(dataset_.get(), H5T_NATIVE_FLOAT, memory.get(), file.get(), H5P_DEFAULT, target + at),
                  doing_);
        });
    if (format::checksum(target, count) != checksums_[static_cast<std::size_t>(chunk)]) {
      fail(doing_.code, "{}: /{} is damaged in chunk {} of {} (elements [{}, {})): it does not match its checksum",
           doing_.what, shape_.name, chunk, shape_.chunks(), first, first + count);
    }
    return count;
  }

  const CheckpointDataset& shape() const { return shape_; }

 private:
  void check_shape() const {
    const auto found = extent_of(dataset_, doing_);
    const auto wanted = extent_of(shape_);
    if (found != wanted) {
      fail(doing_.code, "{}: /{} has the shape [{}] where [{}] is expected", doing_.what, shape_.name,
           fmt::join(found, ", "), fmt::join(wanted, ", "));
    }
  }

  void read_checksums(hid_t file) {
    const std::string path = format::checksums_path(shape_.name);
    const auto dataset = open_dataset(file, path, H5T_STD_U64LE, doing_);
    if (extent_of(dataset, doing_) != std::vector<hsize_t>{static_cast<hsize_t>(shape_.chunks())})
      fail(doing_.code, "{}: /{} does not have {} checksums", doing_.what, path, shape_.chunks());
    checksums_.resize(static_cast<std::size_t>(shape_.chunks()));
    checked(H5Dread(dataset.get(), H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, checksums_.data()), doing_);
  }

  const CheckpointDataset& shape_;
  const Doing& doing_;
  hdf5::Dataset dataset_;
  std::vector<std::uint64_t> checksums_;
};

void check_piece(const LoadedPiece& piece, const std::vector<CheckpointDataset>& datasets) {
  require(piece.dataset >= 0 && piece.dataset < static_cast<std::int64_t>(datasets.size()),
          "loading a checkpoint: a piece of data set {} of {}", piece.dataset, datasets.size());
  const auto& set = datasets[static_cast<std::size_t>(piece.dataset)];
  require(piece.first >= 0 && piece.count >= 0 && piece.first + piece.count <= set.size(),
          "loading a checkpoint: the elements [{}, {}) of {}, which has {}", piece.first, piece.first + piece.count,
          set.name, set.size());
}

/// Chunks that lie whole in the piece are read where they belong, the others by way of `buffer` (chunk_buffer).
void load_piece(const VerifiedDataset& dataset, const LoadedPiece& piece, std::vector<float>& buffer) {
  const std::int64_t end = piece.first + piece.count;
  for (std::int64_t chunk = piece.first / chunk_elements; chunk * chunk_elements < end; ++chunk) {
    const std::int64_t first = chunk * chunk_elements;
    const std::int64_t chunk_end = std::min(first + chunk_elements, dataset.shape().size());
    if (first >= piece.first && chunk_end <= end) {
      dataset.read_chunk(chunk, piece.data + (first - piece.first));
      continue;
    }
    dataset.read_chunk(chunk, buffer.data());
    const std::int64_t begin = std::max(first, piece.first);
    std::copy_n(buffer.data() + (begin - first), std::min(end, chunk_end) - begin, piece.data + (begin - piece.first));
  }
}

/// Room for any one chunk of these data sets.
std::vector<float> chunk_buffer(const std::vector<CheckpointDataset>& datasets) {
  std::int64_t largest = 0;
  for (const auto& set : datasets) largest = std::max(largest, std::min(set.size(), chunk_elements));
  return std::vector<float>(static_cast<std::size_t>(largest));
}

Doing reading(const std::string& path) {
  return {ExitCode::damaged_input, "reading the checkpoint " + path};
}

/// The names of the data sets below a group, in the order of their names; exceptions do not pass through HDF5.
herr_t add_dataset_name(hid_t group, const char* name, const H5O_info_t* info, void* target) {
  static_cast<void>(group);
  try {
    if (info->type == H5O_TYPE_DATASET) static_cast<std::vector<std::string>*>(target)->emplace_back(name);
    return 0;
  } catch (...) {
    return -1;
  }
}

std::vector<std::string> dataset_names(hid_t file, const std::string& group, const Doing& doing) {
  std::vector<std::string> names;
  if (checked(H5Lexists(file, group.c_str(), H5P_DEFAULT), doing) == 0) return names;
  checked(H5Ovisit_by_name2(file, group.c_str(), H5_INDEX_NAME, H5_ITER_INC, add_dataset_name, &names, H5O_INFO_BASIC,
                            H5P_DEFAULT),
          doing);
  for (auto& name : names) name.insert(0, group + "/");
  return names;
}

CheckpointDataset read_shape(hid_t file, const std::string& name, const Doing& doing) {
  const auto dataset = open_dataset(file, name, H5T_IEEE_F32LE, doing);
  const auto extent = extent_of(dataset, doing);
  const bool fits =
      (extent.size() == 1 || extent.size() == 2) &&
      *std::max_element(extent.begin(),
                        extent.end())<largest_extent&& * std::min_element(extent.begin(), extent.end())> 0;
  if (!fits) fail(doing.code, "{}: /{} has the impossible shape [{}]", doing.what, name, fmt::join(extent, ", "));
  const bool one_dimensional = extent.size() == 1;
  return {name, one_dimensional ? 1 : static_cast<std::int64_t>(extent[0]), static_cast<std::int64_t>(extent.back()),
          one_dimensional};
}

CheckpointContents read_contents(hid_t file, const Doing& doing) {
  CheckpointContents contents;
  contents.header = format::read_header(file, doing);
  for (const char* group : {"parameters", "optimizer"}) {
    for (const auto& name : dataset_names(file, group, doing))
      contents.datasets.push_back(read_shape(file, name, doing));
  }
  return contents;
}

/// The newest sound file; empty if there is none. @throws if there are files but none is sound.
std::string newest_sound_file(const std::string& folder) {
  const auto files = list_checkpoints(folder);
  std::string faults;
  for (const auto& file : files) {
    try {
      verify_checkpoint(file.path);
      return file.path;
    } catch (const Error& error) {
      log::warning("{}; trying the checkpoint before it", error.what());
      faults += fmt::format("\n  {}", error.what());
    }
  }
  if (!files.empty()) {
    fail(ExitCode::damaged_input, "none of the {} checkpoints in {} is whole; move them away to start afresh:{}",
         files.size(), folder, faults);
  }
  return {};
}

}  // namespace

CheckpointHeader read_checkpoint_header(const std::string& path) {
  const auto doing = reading(path);
  const auto file = hdf5::open_file(path, checkpoint_kind, doing);
  return format::read_header(file.get(), doing);
}

CheckpointContents read_checkpoint_contents(const std::string& path) {
  const auto doing = reading(path);
  const auto file = hdf5::open_file(path, checkpoint_kind, doing);
  return read_contents(file.get(), doing);
}

CheckpointHeader load_checkpoint(const std::string& path, const std::vector<CheckpointDataset>& datasets,
                                 const std::vector<LoadedPiece>& pieces) {
  for (const auto& piece : pieces) check_piece(piece, datasets);
  const auto doing = reading(path);
  const auto file = hdf5::open_file(path, checkpoint_kind, doing);
  auto header = format::read_header(file.get(), doing);
  auto buffer = chunk_buffer(datasets);
  for (const auto& piece : pieces) {
    const VerifiedDataset dataset{file.get(), datasets[static_cast<std::size_t>(piece.dataset)], doing};
    load_piece(dataset, piece, buffer);
  }
  return header;
}

CheckpointHeader load_checkpoint(const Communicator& group, const std::string& path,
                                 const std::vector<CheckpointDataset>& datasets,
                                 const std::vector<LoadedPiece>& pieces) {
  CheckpointHeader header;
  jointly(group, [&] { header = load_checkpoint(path, datasets, pieces); });
  return header;
}

CheckpointContents verify_checkpoint(const std::string& path) {
  const auto doing = reading(path);
  const auto file = hdf5::open_file(path, checkpoint_kind, doing);
  auto contents = read_contents(file.get(), doing);
  auto buffer = chunk_buffer(contents.datasets);
  for (const auto& shape : contents.datasets) {
    const VerifiedDataset dataset{file.get(), shape, doing};
    for (std::int64_t chunk = 0; chunk < shape.chunks(); ++chunk) dataset.read_chunk(chunk, buffer.data());
  }
  return contents;
}

std::optional<std::string> find_latest(const Communicator& group, const std::string& folder) {
  std::string found;
  jointly(group, [&] {
    if (group.rank() == 0) found = newest_sound_file(folder);
  });
  found = group.broadcast(found, 0);
  if (found.empty()) return std::nullopt;
  return found;
}

}  // namespace penstock
