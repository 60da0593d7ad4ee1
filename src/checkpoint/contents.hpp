// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "model/spec.hpp"
#include "optimizer/shard.hpp"

namespace penstock {

/// What a checkpoint says beside the data: the attributes of the file.
struct CheckpointHeader {
  std::int64_t step = 0;               ///< completed steps
  std::int64_t adam_steps = 0;         ///< updates taken, for the bias correction: skipped steps do not count
  std::int64_t tokens = 0;             ///< trained on so far
  std::int64_t data_position = 0;      ///< samples taken so far
  std::uint64_t seed = 0;              ///< with the position, the whole random state: random numbers are counter-based
  std::uint64_t data_fingerprint = 0;  ///< of the training data (data/open)
  std::string program_version;
  std::string deck;              ///< the effective deck, as text
  std::uint64_t model_hash = 0;  ///< of what must agree for the states to make sense
  double wall_seconds = 0;       ///< trained for so far, over all runs
  friend bool operator==(const CheckpointHeader&, const CheckpointHeader&) = default;
};

/// One array of fp32, in its true shape (no padding, no rank in the name).
struct CheckpointDataset {
  std::string name;  ///< "parameters/layers/7/attention/query/weight"; without a leading slash
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  bool one_dimensional = false;  ///< rows = 1
  std::int64_t size() const { return rows * columns; }
  std::int64_t chunks() const { return divide_up(size(), chunk_elements); }
  friend bool operator==(const CheckpointDataset&, const CheckpointDataset&) = default;
};

struct CheckpointContents {
  CheckpointHeader header;
  std::vector<CheckpointDataset> datasets;
};

/// Elements [first, first + count) of a data set, row-major, in memory: `data` is where they lie or where they go.
template <class Float>
struct DatasetPiece {
  std::int32_t dataset = 0;  ///< index into the list of data sets
  std::int64_t first = 0;
  std::int64_t count = 0;
  Float* data = nullptr;
};
using SavedPiece = DatasetPiece<const float>;
using LoadedPiece = DatasetPiece<float>;

/// The three states of a parameter that a training run keeps.
enum class StateKind : std::uint8_t { parameter, first_moment, second_moment };
inline constexpr std::int32_t state_kind_count = 3;

/// The data sets of a training run of `model`: all parameters in canonical order (model/parameters), then their first
/// moments, then their second moments.
std::vector<CheckpointDataset> datasets_of(const ModelSpec& model);

/// Index into datasets_of of one state of the parameter with this index in parameters_of.
constexpr std::int32_t dataset_index(StateKind kind, std::int32_t parameter, std::int32_t parameter_count) {
  return static_cast<std::int32_t>(kind) * parameter_count + parameter;
}

}  // namespace penstock
